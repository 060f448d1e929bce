package attack

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"historyd/test/canary"
)

// spoilt are an append that would be in order and what it may be when it is not: each is refused, and withheld all the same.
func spoilt(c canary.Carrier, messages string) map[string]string {
	body := string(c.Body(messages))
	return map[string]string{
		"cut off":                    body[:len(body)-3],
		"something behind":           body + messages,
		"a comma too many":           strings.Replace(body, `"messages":[`, `"messages":[,`, 1),
		"a name twice":               strings.Replace(body, `{`, `{"messages":[`+messages+`],`, 1),
		"a member of another case":   strings.Replace(body, `"messages"`, `"Messages"`, 1),
		"a member that is not known": strings.Replace(body, `{`, `{"x":[`+messages+`],`, 1),
		"a message that is none":     string(c.Body(messages + `,"` + canary.Word + `"`)),
		"no UTF-8":                   body[:len(body)-2] + "\xff" + body[len(body)-2:],
		"a number behind":            string(c.Body(messages + "," + strings.Repeat("4", 65))),
	}
}

// TestNothingWithheldIsEverWritten runs the daemon under strace. No call that gives bytes or a name to the kernel may hold
// a withheld value: none to a file, also not for a moment, and none to a client or a log.
func TestNothingWithheldIsEverWritten(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("SKIPPED: there is no strace: apt-get install strace")
	}
	if out, err := exec.Command(strace, "-qq", "-e", "trace=write", "true").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: strace can't trace here: %v: %s", err, out)
	}
	d := newTarget(t, nil)
	d.stop()
	trace := filepath.Join(t.TempDir(), "trace")
	d.start(nil, strace, "-f", "-qq", "-s", "10000000", "-o", trace, "-e",
		"trace=write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg,sendmmsg,vmsplice,openat,openat2,mkdirat,renameat,renameat2,linkat,symlinkat,unlinkat,setxattr,fsetxattr,execve,mmap")
	seen := map[string][]byte{}
	formats := map[string]bool{}
	for i, c := range canary.Carriers() {
		messages, path := canary.Put(c.Messages, i), "/v1/conversations/"+c.Format
		d.mallory.do(201, "POST", path+"/turns?format="+c.Format, c.Body(messages), "Idempotency-Key", fmt.Sprint(i))
		for how, body := range spoilt(c, messages) {
			for _, door := range []string{"/turns?", "/import?mode=append&"} {
				a, err := d.mallory.try("POST", path+door+"format="+c.Format, []byte(body))
				// Beside the list of an import there may be anything.
				fine := a.status >= 400 && a.status < 500 || a.status == 201 && door != "/turns?" && how == "a member that is not known"
				if err != nil || !fine {
					t.Errorf("carrier %d, %s, %s: %d %s, %v", i, how, door, a.status, a.body, err)
				}
			}
		}
		a, err := d.mallory.try("POST", path+"/turns?format="+c.Format, c.Body(messages), "Content-Type", "text/plain")
		if err != nil || a.status != 415 {
			t.Errorf("carrier %d as text: %d, %v", i, a.status, err)
		}
		formats[c.Format] = true
	}
	for format := range formats {
		path := "/v1/conversations/" + format
		d.mallory.do(201, "POST", path+"/turns", said("harmless"))
		for _, rest := range []string{"/messages?limit=1000", "/export", "/export?format=tar", "/replay?mode=full&format=openai", "/replay?mode=full&format=anthropic"} {
			d.mallory.do(200, "GET", path+rest, nil)
		}
		d.mallory.do(200, "POST", path+"/recall", []byte(`{"query":"what is harmless","store":true}`))
	}
	seen["the metrics"] = d.ann.do(200, "GET", "/metrics", nil)
	d.stop()
	d.check()
	calls, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	// Strace writes what it traced as C does: what was escaped already is as it was again.
	seen["a call"] = []byte(strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(string(calls)))
	seen["the log"], seen["the data directory"] = d.Log(), contents(t, d.dir)
	if n := bytes.Count(calls, []byte("harmless")); n < 20 {
		t.Errorf("strace saw no more than %d writes of what is not withheld", n)
	}
	t.Logf("%d calls traced, %d bytes", bytes.Count(calls, []byte("\n")), len(calls))
	canary.Absent(t, seen)
}
