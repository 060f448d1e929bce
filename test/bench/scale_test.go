package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkLength compares a conversation of a million messages with one of a
// thousand: the first replay after a restart, a page from the middle, an append.
// Each figure is the median of pairs taken in turn.
func BenchmarkLength(b *testing.B) {
	if testing.Short() {
		b.Skip("SKIPPED: writes a million messages")
	}
	d := startDaemon(b)
	defer func() { d.stop() }()
	const short, long = 1_000, 1_000_000
	names := map[string]int{"short": short, "long": long}
	for name, n := range names {
		fill(b, d, name, n)
	}
	var first, page, add []float64
	for range 15 {
		d.restart(b)
		c := dial(b, d.addr)
		cost := map[string]map[string]float64{}
		for _, name := range []string{"short", "long"} {
			// Another conversation first, so that nobody pays for the connection.
			measure(b, c, d.request("GET", "/v1/conversations/none/replay", nil), 200)
			cost[name] = map[string]float64{
				"replay": measure(b, c, d.request("GET", "/v1/conversations/"+name+"/replay", nil), 200),
				"page":   measure(b, c, d.request("GET", fmt.Sprintf("/v1/conversations/%s/messages?after=%d", name, names[name]/2), nil), 200),
			}
			var appends []float64
			for range 9 {
				appends = append(appends, measure(b, c, d.request("POST", "/v1/conversations/"+name+"/turns", message(1)), 201))
			}
			cost[name]["append"] = median(appends)
		}
		first = append(first, cost["long"]["replay"]/cost["short"]["replay"])
		page = append(page, cost["long"]["page"]/cost["short"]["page"])
		add = append(add, cost["long"]["append"]/cost["short"]["append"])
	}
	b.ReportMetric(median(first), "first-replay-ratio")
	b.ReportMetric(median(page), "page-ratio")
	b.ReportMetric(median(add), "append-ratio")
	b.ReportMetric(0, "ns/op")
}

func measure(b *testing.B, c *client, request []byte, want int) float64 {
	b.Helper()
	start := time.Now()
	status, _, err := c.do(request)
	took := time.Since(start).Seconds()
	if err != nil || status != want {
		b.Fatalf("status %d, want %d: %v", status, want, err)
	}
	return took
}

// message is an append of n messages that alternate between user and assistant.
func message(n int) []byte {
	var body bytes.Buffer
	body.WriteString(`{"messages":[`)
	for i := range n {
		if i > 0 {
			body.WriteByte(',')
		}
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		fmt.Fprintf(&body, `{"role":"%s","content":"%d %s"}`, role, i, strings.Repeat("word ", 60))
	}
	body.WriteString("]}")
	return body.Bytes()
}

// fill appends n messages, 20 at a time.
func fill(b *testing.B, d *daemon, name string, n int) {
	b.Helper()
	c := dial(b, d.addr)
	request := d.request("POST", "/v1/conversations/"+name+"/turns", message(20))
	for range n / 20 {
		if status, _, err := c.do(request); err != nil || status != 201 {
			b.Fatalf("append: status %d, %v", status, err)
		}
	}
}

// BenchmarkTouched reports the memory of the daemon after 10,000 conversations were
// appended to and replayed, and how long it takes to start with them.
func BenchmarkTouched(b *testing.B) {
	d := startDaemon(b)
	defer func() { d.stop() }()
	start := time.Now()
	d.restart(b)
	empty := time.Since(start)
	c := dial(b, d.addr)
	body := message(6)
	for i := range 10_000 {
		path := fmt.Sprintf("/v1/conversations/c%d", i)
		for request, want := range map[string]int{
			string(d.request("POST", path+"/turns", body)): 201, string(d.request("GET", path+"/replay", nil)): 200,
		} {
			if status, _, err := c.do([]byte(request)); err != nil || status != want {
				b.Fatalf("status %d, want %d: %v", status, want, err)
			}
		}
	}
	b.ReportMetric(peakMemory(b, d.cmd), "MiB-peak")
	// The first start after so much was written has the file system write it home.
	start = time.Now()
	d.restart(b)
	b.ReportMetric(time.Since(start).Seconds()/empty.Seconds(), "first-start-ratio")
	start = time.Now()
	d.restart(b)
	b.ReportMetric(time.Since(start).Seconds()/empty.Seconds(), "start-ratio")
	b.ReportMetric(0, "ns/op")
}

// peakMemory is the largest resident set of a process so far.
func peakMemory(b *testing.B, cmd *exec.Cmd) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		b.Skipf("SKIPPED: no /proc here: %v", err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		b.Fatal(err)
	}
	return float64(kb) / 1024
}
