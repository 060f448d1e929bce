package main

import (
	"archive/tar"
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"historyd/internal/identity"
)

// exportEndings are the endings of files by the format that is in them.
var exportEndings = map[string]string{
	"native": ".json", "jsonl": ".jsonl", "tar": ".tar",
	"openai": ".json", "anthropic": ".json", "responses": ".json", "gemini": ".json",
}

func newExportCommand() *cobra.Command {
	var all, asJSON bool
	var output, format string
	cmd := &cobra.Command{
		Use:   "export [CONVERSATION...]",
		Short: "write conversations of a caller to files",
		Long: "Write conversations of the caller to files, each as one value that import takes: to the standard\n" +
			"output (one conversation), to a file, to a directory, or to one archive of many (a name that\n" +
			"ends in .tar). The daemon must be running.\n\n" +
			"A directory is filled file by file, and a second run writes only what has changed since. What is\n" +
			"no conversation any more stays there. Files are for their owner only.\n\n" +
			"What the daemon cannot read is missing in an export: it is told as DAMAGED, and the exit code is\n" +
			"1 when all others are exported. A file that is there and has what the export lacks is left as it\n" +
			"is, and the export goes beside it, with .damaged behind its name, or .damaged.2 and so on to\n" +
			".damaged.5, which is replaced when more is lost still.",
		Example: "  historyd export default > default.json\n" +
			"  historyd export --all -o backup/\n" +
			"  historyd export --all -o backup.tar --token-file ~/me.token\n" +
			"  historyd export default --format openai -o messages.json",
		Args: func(_ *cobra.Command, names []string) error {
			switch {
			case all && len(names) > 0:
				return usageError{errors.New("give names or --all, not both")}
			case !all && len(names) == 0:
				return usageError{errors.New("CONVERSATION is missing: name some, or give --all")}
			case exportEndings[format] == "":
				return usageError{errors.New("--format is native, jsonl, tar, openai, anthropic, responses or gemini")}
			}
			for _, name := range names {
				if !identity.ValidConversation(name) {
					return usageError{fmt.Errorf("%q is no name of a conversation", name)}
				}
			}
			if output == "" && (all || len(names) > 1) {
				return usageError{errors.New("more than one conversation needs -o DIR or -o FILE.tar")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, names []string) error {
			c, err := newClient(cmd)
			if err != nil {
				return err
			}
			x := &exporting{client: c, format: format, report: report{w: cmd.OutOrStdout(), asJSON: asJSON}, errors: cmd.ErrOrStderr(), many: all || len(names) > 1}
			if output == "" {
				return x.toStdout(cmd.Context(), names[0])
			}
			of := "conversation"
			if !x.many {
				of = "byte"
			}
			x.progress = newProgress(cmd.ErrOrStderr(), of, "exported")
			defer x.progress.end()
			if all {
				if names, x.unnamed, err = c.conversations(cmd.Context()); err != nil {
					return err
				}
			}
			return x.to(cmd.Context(), output, unique(names))
		},
	}
	addClientFlags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all conversations of the caller")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object for each conversation, then the summary")
	cmd.Flags().StringVarP(&output, "output", "o", "", "`PATH` of a file, of a directory (when it is one, or ends in /), or with several of an archive FILE.tar")
	cmd.Flags().StringVar(&format, "format", "native", "`FORMAT` of each: native, jsonl, tar, openai, anthropic, responses or gemini")
	return cmd
}

// unique returns the names without those that were there before.
func unique(names []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, name := range names {
		if !seen[name] {
			out, seen[name] = append(out, name), true
		}
	}
	return out
}

// An exporting is one run of the command.
type exporting struct {
	client   *client
	format   string
	many     bool
	progress *progress
	report   report
	errors   io.Writer
	written  int64
	same     int64
	gone     int64
	damaged  int64
	unnamed  int64 // conversations that nobody can name; of damaged at the end
	bytes    int64
}

// An exported is what became of one conversation.
type exported struct {
	name, version string
	size          int64
	hurt          *damage // nil when all was read
	short         *damage // of hurt, what the daemon doesn't know of
}

func (x *exporting) toStdout(ctx context.Context, name string) error {
	e, err := x.fetch(ctx, name, x.report.w)
	if err != nil || e.hurt == nil {
		return err
	}
	fmt.Fprintf(x.errors, "historyd: %s: DAMAGED: %v; run historyd check\n", name, e.hurt)
	return errUnsound
}

// fetch writes one conversation.
func (x *exporting) fetch(ctx context.Context, name string, w io.Writer) (e exported, err error) {
	for tries := 0; ; tries++ {
		res, err := x.client.do(ctx, http.MethodGet, conversationPath(name, "/export?format="+x.format), "", nil, 0)
		if again(ctx, err, tries) {
			continue
		}
		if err != nil {
			return e, fmt.Errorf("export %s: %w", name, err)
		}
		e = exported{name: name, version: res.Header.Get("ETag")}
		e.size, err = io.Copy(w, res.Body)
		_ = res.Body.Close()
		if err != nil {
			return e, fmt.Errorf("export %s: it ended early: %w", name, err)
		}
		if _, e.hurt, err = x.client.state(ctx, name); isGone(err) {
			err = nil // cleared since: what was exported is all that there is
		}
		return e, err
	}
}

func (x *exporting) to(ctx context.Context, output string, names []string) error {
	info, err := os.Stat(output)
	isDir := strings.HasSuffix(output, "/") || err == nil && info.IsDir()
	switch {
	case isDir:
		err = x.toDirectory(ctx, output, names)
	case x.many && strings.HasSuffix(output, ".tar"):
		err = x.toArchive(ctx, output, names)
	case x.many:
		return usageError{errors.New("--output: more than one conversation goes to a directory (end it with /) or to FILE.tar")}
	default:
		err = x.toFile(ctx, output, names[0])
	}
	if err != nil {
		return err
	}
	return x.summary()
}

func (x *exporting) summary() error {
	if x.unnamed > 0 {
		x.damaged += x.unnamed
		fmt.Fprintf(x.errors, "historyd: %s not exported: not even the name can be read; run historyd check\n", count(x.unnamed, "conversation"))
	}
	err := x.report.line(map[string]any{"summary": map[string]int64{
		"exported": x.written, "unchanged": x.same, "gone": x.gone, "damaged": x.damaged, "bytes": x.bytes,
	}}, "%s exported, %d unchanged, %d gone meanwhile, %d damaged, %s\n",
		count(x.written, "conversation"), x.same, x.gone, x.damaged, humanize.IBytes(uint64(x.bytes)))
	if err == nil && x.damaged > 0 {
		return errUnsound
	}
	return err
}

// tell says where a conversation is now; kept is the file that it was not to replace, if there is one.
func (x *exporting) tell(e exported, path, kept string) error {
	x.written++
	x.bytes += e.size
	line, rest := map[string]any{"conversation": e.name, "file": path, "bytes": e.size, "damaged": e.hurt.member()}, ""
	if e.hurt != nil {
		x.damaged++
		rest = ", DAMAGED: " + e.hurt.String()
		if kept != "" {
			line["kept"] = kept
			rest += "; " + kept + " has what this lacks and stays as it is"
		}
		rest += "; run historyd check"
	}
	return x.report.line(line, "%s: %s to %s%s\n", e.name, humanize.IBytes(uint64(e.size)), path, rest)
}

// tellUnwritten says of damage in a conversation that is not written now, and why not.
func (x *exporting) tellUnwritten(name string, hurt *damage, why string) error {
	x.damaged++
	return x.report.line(map[string]any{"conversation": name, "file": nil, "bytes": 0, "damaged": hurt},
		"%s: %s, DAMAGED: %v; run historyd check\n", name, why, hurt)
}

func (x *exporting) toFile(ctx context.Context, path, name string) error {
	e, to, err := x.write(ctx, path, name, exportedFile{}, func(w io.Writer) io.Writer { return &passing{w, 0, x.progress} })
	if err != nil {
		return err
	}
	return x.tell(e, to, keptBy(path, to))
}

// write writes a conversation to a file, or beside it, and returns where. there is what is known of the file at
// path.
func (x *exporting) write(ctx context.Context, path, name string, there exportedFile, through func(io.Writer) io.Writer) (e exported, to string, err error) {
	to, err = writePlaced(path, func(f *os.File) (string, error) {
		if e, err = x.fetch(ctx, name, through(f)); err != nil {
			return "", err
		}
		e.short = there.shortened(e.version)
		e.hurt = e.hurt.plus(e.short)
		told := e.short == nil && (x.format == "native" || x.format == "tar")
		return x.place(path, replacing(f, e.hurt, x.format, told)), nil
	})
	return e, to, err
}

// place is placeFor, and tells when that is the place of a file which had what the export lacks.
func (x *exporting) place(path string, replaces func(path string) bool) string {
	to, over := placeFor(path, replaces)
	if over {
		fmt.Fprintf(x.errors, "historyd: %s is replaced, though it has what this export lacks: it is the last that may be beside %s; move them away\n", to, path)
	}
	return to
}

// keptBy is the file at path when something was written elsewhere instead.
func keptBy(path, to string) string {
	if path == to {
		return ""
	}
	return path
}

// A passing tells how much of one file is written. How much there will be nobody knows.
type passing struct {
	io.Writer
	n        int64
	progress *progress
}

func (p *passing) Write(b []byte) (int, error) {
	n, err := p.Writer.Write(b)
	p.n += int64(n)
	p.progress.at(p.n, p.n)
	return n, err
}

// manifestName is the file in a directory of exports that says of which version and in
// which format each file is. It may be lost: then everything is written again.
const manifestName = ".historyd-export.json"

type manifest struct {
	// Caller is whose conversations they are, so that those of another caller don't
	// take the place of files of the same name.
	Caller *caller                 `json:"caller,omitzero"`
	Files  map[string]exportedFile `json:"files"`
}

type exportedFile struct {
	Version string `json:"version"`
	Format  string `json:"format"`
	Size    int64  `json:"size"`
	Lost    int64  `json:"lost,omitzero"` // messages at the end that only this file has
}

// saveEvery is after how many files the manifest is saved.
const saveEvery = 200

func (x *exporting) toDirectory(ctx context.Context, dir string, names []string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	known := manifest{}
	if text, err := os.ReadFile(filepath.Join(dir, manifestName)); err == nil {
		_ = json.Unmarshal(text, &known) // an unreadable one is none
	}
	if known.Files == nil {
		known.Files = map[string]exportedFile{}
	}
	who, err := x.client.whoami(ctx)
	if err != nil {
		return err
	}
	if known.Caller != nil && *known.Caller != who {
		return fmt.Errorf("%s holds conversations of the %s %q: choose another directory for those of the %s %q",
			dir, known.Caller.Kind, known.Caller.ID, who.Kind, who.ID)
	}
	known.Caller = &who
	save := func() error {
		return writeWhole(filepath.Join(dir, manifestName), func(w io.Writer) error {
			return json.MarshalWrite(w, known, json.Deterministic(true), jsontext.WithIndent("  "))
		})
	}
	for i, name := range names {
		err := x.update(ctx, dir, name, known)
		if err == nil && i%saveEvery == saveEvery-1 {
			err = save()
		}
		if err != nil {
			return errors.Join(err, save())
		}
		x.progress.at(int64(i+1), int64(len(names)))
	}
	return save()
}

// update writes the file of a conversation unless it is of the version that is there.
func (x *exporting) update(ctx context.Context, dir, name string, known manifest) error {
	file := name + exportEndings[x.format]
	path := filepath.Join(dir, file)
	there, listed := known.Files[file]
	info, err := os.Stat(path)
	if err != nil {
		there, listed = exportedFile{}, false // moved away
	}
	if listed && there.Lost == 0 && there.Format == x.format && info.Mode().IsRegular() && info.Size() == there.Size {
		version, hurt, err := x.client.state(ctx, name)
		if err == nil && version != "" && version == there.Version {
			x.same++
			if hurt != nil { // since that file was written
				return x.tellUnwritten(name, hurt, "unchanged, and whole in "+path)
			}
			return nil
		}
	}
	e, to, err := x.write(ctx, path, name, there, func(w io.Writer) io.Writer { return w })
	switch {
	case isGone(err):
		x.gone++
		return nil
	case isUnreadable(err):
		return x.tellUnwritten(name, &damage{Places: 1}, "nothing of it can be read")
	case err != nil:
		return err
	}
	// Only what is whole is known, so that damage is told by each run.
	if e.hurt == nil {
		known.Files[file] = exportedFile{Version: e.version, Format: x.format, Size: e.size}
	} else if to == path {
		delete(known.Files, file)
	} else if e.short != nil {
		there.Lost = e.short.Lost
		known.Files[file] = there
	}
	return x.tell(e, to, keptBy(path, to))
}

func isGone(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.status == http.StatusNotFound
}

// manyRecord is in the entries of an archive of many conversations, so that one named
// history is not taken for the beginning of the archive of a single one.
const manyRecord = "HISTORYD.conversation"

// toArchive writes one file with an entry for each conversation.
func (x *exporting) toArchive(ctx context.Context, path string, names []string) error {
	var all []exported
	to, err := writePlaced(path, func(f *os.File) (string, error) {
		archive := tar.NewWriter(f)
		// The size of an entry stands before it, so each is gathered in a file first.
		spool, err := os.CreateTemp(filepath.Dir(path), ".historyd-*")
		if err != nil {
			return "", err
		}
		defer func() { _ = spool.Close(); _ = os.Remove(spool.Name()) }()
		hurt := map[string]*damage{}
		for i, name := range names {
			e, err := x.archive(ctx, archive, spool, name)
			switch {
			case isGone(err):
				x.gone++
			case isUnreadable(err):
				hurt[name] = ruined()
				err = x.tellUnwritten(name, &damage{Places: 1}, "nothing of it can be read")
			case err == nil:
				if all = append(all, e); e.hurt != nil {
					hurt[name] = e.hurt
				}
			}
			if err != nil && !isGone(err) {
				return "", err
			}
			x.progress.at(int64(i+1), int64(len(names)))
		}
		return x.place(path, replacingArchive(names, hurt, x.unnamed > 0)), archive.Close()
	})
	for _, e := range all {
		if err == nil {
			err = x.tell(e, to+"/"+e.name+exportEndings[x.format], keptBy(path, to))
		}
	}
	return err
}

// archive writes one entry.
func (x *exporting) archive(ctx context.Context, w *tar.Writer, spool *os.File, name string) (exported, error) {
	if err := errors.Join(spool.Truncate(0), rewindFile(spool)); err != nil {
		return exported{}, err
	}
	e, err := x.fetch(ctx, name, spool)
	if err == nil {
		err = rewindFile(spool)
	}
	if err != nil {
		return e, err
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name + exportEndings[x.format], Size: e.size, Mode: 0o600, ModTime: time.Now(),
		PAXRecords: map[string]string{manyRecord: name}}
	if e.hurt != nil {
		text, err := json.Marshal(e.hurt)
		if err != nil {
			return e, err
		}
		h.PAXRecords[damagedRecord] = string(text)
	}
	if err := w.WriteHeader(h); err != nil {
		return e, err
	}
	_, err = io.Copy(w, spool)
	return e, err
}

func rewindFile(f *os.File) error {
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// writeWhole writes a file beside its place and puts it there when it is complete.
func writeWhole(path string, write func(io.Writer) error) error {
	_, err := writePlaced(path, func(f *os.File) (string, error) { return path, write(f) })
	return err
}

// A report prints what became of each conversation, for people or for programs.
type report struct {
	w      io.Writer
	asJSON bool
}

func (r report) line(v map[string]any, format string, args ...any) error {
	if !r.asJSON {
		_, err := fmt.Fprintf(r.w, format, args...)
		return err
	}
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return err
	}
	_, err = r.w.Write(slices.Concat(text, []byte{'\n'}))
	return err
}
