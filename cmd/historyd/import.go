package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	gopath "path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"historyd/internal/identity"
)

func newImportCommand() *cobra.Command {
	i := &importing{}
	cmd := &cobra.Command{
		Use:   "import PATH...",
		Short: "build conversations of a caller from files",
		Long: "Build conversations of the caller from files that export wrote, or from messages of a provider:\n" +
			"files, directories of such, and archives. The daemon must be running. The conversation has the\n" +
			"name of its file without the ending; - is the standard input.\n\n" +
			"Each conversation comes in whole or not at all, through the same redaction as a turn. With the\n" +
			"default mode, append, a second run adds nothing twice, and so goes on where one was broken off.\n" +
			"A file that is refused does not keep the others from being read; the exit code is 1 then.\n" +
			"One whose export met damage is told, for messages are missing in it. With .damaged behind its\n" +
			"name it is taken when it is named itself, not as a file of a directory.\n\n" +
			"What a tool was called with and answered is withheld when nothing gives the tool a category: not\n" +
			"the daemon's configuration, and not the file, which may be an object with tool_categories before\n" +
			"its messages: {\"tool_categories\": {\"wallet_*\": \"wallet\", \"*\": \"general\"}, \"messages\": [...]}.\n" +
			"Files that export wrote as native or tar have it; a list, or a file of lines, has no place for it.",
		Example: "  historyd import backup/\n" +
			"  historyd import backup.tar --token-file ~/me.token\n" +
			"  historyd import messages.json --format openai --conversation chat-7",
		Args: func(_ *cobra.Command, paths []string) error {
			switch {
			case len(paths) == 0:
				return usageError{errors.New("PATH is missing")}
			case i.mode != "append" && i.mode != "create" && i.mode != "replace":
				return usageError{errors.New("--mode is append, create or replace")}
			case i.format != "" && exportEndings[i.format] == "":
				return usageError{errors.New("--format is native, jsonl, tar, openai, anthropic, responses or gemini")}
			case i.name != "" && !identity.ValidConversation(i.name):
				return usageError{fmt.Errorf("--conversation: %q is no name of a conversation", i.name)}
			case i.name == "" && slices.Contains(paths, "-"):
				return usageError{errors.New("the standard input needs --conversation NAME")}
			case i.name != "" && len(paths) > 1:
				return usageError{errors.New("--conversation is for one file")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, paths []string) error {
			var err error
			if i.client, err = newClient(cmd); err != nil {
				return err
			}
			i.report.w, i.errors, i.stdin = cmd.OutOrStdout(), cmd.ErrOrStderr(), cmd.InOrStdin()
			i.progress = newProgress(cmd.ErrOrStderr(), "byte", "sent")
			files, err := i.files(paths)
			if err != nil {
				return err
			}
			err = i.run(cmd.Context(), files)
			i.progress.end()
			return errors.Join(err, i.summary(err))
		},
	}
	addClientFlags(cmd)
	cmd.Flags().StringVar(&i.mode, "mode", "append", "`MODE` of each import: append, create (refuse what is there already) or replace")
	cmd.Flags().StringVar(&i.format, "format", "", "`FORMAT` of the files (default by their endings: .json native, .jsonl, .tar)")
	cmd.Flags().StringVar(&i.name, "conversation", "", "`NAME` of the conversation, for one file")
	cmd.Flags().BoolVar(&i.repair, "repair", false, "leave out what cannot be right instead of refusing a file")
	cmd.Flags().BoolVar(&i.report.asJSON, "json", false, "print a JSON object for each conversation, then the summary")
	return cmd
}

// An importing is one run of the command.
type importing struct {
	client       *client
	mode, format string
	name         string
	repair       bool
	stdin        io.Reader
	errors       io.Writer
	progress     *progress
	report       report

	done, failed  int64 // conversations
	damaged       int64 // of done, by what their files say
	added, had    int64 // messages
	sent, planned int64 // bytes
	hopeless      bool  // the daemon is not there or takes nothing: no other file is tried
}

// An input is one file or entry to import.
type input struct {
	path   string // as people know it
	ending string
	name   string  // of the conversation
	size   int64   // -1 when unknown
	hurt   *damage // that its entry in an archive tells of
	// open may be called again when again is true.
	open  func() (io.ReadCloser, error)
	again bool
}

// files returns the files that paths name.
func (i *importing) files(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		found, err := filesOf(path)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	if i.name != "" && len(files) > 1 {
		return nil, usageError{fmt.Errorf("--conversation is for one file, and %s holds %d", paths[0], len(files))}
	}
	return files, nil
}

func (i *importing) run(ctx context.Context, files []string) error {
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			i.planned += info.Size()
		}
	}
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := i.file(ctx, file)
		if ctx.Err() != nil {
			return ctx.Err() // nobody refused it
		}
		if err != nil {
			i.refuse(file, err)
		}
		if i.hopeless {
			return nil
		}
	}
	return nil
}

