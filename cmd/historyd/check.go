package main

import (
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"historyd/internal/durable"
	"historyd/internal/identity"
	"historyd/internal/store"
)

func newCheckCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [DIR]",
		Short: "say whether a data directory is sound",
		Long: "Read a data directory, the configured one without DIR, and say whether it is sound: every\n" +
			"segment, checksum chain, identity and mode. The daemon may be running. Nothing is changed.\n\n" +
			"Findings are printed one a line: path, kind, detail. A write that was cut by a crash is no\n" +
			"finding: it was never acknowledged. The exit code is 1 when there are findings.",
		Example: "  historyd check\n" +
			"  historyd check /backup/historyd --json",
		Args: takes("[DIR]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := loadElsewhere(cmd)
			if err != nil {
				return err
			}
			dir, callers := s.DataDir, s.CallersFile
			if len(args) > 0 {
				dir, callers = args[0], filepath.Join(args[0], "callers.json")
				err = lookForRecord(dir)
			} else {
				err = s.lookFor(lookForRecord)
			}
			if err != nil {
				return err
			}
			if _, ok := credential(callers); ok {
				fmt.Fprintln(cmd.ErrOrStderr(), "historyd: callers_file is a credential of the service, so the callers are not checked")
				callers = ""
			}
			return checkDir(cmd, dir, callers, asJSON)
		},
	}
	addFlags(cmd.Flags(), "data_dir")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object a line: findings, then the summary")
	return cmd
}

// checkDir prints what is wrong with a data directory, then a summary. Without a
// summary the check could not be done.
func checkDir(cmd *cobra.Command, dir, callers string, asJSON bool) error {
	out := findings{w: cmd.OutOrStdout(), asJSON: asJSON}
	sum, err := checkAll(cmd, dir, callers, out.report)
	if err != nil {
		return errors.Join(err, out.err)
	}
	sum.Findings = out.count
	out.summary(sum)
	if out.err != nil {
		return out.err
	}
	if out.count > 0 {
		return errUnsound
	}
	return nil
}

// checkAll reports what is wrong with a data directory and the callers file. In a
// directory that is unsafe itself nothing is looked at.
func checkAll(cmd *cobra.Command, dir, callers string, report func(store.Finding)) (store.CheckSummary, error) {
	there := describe(dir)
	fsys, err := durable.OpenAsOwner(dir, becomeOwner)
	if errors.Is(err, durable.ErrUnsafe) {
		report(store.Finding{Path: dir, Kind: "unsafe", Detail: there + ", want " + ours()})
		return store.CheckSummary{}, nil
	}
	if err != nil {
		return store.CheckSummary{}, fmt.Errorf("%w%s", err, remedy(err))
	}
	defer fsys.Close()
	progress := newProgress(cmd.ErrOrStderr(), "conversation", "read")
	sum, err := store.Check(cmd.Context(), fsys, report, progress.at)
	progress.end()
	if err != nil {
		return sum, err
	}
	if filepath.Dir(callers) == filepath.Clean(dir) {
		_, err = identity.OpenFile(fsys, filepath.Base(callers)).List()
	} else {
		err = checkCallers(callers)
	}
	if err != nil {
		report(store.Finding{Path: filepath.Base(callers), Kind: "callers", Detail: err.Error()})
	}
	return sum, nil
}

// checkCallers reads the callers file. A missing one is as sound as an empty one,
// and so is none.
func checkCallers(name string) error {
	if name == "" {
		return nil
	}
	fsys, file, err := openCallersAt(name, "")
	if err != nil {
		return err
	}
	defer fsys.Close()
	_, err = file.List()
	return err
}

// findings prints what a check finds. The first error in printing is kept.
type findings struct {
	w      io.Writer
	asJSON bool
	count  int64
	err    error
}

func (f *findings) report(found store.Finding) {
	f.count++
	if f.asJSON {
		f.json(struct {
			Path   string `json:"path"`
			Kind   string `json:"kind"`
			Detail string `json:"detail"`
		}{found.Path, found.Kind, found.Detail})
		return
	}
	// A name on the disk may be any bytes.
	f.print("%s %s %s\n", plain(found.Path), found.Kind, found.Detail)
}

func (f *findings) summary(s store.CheckSummary) {
	if f.asJSON {
		type summary struct {
			Callers       int64 `json:"callers"`
			Conversations int64 `json:"conversations"`
			Segments      int64 `json:"segments"`
			Messages      int64 `json:"messages"`
			Attachments   int64 `json:"attachments"`
			Bytes         int64 `json:"bytes"`
			Torn          int64 `json:"torn"`
			Findings      int64 `json:"findings"`
		}
		f.json(struct {
			Summary summary `json:"summary"`
		}{summary(s)})
		return
	}
	verdict := "sound"
	if s.Findings > 0 {
		verdict = count(s.Findings, "finding")
	}
	f.print("%s: %s with conversations, %s, %s, %s, %s, %s, %s\n", verdict,
		count(s.Callers, "caller"), count(s.Conversations, "conversation"), count(s.Segments, "segment"),
		count(s.Messages, "message"), count(s.Attachments, "attachment"), humanize.IBytes(uint64(s.Bytes)), count(s.Torn, "torn tail"))
}

func (f *findings) json(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		f.err = errors.Join(f.err, err)
		return
	}
	f.print("%s\n", text)
}

func (f *findings) print(format string, args ...any) {
	if _, err := fmt.Fprintf(f.w, format, args...); err != nil && f.err == nil {
		f.err = err
	}
}

// progress shows how far long work has come: a bar on a terminal, a line every
// few seconds elsewhere.
type progress struct {
	w    io.Writer
	of   string                   // what is counted, one of them
	done string                   // what is done with each
	bar  *progressbar.ProgressBar // nil without a terminal
	next time.Time                // of the next line
}

const progressEvery = 5 * time.Second

func newProgress(w io.Writer, of, done string) *progress {
	p := &progress{w: w, of: of, done: done, next: time.Now().Add(progressEvery)}
	if isTerminal(w) {
		p.bar = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(w),
			progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100*time.Millisecond))
	}
	return p
}

// at says how many of all are done.
func (p *progress) at(done, total int64) {
	if p.bar != nil {
		p.bar.ChangeMax64(max(total, 1))
		_ = p.bar.Set64(done) // it is for show
		return
	}
	if now := time.Now(); now.After(p.next) {
		p.next = now.Add(progressEvery)
		fmt.Fprintf(p.w, "%d of %s %s\n", done, count(total, p.of), p.done)
	}
}

func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
