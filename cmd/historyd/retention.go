package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"historyd/internal/durable"
	"historyd/internal/retention"
	"historyd/internal/store"
)

// sweptRecord is the store as retention asks it.
type sweptRecord struct {
	*store.Store
	fsys durable.FS
}

// Survey is as in retention.Record.
func (r sweptRecord) Survey(ctx context.Context, visit func(retention.Conversation) error) error {
	return survey(ctx, r.fsys, nil, visit)
}

// surveyedEnd is how much of the end of a conversation is read to know what was last done.
const surveyedEnd = 16 << 10

// survey hands on the conversations that retention can judge.
// What is damaged stays until somebody has looked at it.
func survey(ctx context.Context, fsys durable.FS, progress func(done, total int64), visit func(retention.Conversation) error) error {
	return store.Survey(ctx, fsys, surveyedEnd, func(s *store.Surveyed) error {
		if s.Damaged || s.LastID == "" || !s.Scope.Valid() {
			return nil
		}
		return visit(retention.Conversation{Scope: s.Scope, Name: s.Name, Newest: s.LastID, At: s.LastAt, Bytes: s.Bytes})
	}, progress)
}

func (s *settings) retentionRules() retention.Rules {
	return retention.Rules{MaxAge: time.Duration(s.Retention.MaxAge), MaxBytes: int64(s.Retention.MaxBytes)}
}

// openRetention starts to remove what is not kept for ever, if there is a rule.
func (d *daemon) openRetention(reg prometheus.Registerer) (err error) {
	rules := d.settings.retentionRules()
	if rules == (retention.Rules{}) {
		return nil
	}
	o := retention.Options{Rules: rules, Record: sweptRecord{d.store, d.data}, FS: d.data, Logger: d.log, Registerer: reg}
	if d.index != nil {
		o.Index = d.index
	}
	d.sweeper, err = retention.New(o)
	return err
}

func newRetentionCommand() *cobra.Command {
	var dry, names, asJSON bool
	var maxAge, maxBytes string
	cmd := &cobra.Command{
		Use:   "retention --dry-run [DIR]",
		Short: "list which conversations the rules of retention would remove",
		Long: "List which conversations of a data directory, the configured one without DIR, the rules of retention\n" +
			"would remove now, for each caller the oldest first. It is the running daemon that removes; this\n" +
			"changes nothing, whether a daemon is running or not.\n\n" +
			"The rules are retention.max_age and retention.max_bytes, or those of the flags. What is in use when\n" +
			"the daemon comes to it stays, and so does what is damaged. --names shows whose the conversations are\n" +
			"and what they are called; else both are shown as the log shows them.",
		Example: "  historyd retention --dry-run\n" +
			"  historyd retention --dry-run --max-age 90d --max-bytes 1GiB\n" +
			"  historyd retention --dry-run --json /backup/historyd",
		Args: takes("[DIR]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !dry {
				return usageError{errors.New("the running daemon removes conversations; --dry-run lists which")}
			}
			s, fsys, err := openForLook(cmd, args)
			if err != nil {
				return err
			}
			defer fsys.Close()
			rules, err := rulesOf(&s, maxAge, maxBytes)
			if err != nil {
				return err
			}
			list, err := chooseIn(cmd, fsys, rules)
			if err != nil {
				return err
			}
			if err := sayHeld(cmd.ErrOrStderr(), fsys, rules); err != nil {
				return err
			}
			if asJSON {
				return list.json(cmd.OutOrStdout(), names)
			}
			return list.print(cmd.OutOrStdout(), rules, names)
		},
	}
	addFlags(cmd.Flags(), "data_dir")
	f := cmd.Flags()
	f.BoolVar(&dry, "dry-run", false, "say what would go, and change nothing")
	f.StringVar(&maxAge, "max-age", "", "as if retention.max_age were this `TIME`, such as 90d; 0 is for ever")
	f.StringVar(&maxBytes, "max-bytes", "", "as if retention.max_bytes were this `SIZE`, such as 1GiB; 0 is for ever")
	f.BoolVar(&names, "names", false, "show callers and conversations by name")
	f.BoolVar(&asJSON, "json", false, "print a JSON object a line: conversations, then the summary")
	return cmd
}

// rulesOf are the configured rules, but for those that flags give.
func rulesOf(s *settings, maxAge, maxBytes string) (retention.Rules, error) {
	if maxAge != "" {
		if err := s.Retention.MaxAge.UnmarshalText([]byte(maxAge)); err != nil || s.Retention.MaxAge < 0 {
			return retention.Rules{}, usageError{errors.New("--max-age: want a time such as 90d or 36h")}
		}
	}
	if maxBytes != "" {
		if err := s.Retention.MaxBytes.UnmarshalText([]byte(maxBytes)); err != nil {
			return retention.Rules{}, usageError{fmt.Errorf("--max-bytes: %w", err)}
		}
	}
	return s.retentionRules(), nil
}

