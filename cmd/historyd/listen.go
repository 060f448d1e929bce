package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"github.com/coreos/go-systemd/v22/activation"
)

// endpoint is a listener that is open, and where it is.
type endpoint struct {
	net.Listener
	gate    *limitListener
	network string // tcp or unix
	secure  bool   // speaks TLS
	address string // host:port, or the path of the socket
}

// url is what a client has to know.
func (e endpoint) url() string {
	switch {
	case e.network == "unix":
		return "unix:" + e.address
	case e.secure:
		return "https://" + e.address
	default:
		return "http://" + e.address
	}
}

// openEndpoints opens all that the daemon serves on: the sockets inherited from
// systemd or, without any, those of the configuration. The caller closes them.
func openEndpoints(ctx context.Context, s *settings, inherited []net.Listener) (open []endpoint, err error) {
	defer func() {
		if err != nil {
			for _, e := range open {
				_ = e.Close() // the first error is the one to tell
			}
			open = nil
		}
	}()
	secure, err := tlsConfig(s)
	if err != nil {
		return nil, err
	}
	bare := inherited
	if len(bare) == 0 {
		bare, err = bareListeners(ctx, s, secure != nil)
	}
	for _, l := range bare {
		gate := newLimitListener(l, s.Limits.Connections)
		e := endpoint{
			Listener: gate,
			gate:     gate,
			network:  l.Addr().Network(),
			address:  l.Addr().String(),
		}
		if e.network == "tcp" && secure != nil {
			e.Listener, e.secure = tls.NewListener(e.Listener, secure), true
		}
		open = append(open, e)
	}
	if err != nil {
		return open, err
	}
	for _, e := range open {
		switch a := e.Addr().(type) {
		case *net.UnixAddr:
		case *net.TCPAddr:
			if !e.secure && !a.AddrPort().Addr().Unmap().IsLoopback() {
				return open, fmt.Errorf("listen on %s: %w", e.address, errNotLoopback)
			}
		default:
			return open, fmt.Errorf("listen on %s: neither TCP nor a unix socket", e.address)
		}
	}
	if len(open) == 0 {
		return nil, errors.New("nothing to listen on: set listen.tcp or listen.unix")
	}
	return open, nil
}

// errNotLoopback refuses to speak in the clear to other machines.
var errNotLoopback = errors.New("only a loopback address is served without TLS: set tls.cert and tls.key, or listen on 127.0.0.1")

// inheritedSockets are those that systemd has opened for us.
type inheritedSockets struct {
	api   []net.Listener
	debug net.Listener // nil without one
}

// debugName is the FileDescriptorName= of the socket that profiles are served
// on. Any other name is of the API: systemd's default is that of the unit.
const debugName = "debug"

// inheritSockets takes what systemd has opened for us; once, for what starts from
// us must not take them, too. After an error it returns those that are open.
func inheritSockets() (in inheritedSockets, err error) {
	for _, f := range activation.Files(true) {
		name := f.Name()
		l, lerr := net.FileListener(f)
		lerr = errors.Join(lerr, f.Close()) // the listener has a descriptor of its own
		switch {
		case lerr != nil:
			err = errors.Join(err, fmt.Errorf("inherited sockets: %s is no listening stream socket: %w", name, lerr))
		case name != debugName:
			in.api = append(in.api, l)
		case in.debug != nil:
			err = errors.Join(err, errors.New("inherited sockets: two are called "+debugName), l.Close())
		default:
			in.debug = l
		}
	}
	return in, err
}

// close gives up what was inherited.
func (in *inheritedSockets) close() {
	if in.debug != nil {
		in.api = append(in.api, in.debug)
	}
	for _, l := range in.api {
		_ = l.Close() // systemd keeps its own
	}
}

// unused names the keys that say where to listen and are not followed, because
// systemd has opened something else.
func (s *settings) unused(in *inheritedSockets) []string {
	var list []string
	if len(in.api) == 0 {
		return nil
	}
	for _, k := range keys {
		if !isWithin(k.path, "listen") || s.from[k.path] == "default" {
			continue
		}
		value := k.of(&s.Config).String()
		if value != "" && !slices.ContainsFunc(in.api, func(l net.Listener) bool { return l.Addr().String() == value }) {
			list = append(list, k.path)
		}
	}
	return list
}

// bareListeners opens the sockets. After an error it returns those that are open.
func bareListeners(ctx context.Context, s *settings, secure bool) ([]net.Listener, error) {
	var open []net.Listener
	if s.Listen.TCP != "" {
		l, err := listenTCP(ctx, s.Listen.TCP, secure)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: is another historyd running? choose another port with --listen or HISTORYD_LISTEN_TCP", err)
		}
		if errors.Is(err, syscall.EAFNOSUPPORT) {
			err = fmt.Errorf("%w: this process may open none: start historyd.socket, which opens it", err)
		}
		if err != nil {
			return open, fmt.Errorf("listen.tcp: %w", err)
		}
		open = append(open, l)
	}
	if s.Listen.Unix != "" {
		access, err := s.socketAccess()
		if err != nil {
			return open, err
		}
		l, err := listenUnix(ctx, s.Listen.Unix, access)
		if err != nil {
			return open, fmt.Errorf("listen.unix: %w", err)
		}
		open = append(open, l)
	}
	return open, nil
}

// listenTCP opens a TCP listener. A name is looked up here and the address
// used, so that what was checked is what is listened on. The caller names the key
// that the address is from, as with listenUnix.
func listenTCP(ctx context.Context, address string, secure bool) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	if secure {
		return lc.Listen(ctx, "tcp", address)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var chosen netip.Addr
	for _, ip := range ips {
		if ip = ip.Unmap(); !ip.IsLoopback() {
			return nil, fmt.Errorf("%s: %w", address, errNotLoopback)
		}
		if !chosen.IsValid() || ip.Is4() && !chosen.Is4() {
			chosen = ip
		}
	}
	return lc.Listen(ctx, "tcp", net.JoinHostPort(chosen.String(), port))
}

// tlsConfig is nil without TLS.
func tlsConfig(s *settings) (*tls.Config, error) {
	if s.TLS.Cert == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(s.TLS.Cert, s.TLS.Key)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if s.TLS.ClientCA != "" {
		pem, err := os.ReadFile(s.TLS.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("tls.client_ca: %w", err)
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("tls.client_ca: no certificate in it")
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return c, nil
}
