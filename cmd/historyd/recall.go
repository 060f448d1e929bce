package main

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"historyd/internal/recall"
)

// recallOptions are the settings of recall in its own words.
func (s *settings) recallOptions() recall.Options {
	r := &s.Recall
	o := recall.Options{
		Deadline: time.Duration(r.Deadline), MinQueryChars: r.MinQueryChars, TopK: r.TopK,
		MaxItemChars: r.MaxItemChars, MaxTitleChars: r.MaxTitleChars, MaxTotalChars: r.MaxTotalChars,
		MinScore: r.MinScore,
	}
	for _, m := range r.MCP {
		server := recall.Server{
			Name: m.Name, URL: m.URL, TokenFile: m.TokenFile, Command: m.Command, Preset: m.Preset, Tool: m.Tool,
			Scoped: m.Scoped, Shared: m.Shared, Timeout: time.Duration(m.Timeout), MinScore: m.MinScore,
		}
		for _, a := range m.Arguments {
			if server.Arguments == nil {
				server.Arguments = map[string]any{}
			}
			server.Arguments[a.Name] = a.Value
		}
		o.MCP = append(o.MCP, server)
	}
	return o
}

// checkRecall says what is wrong with the settings of recall.
func (s *settings) checkRecall() (bad problems) {
	wrong := func(key, text string) { bad = append(bad, problem{key: "recall." + key, text: text}) }
	for i, m := range s.Recall.MCP {
		names := map[string]bool{}
		for j, a := range m.Arguments {
			if a.Name == "" || names[a.Name] {
				wrong(fmt.Sprintf("mcp[%d].arguments[%d].name", i, j), "want a name, and each once")
			}
			names[a.Name] = true
		}
	}
	if s.inDoubt("recall") || bad != nil {
		return bad
	}
	// Nothing is connected to, and nothing is registered.
	o := s.recallOptions()
	for i := range o.MCP {
		if _, ok := credential(o.MCP[i].TokenFile); ok || s.elsewhere {
			o.MCP[i].TokenFile = "" // that can't be read here
		}
	}
	r, err := recall.New(o)
	if err != nil {
		key, text, found := strings.Cut(err.Error(), ": ")
		if !found {
			key, text = "mcp", err.Error()
		}
		wrong(key, text)
		return bad
	}
	_ = r.Close()
	return nil
}

// openRecall opens the index and the retrievers. What is nil is not wanted.
func (d *daemon) openRecall(reg prometheus.Registerer, log *slog.Logger) (err error) {
	o := d.settings.recallOptions()
	o.Logger, o.Registerer = log, reg
	if d.settings.Recall.Local {
		d.index, err = recall.NewIndex(recall.SearchOptions{FS: d.store.Disposable(), Record: d.engine, Logger: log, Registerer: reg})
		if err != nil {
			return fmt.Errorf("recall: %w", err)
		}
		o.Local = d.index
	} else if err := recall.Discard(d.data); err != nil {
		return fmt.Errorf("recall: %w", err)
	}
	if d.recaller, err = recall.New(o); err != nil {
		return fmt.Errorf("recall: %w", err)
	}
	return nil
}
