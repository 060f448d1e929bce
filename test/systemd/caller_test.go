package systemd

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// caller appends without pause, on new connections, until it is stopped.
type caller struct {
	dials, refused atomic.Int64
	first          atomic.Pointer[string] // refusal
	acked          []string               // texts; read them after stop
	stop           func()                 // and wait
}

// startCaller makes one that appends by each kind of socket.
func startCaller(t *testing.T, bearer string) *caller {
	c := &caller{}
	ending := make(chan struct{})
	var running sync.WaitGroup
	var mu sync.Mutex // guards acked
	for _, network := range []string{"tcp", "unix"} {
		running.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ending:
					return
				default:
				}
				text := fmt.Sprintf("%s %s %d", t.Name(), network, i)
				conn, err := dial(network)
				c.dials.Add(1)
				if err != nil {
					c.refused.Add(1)
					why := network + ": " + err.Error()
					c.first.CompareAndSwap(nil, &why)
					continue
				}
				status, _, err := ask(conn, "POST", "/v1/conversations/"+network+"/turns", bearer,
					`{"messages":[{"role":"user","content":"`+text+`"}]}`)
				_ = conn.Close()
				if err == nil && status == http.StatusCreated {
					mu.Lock()
					c.acked = append(c.acked, text)
					mu.Unlock()
				}
			}
		})
	}
	c.stop = sync.OnceFunc(func() { close(ending); running.Wait() })
	t.Cleanup(c.stop)
	return c
}

// judge sees that nobody was refused, and that what was acknowledged is there.
func (c *caller) judge(t *testing.T, bearer string) {
	t.Helper()
	c.stop()
	if n := c.refused.Load(); n > 0 {
		t.Errorf("%d of %d connections were refused, the first by %s", n, c.dials.Load(), *c.first.Load())
	}
	if len(c.acked) == 0 {
		t.Error("nothing was acknowledged")
	}
	record := get(t, "tcp", "/v1/conversations/tcp/export", bearer) + get(t, "tcp", "/v1/conversations/unix/export", bearer)
	lost := 0
	for _, text := range c.acked {
		if !strings.Contains(record, `"`+text+`"`) {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d acknowledged messages are lost", lost, len(c.acked))
	}
	t.Logf("%d connections, %d refused; %d appends acknowledged, %d lost", c.dials.Load(), c.refused.Load(), len(c.acked), lost)
}