// going is a conversation that would go, as "retention --dry-run --json" shows it.
type going struct {
	Caller          string    `json:"caller"`       // as a log shows it
	Conversation    string    `json:"conversation"` // likewise
	Kind            string    `json:"kind,omitzero"`
	ID              string    `json:"id,omitzero"`
	PermissionScope *string   `json:"permission_scope,omitzero"`
	Name            string    `json:"name,omitzero"`
	LastActivity    time.Time `json:"last_activity"`
	Bytes           int64     `json:"bytes"`
	Reason          string    `json:"reason"`
}

// goingSummary is what would go together.
type goingSummary struct {
	Callers       int64 `json:"callers"`
	Conversations int64 `json:"conversations"`
	Bytes         int64 `json:"bytes"`
	Of            int64 `json:"of"` // conversations that were looked at
}

type goingList struct {
	list    []retention.Choice
	summary goingSummary
}

func chooseIn(cmd *cobra.Command, fsys durable.FS, rules retention.Rules) (*goingList, error) {
	l := &goingList{}
	progress := newProgress(cmd.ErrOrStderr(), "conversation", "looked at")
	defer progress.end()
	look := func(ctx context.Context, visit func(retention.Conversation) error) error {
		return survey(ctx, fsys, progress.at, func(c retention.Conversation) error {
			l.summary.Of++
			return visit(c)
		})
	}
	err := retention.Choose(cmd.Context(), rules, time.Now(), look, func(chosen []retention.Choice) error {
		l.summary.Callers++
		for _, c := range chosen {
			l.summary.Conversations++
			l.summary.Bytes += c.Bytes
		}
		l.list = append(l.list, chosen...)
		return nil
	})
	return l, err
}

// sayHeld tells when the daemon does not believe the clock, so that nothing goes for its
// age for now.
func sayHeld(w io.Writer, fsys durable.FS, rules retention.Rules) error {
	until, err := retention.HeldUntil(fsys)
	if err != nil {
		return err
	}
	if rules.MaxAge > 0 && time.Now().Before(until) {
		_, err = fmt.Fprintf(w, "historyd: the clock has jumped: nothing is removed for its age before %s\n", until.Format(time.RFC3339))
	}
	return err
}

func (l *goingList) one(c *retention.Choice, names bool) going {
	g := going{
		Caller: c.Scope.String(), Conversation: c.Scope.Conversation(c.Name)[:12],
		LastActivity: c.At, Bytes: c.Bytes, Reason: c.Reason,
	}
	if names {
		permission := c.Scope.PermissionScope()
		g.Kind, g.ID, g.PermissionScope, g.Name = string(c.Scope.Kind()), c.Scope.ID(), &permission, c.Name
	}
	return g
}

func (l *goingList) json(w io.Writer, names bool) error {
	for i := range l.list {
		if err := jsonLine(w, struct {
			Conversation going `json:"conversation"`
		}{l.one(&l.list[i], names)}); err != nil {
			return err
		}
	}
	return jsonLine(w, struct {
		Summary goingSummary `json:"summary"`
	}{l.summary})
}

func (l *goingList) print(out io.Writer, rules retention.Rules, names bool) error {
	if len(l.list) > 0 {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		head := "CALLER\tCONVERSATION\tLAST ACTIVITY\tBYTES\tREASON"
		if names {
			head += "\tKIND\tID\tPERMISSION SCOPE\tNAME"
		}
		fmt.Fprintln(w, head)
		for i := range l.list {
			g := l.one(&l.list[i], names)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s", g.Caller, g.Conversation, g.LastActivity.Format(time.RFC3339), humanize.IBytes(uint64(g.Bytes)), g.Reason)
			if names {
				fmt.Fprintf(w, "\t%s\t%s\t%s\t%s", g.Kind, plain(g.ID), plain(*g.PermissionScope), g.Name)
			}
			fmt.Fprintln(w)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	why := ""
	if rules == (retention.Rules{}) {
		why = ": retention.max_age and retention.max_bytes are 0, so everything is kept for ever"
	}
	_, err := fmt.Fprintf(out, "%s of %s, %s, would go%s\n", count(l.summary.Conversations, "conversation"),
		count(l.summary.Callers, "caller"), humanize.IBytes(uint64(l.summary.Bytes)), why)
	return err
}
