package main

import (
	"cmp"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"historyd/internal/durable"
	"historyd/internal/identity"
	"historyd/internal/recall"
	"historyd/internal/store"
)

func newStatsCommand() *cobra.Command {
	var names, asJSON bool
	cmd := &cobra.Command{
		Use:   "stats [DIR]",
		Short: "count what a data directory holds, for each caller",
		Long: "Count what a data directory holds, the configured one without DIR: callers, conversations, messages,\n" +
			"bytes, attachments, how much of a quota is used, and what the search index, the trash and cut writes\n" +
			"that were put aside take. The daemon may be running. Nothing is changed.\n\n" +
			"Callers are shown as the log shows them; --names shows who they are. No conversation is named.\n" +
			"Only the ends of conversations are read, so damage is told as far as it is there: historyd check\n" +
			"reads everything.",
		Example: "  historyd stats\n" +
			"  historyd stats /backup/historyd --names\n" +
			"  historyd stats --json",
		Args: takes("[DIR]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, fsys, err := openForLook(cmd, args)
			if err != nil {
				return err
			}
			defer fsys.Close()
			st, err := collectStats(cmd, &s, fsys, names)
			if err != nil {
				return err
			}
			if asJSON {
				return st.json(cmd.OutOrStdout())
			}
			return st.print(cmd.OutOrStdout())
		},
	}
	addFlags(cmd.Flags(), "data_dir")
	cmd.Flags().BoolVar(&names, "names", false, "show the callers' kinds, ids and permission scopes")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object a line: callers, then the summary")
	return cmd
}

// openForLook opens the data directory of a command that only looks at it: DIR, or the
// configured one. The caller closes the FS.
func openForLook(cmd *cobra.Command, args []string) (settings, durable.FS, error) {
	s, err := loadElsewhere(cmd)
	if err != nil {
		return s, nil, err
	}
	if len(args) > 0 {
		s.DataDir = args[0]
		err = lookForRecord(args[0])
	} else {
		err = s.lookFor(lookForRecord)
	}
	if err != nil {
		return s, nil, err
	}
	fsys, err := explain(s.DataDir)(durable.OpenAsOwner(s.DataDir, becomeOwner))
	return s, fsys, err
}

// callerStats is what one caller has, as "stats --json" shows it.
type callerStats struct {
	Caller          string     `json:"caller"` // as a log shows it
	Kind            string     `json:"kind,omitzero"`
	ID              string     `json:"id,omitzero"`
	PermissionScope *string    `json:"permission_scope,omitzero"`
	Conversations   int64      `json:"conversations"`
	Messages        int64      `json:"messages"`
	Bytes           int64      `json:"bytes"`
	Attachments     int64      `json:"attachments"`
	AttachmentBytes int64      `json:"attachment_bytes"`
	AsideBytes      int64      `json:"aside_bytes"`
	Damaged         int64      `json:"damaged"` // conversations
	LastActivity    *time.Time `json:"last_activity"`
	// QuotaUsed is the larger of the shares of both quotas; null without any.
	QuotaUsed *float64 `json:"quota_used"`

	named bool
}

// summaryStats is what all have together, and what else takes room.
type summaryStats struct {
	Callers            int64 `json:"callers"`
	Conversations      int64 `json:"conversations"`
	Messages           int64 `json:"messages"`
	Bytes              int64 `json:"bytes"`
	Attachments        int64 `json:"attachments"`
	AttachmentBytes    int64 `json:"attachment_bytes"`
	AsideBytes         int64 `json:"aside_bytes"`
	Damaged            int64 `json:"damaged"`
	IndexBytes         int64 `json:"index_bytes"`
	StagingBytes       int64 `json:"staging_bytes"`
	TrashBytes         int64 `json:"trash_bytes"`
	QuotaBytes         int64 `json:"quota_bytes"` // of each caller; 0 is none
	QuotaConversations int64 `json:"quota_conversations"`
}

// stats is what was counted, the callers with the most bytes first.
type stats struct {
	callers []*callerStats
	summary summaryStats
}

func collectStats(cmd *cobra.Command, s *settings, fsys durable.FS, names bool) (*stats, error) {
	st := &stats{summary: summaryStats{QuotaBytes: int64(s.Quota.Bytes), QuotaConversations: int64(s.Quota.Conversations)}}
	byDir := map[string]*callerStats{}
	progress := newProgress(cmd.ErrOrStderr(), "conversation", "looked at")
	err := store.Survey(cmd.Context(), fsys, 0, func(found *store.Surveyed) error {
		dir := path.Dir(found.Dir)
		c := byDir[dir]
		if c == nil {
			c = &callerStats{Caller: shortCaller(dir)}
			byDir[dir] = c
		}
		c.add(found, names)
		return nil
	}, progress.at)
	progress.end()
	if err != nil {
		return nil, err
	}
	st.callers = slices.SortedFunc(maps.Values(byDir), func(a, b *callerStats) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), strings.Compare(a.Caller, b.Caller))
	})
	for _, c := range st.callers {
		c.QuotaUsed = quotaUsed(s, c)
		st.summary.add(c)
	}
	for _, part := range []struct {
		dir   string
		bytes *int64
	}{{recall.Dir, &st.summary.IndexBytes}, {store.StagingDir, &st.summary.StagingBytes}, {store.TrashDir, &st.summary.TrashBytes}} {
		if *part.bytes, err = sizeOf(fsys, part.dir); err != nil {
			return nil, err
		}
	}
	return st, nil
}