// filesOf returns the files to import that a path names.
func filesOf(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") && slices.Contains(importEndings, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if files == nil {
		return nil, fmt.Errorf("%s holds no .json, .jsonl or .tar file", path)
	}
	return files, nil
}

var importEndings = []string{".json", ".jsonl", ".tar"}

func (i *importing) file(ctx context.Context, path string) error {
	if path == "-" {
		return i.send(ctx, input{path: "standard input", name: i.name, size: -1, ending: exportEndings[i.format],
			open: func() (io.ReadCloser, error) { return io.NopCloser(i.stdin), nil }})
	}
	whole := withoutDamagedEnding(path)
	if filepath.Ext(whole) == ".tar" && (i.format == "" || i.format == "tar") {
		many, err := holdsMany(path)
		if err != nil {
			return err
		}
		if many {
			return i.archive(ctx, path)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	in := input{path: path, ending: filepath.Ext(whole), name: i.name, size: info.Size(), again: true,
		open: func() (io.ReadCloser, error) { return os.Open(path) }}
	if !info.Mode().IsRegular() {
		in.size, in.again = -1, false // a pipe is read once
	}
	if in.name == "" {
		in.name = strings.TrimSuffix(filepath.Base(whole), in.ending)
	}
	return i.send(ctx, in)
}

// holdsMany reports whether an archive is of conversations, and not one itself.
func holdsMany(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	first := true
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		switch {
		case errors.Is(err, io.EOF) && first:
			return false, errors.New("the archive is empty")
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil && first:
			return false, fmt.Errorf("no archive: %w", err)
		case err != nil:
			return false, fmt.Errorf("the archive cannot be read on: %w", err)
		case h.Typeflag == tar.TypeDir:
			continue
		}
		name := gopath.Clean(h.Name)
		if _, many := h.PAXRecords[manyRecord]; many || first && name != "history.json" || !first && !strings.HasPrefix(name, "attachments/") {
			return true, nil
		}
		first = false
	}
}

// archive imports each entry of an archive of conversations.
func (i *importing) archive(ctx context.Context, path string) error {
	if i.name != "" {
		return errors.New("--conversation is for one conversation, and the archive holds many")
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the archive cannot be read on: %w", err)
		}
		entry := gopath.Clean(h.Name) // as ./a.json
		ending := filepath.Ext(entry)
		if h.Typeflag == tar.TypeDir || entry == manifestName {
			continue
		}
		if h.Typeflag != tar.TypeReg || !slices.Contains(importEndings, ending) {
			i.refuse(path+"/"+h.Name, errors.New("no .json, .jsonl or .tar file"))
			continue
		}
		in := input{path: path + "/" + h.Name, ending: ending, size: h.Size, hurt: saidInEntry(h),
			name: strings.TrimSuffix(entry, ending),
			open: func() (io.ReadCloser, error) { return io.NopCloser(r), nil }}
		err = i.send(ctx, in)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			i.refuse(in.path, err)
		}
		if i.hopeless {
			return nil
		}
	}
}

func (i *importing) refuse(path string, err error) {
	i.failed++
	fmt.Fprintf(i.errors, "historyd: %s: %v\n", plain(path), err)
	var r *refusal
	if errors.As(err, &r) && r.status != http.StatusUnauthorized && r.status < 500 {
		return
	}
	var u *url.Error
	if errors.As(err, &r) || errors.As(err, &u) {
		i.hopeless = true
		fmt.Fprintln(i.errors, "historyd: the daemon takes no imports: nothing further was tried")
	}
}

// send imports one conversation.
func (i *importing) send(ctx context.Context, in input) error {
	if !identity.ValidConversation(in.name) {
		return errors.New("its name is none of a conversation: give one with --conversation")
	}
	before := i.sent
	for tries := 0; ; tries++ {
		i.sent = before // what is sent again is counted once
		body, err := in.open()
		if err != nil {
			return err
		}
		err = i.post(ctx, in, body)
		_ = body.Close()
		if !in.again || !again(ctx, err, tries) {
			return err
		}
	}
}

