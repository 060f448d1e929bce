package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"historyd/internal/api"
	"historyd/internal/compaction"
	"historyd/internal/durable"
	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/pipeline"
	"historyd/internal/recall"
	"historyd/internal/retention"
	"historyd/internal/store"
)

const (
	// headerSlack is what net/http adds to MaxHeaderBytes.
	headerSlack = 4096
)

// daemon is everything that is open while we serve.
type daemon struct {
	settings settings
	fitted   settings                 // the same, with no more kept open than files may be
	reread   func() (settings, error) // for reload
	log      *slog.Logger
	level    *slog.LevelVar

	made          bool // this start has made the data directory
	data, callers durable.FS
	store         *store.Store
	engine        *engine
	registry      *identity.Registry
	index         *recall.Index // nil when there is none
	recaller      *recall.Recaller
	pipeline      *pipeline.Pipeline
	summariser    *compaction.Summariser // nil when summaries are digests
	sweeper       *retention.Sweeper     // nil when everything is kept for ever

	endpoints     []endpoint
	server        *http.Server
	cut           context.CancelCauseFunc // ends the contexts of the server's requests
	debugListener net.Listener            // nil when nothing is to be debugged
	debugServer   *http.Server

	selfchecks   *prometheus.CounterVec
	reloadFailed atomic.Bool // the last one
}

// engine is the store until the daemon stops; then it is not ready.
type engine struct {
	*store.Store
	stopping atomic.Bool
}

// Ready is as in pipeline.Engine.
func (e *engine) Ready() error {
	if e.stopping.Load() {
		return fmt.Errorf("%w: shutting down", history.ErrUnavailable)
	}
	return e.Store.Ready()
}

// openDaemon takes the data directory and opens what is served. Nothing is
// answered before serve; after an error everything is closed again.
func openDaemon(ctx context.Context, s settings, operator string, logTo io.Writer) (*daemon, error) {
	// For good: no file or socket of ours is ever open to others, not even for
	// the moment between its making and a chmod.
	syscall.Umask(0o077)
	tuneRuntime(int64(s.Store.Cache))
	d := &daemon{settings: s, level: new(slog.LevelVar), debugServer: newDebugServer()}
	d.level.Set(parseLevel(s.Log.Level))
	d.log = newLogger(logTo, s.Log.Format, d.level)
	if err := d.open(ctx, operator); err != nil {
		// The first error is the one to tell.
		d.unmakeDataDir()
		_ = d.close()
		return nil, err
	}
	return d, nil
}

// open fills in the rest of d. After an error what is open has to be closed.
func (d *daemon) open(ctx context.Context, operator string) (err error) {
	// First, before anything is started that could take them along.
	in, err := inheritSockets()
	defer func() {
		if err != nil {
			in.close()
		}
	}()
	if err == nil {
		err = d.fitFiles(len(in.api))
	}
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildGauge())
	if err := d.openStore(registry); err != nil {
		return err
	}
	file, err := d.openCallers()
	if err != nil {
		return err
	}
	handler, err := d.newHandler(registry)
	if err != nil {
		return err
	}
	d.server = d.newServer(handler)
	if err := d.listen(ctx, &in); err != nil {
		return err
	}
	// Last, so that a start which fails has made nobody.
	if err := bootstrap(d.data, file, d.registry, operator); err != nil {
		return err
	}
	if d.registry.Len() == 0 {
		return fmt.Errorf("no callers yet: make one with\n  %s\nor start with --bootstrap-operator ID", d.settings.tokenCommand("ID"))
	}
	d.measure(registry)
	return d.openRetention(registry)
}

// listen opens all listeners that are not inherited.
func (d *daemon) listen(ctx context.Context, in *inheritedSockets) (err error) {
	if d.endpoints, err = openEndpoints(ctx, &d.fitted, in.api); err != nil {
		return err
	}
	for _, e := range d.endpoints {
		e.gate.makeRoom = []func(){d.store.MakeRoom, d.spareConnections}
	}
	if d.debugListener, err = listenDebug(ctx, &d.settings, in.debug); err != nil {
		return fmt.Errorf("debug.listen: %w", err)
	}
	if unused := d.settings.unused(in); len(unused) > 0 {
		d.log.Warn("systemd has opened the sockets: some settings have no effect", "keys", strings.Join(unused, " "))
	}
	return nil
}

// spareConnections closes some that are idle, of each listener.
func (d *daemon) spareConnections() {
	for _, e := range d.endpoints {
		e.gate.spare()
	}
}

func (d *daemon) openStore(reg prometheus.Registerer) (err error) {
	_, missing := os.Lstat(d.settings.DataDir)
	if d.data, err = d.settings.openDataDir(); err != nil {
		return err
	}
	d.made = errors.Is(missing, fs.ErrNotExist)
	d.store, err = store.Open(store.Options{
		FS:           d.data,
		NewID:        newIDs(time.Now),
		Logger:       d.log,
		Registerer:   reg,
		SegmentBytes: int64(d.settings.Store.Segment),
		OpenFiles:    d.fitted.Store.OpenFiles,
		Quota:        store.Quota{Bytes: int64(d.settings.Quota.Bytes), Conversations: int64(d.settings.Quota.Conversations)},
		Reserve:      int64(d.settings.Store.Reserve),
	})
	if errors.Is(err, durable.ErrLocked) {
		return fmt.Errorf("another historyd is serving %s: one daemon a data directory", d.settings.DataDir)
	}
	if err != nil {
		return fmt.Errorf("data_dir: %s: %w%s", d.settings.DataDir, err, remedy(err))
	}
	d.tellMedium()
	return nil
}

