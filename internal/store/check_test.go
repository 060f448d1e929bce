package store

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"historyd/internal/durable"
)

// spoiling puts something wrong into a data directory. at says where a name of it is.
type spoiling func(at func(name string) string) error

func write(name string, mode os.FileMode) spoiling {
	return func(at func(string) string) error {
		return errors.Join(os.WriteFile(at(name), []byte("x"), 0o600), os.Chmod(at(name), mode))
	}
}

func mkdir(name string, mode os.FileMode) spoiling {
	return func(at func(string) string) error {
		return errors.Join(os.Mkdir(at(name), 0o700), os.Chmod(at(name), mode))
	}
}

func link(name string) spoiling {
	return func(at func(string) string) error { return os.Symlink("..", at(name)) }
}

func loosen(name string) spoiling {
	return func(at func(string) string) error { return os.Chmod(at(name), 0o755) }
}

// pictured is a data directory on disk with one conversation, of a message with an attachment.
func pictured(t *testing.T) (dir, conversation string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := onDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	attach(t, s.Log(ann, "a"), "1", []byte("what it is"))
	return dir, s.dirOf(transcriptKey{ann, "a"})
}

func TestCheckTellsEachFaultOfADirectoryOnce(t *testing.T) {
	t.Parallel()
	const alone, stands = "move it away", "not a directory closed to others: "
	for _, tt := range []struct {
		name   string
		spoil  spoiling
		kind   string
		path   string // below the data directory; CALLER and CONVERSATION stand for those of ann's
		detail string
		starts string // what the error of a start ends with; empty when a store opens
	}{
		{"a file beside the kinds", write("transcripts/x", 0o600), "unknown", "transcripts/x", alone, stands + alone},
		{"a loose file beside the kinds", write("transcripts/x", 0o644), "unknown", "transcripts/x", alone, stands + alone},
		{"a loose directory beside the kinds", mkdir("transcripts/x", 0o755), "unknown", "transcripts/x", alone, stands + alone},
		{"a link beside the kinds", link("transcripts/x"), "unknown", "transcripts/x", alone, stands + alone},
		{"a copy of a kind", func(at func(string) string) error {
			return errors.Join(os.CopyFS(at("transcripts/operator.bak"), os.DirFS(at("transcripts/operator"))), os.Chmod(at("transcripts/operator.bak"), 0o700))
		}, "unknown", "transcripts/operator.bak", "no clear reaches what lies in it", ""},
		{"a file for a kind", write("transcripts/mesh", 0o600), "unsafe", "transcripts/mesh", alone, stands + alone},
		{"a link for a kind", link("transcripts/mesh"), "unsafe", "transcripts/mesh", "neither a file nor a directory", stands + alone},
		{"a loose kind", loosen("transcripts/operator"), "unsafe", "transcripts/operator", "chmod go= it", stands + "chmod go= it"},
		{"loose transcripts", loosen("transcripts"), "unsafe", "transcripts", "chmod go= it", "chmod 700 on it"},
		{"loose staging", loosen("staging"), "unsafe", "staging", "chmod go= it", "chmod 700 on it"},
		{"loose trash", loosen("trash"), "unsafe", "trash", "chmod go= it", "chmod 700 on it"},
		{"a file for a caller", write("transcripts/operator/zzz", 0o644), "unsafe", "transcripts/operator/zzz", alone, ""},
		{"a link for a caller", link("transcripts/operator/zzz"), "unsafe", "transcripts/operator/zzz", "neither a file nor a directory", ""},
		{"a caller of nothing", mkdir("transcripts/operator/zzz", 0o700), "", "", "", ""},
		{"a loose caller", loosen("CALLER"), "unsafe", "CALLER", "chmod go= it", ""},
		{"a file for a conversation", write("CALLER/zzz", 0o600), "unsafe", "CALLER/zzz", alone, ""},
		{"a link for a conversation", link("CALLER/zzz"), "unsafe", "CALLER/zzz", "neither a file nor a directory", ""},
		{"a conversation of nothing", mkdir("CALLER/zzz", 0o700), "", "", "", ""},
		{"a loose conversation", loosen("CONVERSATION"), "unsafe", "CONVERSATION", "chmod go= it", ""},
		{"loose attachments", loosen("CONVERSATION/attachments"), "unsafe", "CONVERSATION/attachments", "chmod go= it", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, conversation := pictured(t)
			places := strings.NewReplacer("CALLER", filepath.Dir(conversation), "CONVERSATION", conversation)
			at := func(name string) string { return filepath.Join(dir, places.Replace(name)) }
			if err := tt.spoil(at); err != nil {
				t.Fatal(err)
			}
			fsys, err := durable.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer fsys.Close()
			found, sum := check(t, fsys)
			want := []Finding{{places.Replace(tt.path), tt.kind, ""}}
			if tt.kind == "" {
				want = nil
			}
			if !slices.EqualFunc(found, want, func(got, want Finding) bool {
				return got.Path == want.Path && got.Kind == want.Kind && strings.Contains(got.Detail, tt.detail)
			}) {
				t.Errorf("check finds %q, want %q with %q", found, want, tt.detail)
			}
			if sum.Callers != 1 || sum.Conversations != 1 || sum.Messages != 1 || sum.Attachments != 1 {
				t.Errorf("check counts %+v", sum)
			}
			var surveyed []string
			if err := Survey(t.Context(), fsys, 0, func(s *Surveyed) error {
				surveyed = append(surveyed, s.Dir)
				return nil
			}, nil); err == nil && !slices.Equal(surveyed, []string{conversation}) {
				t.Errorf("a survey finds %q", surveyed)
			}
			s, err := onDisk(dir)
			if err == nil {
				_ = s.Close()
			}
			if (err == nil) != (tt.starts == "") || err != nil && (!errors.Is(err, durable.ErrUnsafe) || !strings.HasSuffix(err.Error(), tt.starts)) {
				t.Errorf("start: %v, want %q", err, tt.starts)
			}
		})
	}
}

// What cannot be read for the mode that is told is not told again as damage, which would frighten.
func TestWhatIsUnreadForItsModeIsNoDamage(t *testing.T) {
	for _, name := range []string{"00000001.jsonl", "attachments/*"} {
		dir, conversation := pictured(t)
		files, err := filepath.Glob(filepath.Join(dir, conversation, name))
		if err != nil || len(files) != 1 {
			t.Fatalf("%s: %q, %v", name, files, err)
		}
		if err := os.Chmod(files[0], 0o644); err != nil {
			t.Fatal(err)
		}
		fsys, err := durable.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		found, _ := check(t, fsys)
		_ = fsys.Close()
		if len(found) != 1 || found[0].Kind != "unsafe" || !strings.Contains(found[0].Detail, "chmod go= it") {
			t.Errorf("%s: check finds %q", name, found)
		}
	}
}