// shortCaller is a caller's directory as a log shows its scope.
func shortCaller(dir string) string {
	kind, hash := path.Base(path.Dir(dir)), path.Base(dir)
	return kind + "/" + hash[:min(12, len(hash))]
}

func (c *callerStats) add(found *store.Surveyed, names bool) {
	if found.Segments > 0 {
		c.Conversations++
	}
	c.Messages += found.Messages
	c.Bytes += found.Bytes
	c.Attachments += found.Attachments
	c.AttachmentBytes += found.Attached
	c.AsideBytes += found.Aside
	if found.Damaged {
		c.Damaged++
	}
	if at := found.LastAt; !at.IsZero() && (c.LastActivity == nil || at.After(*c.LastActivity)) {
		c.LastActivity = &at
	}
	if names && !c.named && found.Scope.Valid() {
		c.name(found.Scope)
	}
}

func (c *callerStats) name(s identity.Scope) {
	permission := s.PermissionScope()
	c.Kind, c.ID, c.PermissionScope, c.named = string(s.Kind()), s.ID(), &permission, true
}

func (t *summaryStats) add(c *callerStats) {
	t.Callers++
	t.Conversations += c.Conversations
	t.Messages += c.Messages
	t.Bytes += c.Bytes
	t.Attachments += c.Attachments
	t.AttachmentBytes += c.AttachmentBytes
	t.AsideBytes += c.AsideBytes
	t.Damaged += c.Damaged
}

func quotaUsed(s *settings, c *callerStats) *float64 {
	var used *float64
	for _, q := range []struct{ has, of int64 }{{c.Bytes, int64(s.Quota.Bytes)}, {c.Conversations, int64(s.Quota.Conversations)}} {
		if q.of == 0 {
			continue
		}
		if share := float64(q.has) / float64(q.of); used == nil || share > *used {
			used = &share
		}
	}
	return used
}

// sizeOf is the size of all files below a directory, which may be missing.
func sizeOf(fsys durable.FS, dir string) (n int64, err error) {
	entries, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		n += e.Size
		if !e.Dir {
			continue
		}
		inner, err := sizeOf(fsys, dir+"/"+e.Name)
		if err != nil {
			return 0, err
		}
		n += inner
	}
	return n, nil
}

func (st *stats) json(w io.Writer) error {
	for _, c := range st.callers {
		if err := jsonLine(w, struct {
			Caller *callerStats `json:"caller"`
		}{c}); err != nil {
			return err
		}
	}
	return jsonLine(w, struct {
		Summary summaryStats `json:"summary"`
	}{st.summary})
}

func jsonLine(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", text)
	}
	return err
}

func (st *stats) print(w io.Writer) error {
	if len(st.callers) > 0 {
		if err := st.table(w); err != nil {
			return err
		}
	}
	size := func(n int64) string { return humanize.IBytes(uint64(n)) }
	t := &st.summary
	damage := "no damage seen"
	if t.Damaged > 0 {
		damage = "damage in " + count(t.Damaged, "conversation") + ": run historyd check"
	}
	_, err := fmt.Fprintf(w, "%s with conversations, %s, %s, %s, %s of %s, %s put aside\nsearch index on disk %s, staging %s, trash %s; %s\n",
		count(t.Callers, "caller"), count(t.Conversations, "conversation"), count(t.Messages, "message"), size(t.Bytes),
		count(t.Attachments, "attachment"), size(t.AttachmentBytes), size(t.AsideBytes),
		size(t.IndexBytes), size(t.StagingBytes), size(t.TrashBytes), damage)
	return err
}

func (st *stats) table(out io.Writer) error {
	named := slices.ContainsFunc(st.callers, func(c *callerStats) bool { return c.named })
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := "CALLER\tCONVERSATIONS\tMESSAGES\tBYTES\tATTACHMENTS\tDAMAGED\tLAST ACTIVITY\tOF QUOTA"
	if named {
		head += "\tKIND\tID\tPERMISSION SCOPE"
	}
	fmt.Fprintln(w, head)
	for _, c := range st.callers {
		last, used := "-", "-"
		if c.LastActivity != nil {
			last = c.LastActivity.Format(time.RFC3339)
		}
		if c.QuotaUsed != nil {
			used = fmt.Sprintf("%.0f%%", *c.QuotaUsed*100)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%d\t%d\t%s\t%s", plain(c.Caller), c.Conversations, c.Messages, humanize.IBytes(uint64(c.Bytes)),
			c.Attachments, c.Damaged, last, used)
		if named {
			permission := ""
			if c.PermissionScope != nil {
				permission = *c.PermissionScope
			}
			fmt.Fprintf(w, "\t%s\t%s\t%s", plain(c.Kind), plain(c.ID), plain(permission))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
