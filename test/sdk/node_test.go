package sdk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"historyd/internal/wire"
	"historyd/test/replay"
)

func TestClientsForNodeSendReplaysAsTheyAre(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("SKIPPED: there is no node")
	}
	if _, err := os.Stat(filepath.Join("node", "node_modules", "openai")); err != nil {
		t.Skip("SKIPPED: the clients for Node are not there: make sdk fetches them")
	}
	var lines bytes.Buffer
	n := 0
	for _, f := range []wire.Format{wire.OpenAI, wire.Responses, wire.Anthropic} {
		requests(t, f, func(name string, r replay.Request) {
			n++
			line, err := json.Marshal(map[string]any{
				"name": name, "format": f, "messages": json.RawMessage(r.Messages),
				"system": json.RawMessage(orNull(r.System)), "tools": json.RawMessage(orNull(r.Tools)),
			})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			// A member that is not there is something else than null.
			for _, none := range []string{`,"system":null`, `,"tools":null`} {
				line = bytes.Replace(line, []byte(none), nil, 1)
			}
			lines.Write(append(line, '\n'))
		})
	}
	cmd := exec.Command(node, "replays.mjs")
	cmd.Dir, cmd.Stdin, cmd.Stderr = "node", &lines, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v\n%s", err, out)
	}
	told := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(told) > 1 || told[0] != fmt.Sprintf("sent %d", n) {
		t.Errorf("got\n%s\nwant %d replays sent as they are", strings.Join(told[:min(len(told), 20)], "\n"), n)
	}
}

func orNull(v []byte) []byte {
	if v == nil {
		return []byte("null")
	}
	return v
}
