package identity

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// dial returns both ends of a connection to a listener.
func dial(t *testing.T, network, address string) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

func TestThePeerOfAUnixSocketIsKnown(t *testing.T) {
	_, server := dial(t, "unix", filepath.Join(t.TempDir(), "s"))
	uid, ok := PeerUID(server)
	if want := uint32(os.Getuid()); !ok || uid != want {
		t.Errorf("got %d, %v, want %d", uid, ok, want)
	}
	server.Close()
	if _, ok := PeerUID(server); ok {
		t.Error("a closed connection has a peer")
	}
}

func TestNoOtherConnectionHasAPeer(t *testing.T) {
	_, tcp := dial(t, "tcp", "127.0.0.1:0")
	pipe, other := net.Pipe()
	defer other.Close()
	defer pipe.Close()
	for name, conn := range map[string]net.Conn{"tcp": tcp, "pipe": pipe} {
		if uid, ok := PeerUID(conn); ok {
			t.Errorf("%s: got uid %d", name, uid)
		}
	}
}