func (i *importing) post(ctx context.Context, in input, body io.Reader) error {
	format, r, err := i.formatOf(in, body)
	if err != nil {
		return err
	}
	contentType := "application/json"
	switch format {
	case "jsonl":
		contentType = "application/x-ndjson"
	case "tar":
		contentType = "application/x-tar"
	}
	path := fmt.Sprintf("/import?format=%s&mode=%s&repair=%t", format, i.mode, i.repair)
	along := overhear(format)
	sent := counted{io.TeeReader(r, along), i}
	res, err := i.client.do(ctx, http.MethodPost, conversationPath(in.name, path), contentType, io.NopCloser(sent), in.size)
	said := along.end()
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if in.hurt == nil {
		in.hurt = said
	}
	var got struct {
		Imported     int64 `json:"imported"`
		Skipped      []any `json:"skipped"`
		SkippedTotal int64 `json:"skipped_total"`
		Repaired     []any `json:"repaired"`
		RepairedAll  int64 `json:"repaired_total"`
		LastSeq      int64 `json:"last_seq"`

		Changed map[string]int64 `json:"changed"`
	}
	if err := json.UnmarshalRead(res.Body, &got); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	had := max(got.SkippedTotal, int64(len(got.Skipped)))
	i.done++
	i.added += got.Imported
	i.had += had
	repaired := max(got.RepairedAll, int64(len(got.Repaired)))
	line := map[string]any{
		"conversation": in.name, "file": in.path, "imported": got.Imported, "already_there": had,
		"repaired": repaired, "last_seq": got.LastSeq, "damaged": in.hurt.member(),
	}
	if in.hurt != nil {
		i.damaged++
		fmt.Fprintf(i.errors, "historyd: %s: its export was DAMAGED: %v; an older one may have more\n", plain(in.path), in.hurt)
	}
	if len(got.Changed) > 0 {
		line["changed"] = got.Changed
	}
	return i.report.line(line, "%s: %s added, %d there already%s\n", in.name, count(got.Imported, "message"), had, altered(repaired, got.Changed))
}

// altered tells what is not in the record as it is in the file.
func altered(repaired int64, changed map[string]int64) string {
	var told strings.Builder
	if repaired > 0 {
		fmt.Fprintf(&told, ", %d repaired", repaired)
	}
	for _, action := range slices.Sorted(maps.Keys(changed)) {
		fmt.Fprintf(&told, ", %d %s", changed[action], action)
	}
	return told.String()
}

// formatOf says what is in a file: what --format says, or what its ending does. A list
// in a .json file is of some provider, and nobody should guess which.
func (i *importing) formatOf(in input, body io.Reader) (string, io.Reader, error) {
	r := bufio.NewReader(body)
	if i.format != "" {
		return i.format, r, nil
	}
	switch in.ending {
	case ".jsonl":
		return "jsonl", r, nil
	case ".tar":
		return "tar", r, nil
	}
	head, _ := r.Peek(512)
	switch head = bytes.TrimLeft(head, " \t\r\n"); {
	case len(head) == 0 || head[0] == '{' || bytes.HasPrefix(head, []byte("\ufeff")): // the daemon tells of the mark
	case head[0] != '[':
		return "", nil, errors.New("it is no object of JSON: import takes what export wrote (.json, .jsonl, .tar), or the messages of a provider as JSON with --format")
	default:
		return "", nil, errors.New("it is a list of messages: say of which provider with --format openai, anthropic, responses or gemini")
	}
	return "native", r, nil
}

// counted tells how far the reading of the files has come.
type counted struct {
	io.Reader
	i *importing
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.i.sent += int64(n)
	c.i.progress.at(c.i.sent, max(c.i.planned, c.i.sent))
	return n, err
}

// summary tells what was done; ended is why not all of it was.
func (i *importing) summary(ended error) error {
	damaged := ""
	if i.damaged > 0 {
		damaged = fmt.Sprintf(", %d of a damaged export", i.damaged)
	}
	err := i.report.line(map[string]any{"summary": map[string]int64{
		"conversations": i.done, "failed": i.failed, "imported": i.added, "already_there": i.had, "damaged": i.damaged,
	}}, "%s: %s added, %d there already, %d failed%s\n",
		count(i.done, "conversation"), count(i.added, "message"), i.had, i.failed, damaged)
	if i.failed > 0 && ended == nil {
		return errors.Join(err, errUnsound)
	}
	return err
}