func (d *daemon) openCallers() (*identity.File, error) {
	fsys, file, err := openCallersAt(d.settings.CallersFile, d.settings.credentials)
	if err != nil {
		return nil, err
	}
	d.callers = fsys
	d.registry, err = identity.NewRegistry(identity.Options{File: file, Path: d.settings.CallersFile, Logger: d.log})
	return file, err
}

func (d *daemon) newHandler(reg *prometheus.Registry) (http.Handler, error) {
	s := &d.settings
	policy, wrong := s.policy()
	if wrong != nil {
		return nil, problems{*wrong}
	}
	d.tellMisspelt(s)
	compactor, err := compaction.New(compaction.Options{
		KeepVerbatimTurns: s.Compaction.KeepVerbatimTurns,
		FoldBatch:         s.Compaction.FoldBatch,
		MaxSummaryChars:   s.Compaction.MaxSummaryChars,
		Registerer:        reg,
	})
	if err != nil {
		return nil, fmt.Errorf("compaction: %w", err)
	}
	d.engine = &engine{Store: d.store}
	writer, err := d.openSummariser(reg)
	if err != nil {
		return nil, fmt.Errorf("compaction: %w", err)
	}
	if err := d.openRecall(reg, d.log); err != nil {
		return nil, err
	}
	o := pipeline.Options{
		Engine:     d.engine,
		Policy:     policy,
		Compactor:  compactor,
		Summariser: writer,
		Registerer: reg,

		MaxClosureTools: s.Replay.MaxClosureTools,

		Recaller: d.recaller,
		Logger:   d.log,
	}
	if d.index != nil {
		o.Index = d.index
	}
	d.pipeline, err = pipeline.New(o)
	if err != nil {
		return nil, err
	}
	return api.New(api.Options{
		Pipeline:     d.pipeline,
		Callers:      d.registry,
		AllowedHosts: s.AllowedHosts,
		Limits:       d.fitted.requestLimits(),
		CacheBytes:   int64(s.Store.Cache),
		MetricsAuth:  s.Metrics.Auth,
		Known:        heard,
		Gatherer:     reg,
		Registerer:   reg,
		Logger:       d.log,
	})
}

// requestLimits are the limits of requests in the words of the API.
func (s *settings) requestLimits() api.Limits {
	l := &s.Limits
	return api.Limits{
		Body:                 int64(l.Body),
		Message:              int64(l.Message),
		Import:               int64(l.Import),
		PerCallerConcurrency: l.PerCallerConcurrency,
		PerCallerRate:        l.PerCallerRate,
		PerCallerWaiting:     max(1, l.Connections/4),
	}
}

// openSummariser starts what asks a model, if that is wanted; nil otherwise.
func (d *daemon) openSummariser(reg prometheus.Registerer) (pipeline.Summariser, error) {
	c := &d.settings.Compaction
	if c.Summariser != "model" {
		return nil, nil
	}
	s, err := compaction.NewSummariser(compaction.SummariserOptions{
		Record: d.engine,
		Endpoint: compaction.Endpoint{
			BaseURL:        c.Model.BaseURL,
			Name:           c.Model.Name,
			APIKeyFile:     c.Model.APIKeyFile,
			Timeout:        time.Duration(c.Model.Timeout),
			MaxInputTokens: c.Model.MaxInputTokens,
		},
		MaxSummaryChars: c.MaxSummaryChars,
		// Nobody wakes it before the pipeline is there.
		Clean:      func(text string) string { return d.pipeline.Clean(text) },
		Logger:     d.log,
		Registerer: reg,
	})
	if err != nil {
		return nil, err
	}
	d.summariser = s
	return s, nil
}

func (d *daemon) newServer(h http.Handler) *http.Server {
	// One protocol, one set of limits: HTTP/2 has its own.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	base, cut := context.WithCancelCause(context.Background())
	d.cut = cut
	return &http.Server{
		Handler:           h,
		BaseContext:       func(net.Listener) context.Context { return base },
		Protocols:         &protocols,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    int(d.settings.Limits.Header) - headerSlack,
		ErrorLog:          newServerLog(d.log),
		ConnState:         connState,
		// Else OPTIONS * is answered before anybody was asked who is calling.
		DisableGeneralOptionsHandler: true,
		ConnContext:                  connContext,
	}
}

// close gives back whatever is open, in the opposite order.
func (d *daemon) close() error {
	var errs []error
	for _, e := range d.endpoints {
		if err := e.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if d.debugListener != nil {
		if err := d.debugListener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if d.sweeper != nil {
		d.sweeper.Close()
	}
	if d.summariser != nil {
		d.summariser.Close()
	}
	if d.recaller != nil {
		errs = append(errs, d.recaller.Close())
	}
	if d.index != nil {
		errs = append(errs, d.index.Close())
	}
	if d.store != nil {
		errs = append(errs, d.store.Close())
	}
	for _, fsys := range []durable.FS{d.callers, d.data} {
		if fsys != nil {
			errs = append(errs, fsys.Close())
		}
	}
	return errors.Join(errs...)
}

// needRestart names the keys that differ from other and that a reload can't change.
func (s *settings) needRestart(other *settings) []string {
	var list []string
	for _, k := range keys {
		if k.path == "log.level" || strings.HasPrefix(k.path, "projection.") {
			continue
		}
		if !reflect.DeepEqual(k.of(&s.Config).Interface(), k.of(&other.Config).Interface()) {
			list = append(list, k.path)
		}
	}
	return list
}
