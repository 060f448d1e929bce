package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"
	"strings"

	"historyd/internal/durable"
	"historyd/internal/identity"
)

// tokenFile, in the data directory, holds the token of the operator made by
// --bootstrap-operator. It may be lost, and should be once the token is
// elsewhere.
const tokenFile = "operator.token"

// bootstrap makes the first caller and writes its token to tokenFile. With
// callers there it does nothing.
func bootstrap(fsys durable.FS, callers *identity.File, registry *identity.Registry, operator string) error {
	if operator == "" || registry.Len() > 0 {
		return nil
	}
	caller, err := identity.NewCaller(string(identity.Operator), operator, "", "")
	if err != nil {
		return usageError{fmt.Errorf("--bootstrap-operator: %w", err)}
	}
	token, tokenID, err := callers.Create(identity.NewToken{Caller: caller})
	if err != nil {
		return fmt.Errorf("bootstrap operator: %w", err)
	}
	if err := durable.WriteFile(fsys, tokenFile, []byte(token+"\n")); err != nil {
		// Nobody has seen the token, so nobody would know to revoke it.
		return fmt.Errorf("bootstrap operator: %w (there is a caller now; make it a token with historyd token create)",
			errors.Join(err, callers.Revoke(tokenID)))
	}
	return nil
}

// announce prints where the daemon listens, an endpoint a line, and with hints
// two lines to paste, when there is a token to use in them.
func (d *daemon) announce(out io.Writer, hints bool) error {
	var text strings.Builder
	for _, e := range d.endpoints {
		fmt.Fprintf(&text, "historyd listens on %s\n", e.url())
	}
	if hints && d.hasTokenFile() {
		token := filepath.Join(d.settings.DataDir, tokenFile)
		fmt.Fprintf(&text, "\nRecord a turn, then replay it:\n\n%s\n\n%s\n\n",
			curl(d.endpoints[0], token, "/v1/history/turns", sampleTurn),
			curl(d.endpoints[0], token, "/v1/history/replay", ""))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// hasTokenFile reports whether tokenFile is there, ours and closed to others.
func (d *daemon) hasTokenFile() bool {
	f, err := d.data.Open(tokenFile, false)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			d.log.Warn("operator token not usable", "file", tokenFile, "error", err)
		}
		return false
	}
	_ = f.Close()
	return true
}

const sampleTurn = `{"messages":[{"role":"user","content":"When do we meet?"},` +
	`{"role":"assistant","content":"On Thursday at ten."}]}`

// curl is a line for a POSIX shell that calls the daemon. The token comes from its
// file, so that it stands in no shell's history.
func curl(e endpoint, token, path, body string) string {
	words := []string{`curl -sS -w '\n' -H "Authorization: Bearer $(cat ` + quote(token) + `)"`}
	if body != "" {
		words = append(words, "-H 'Content-Type: application/json' -d", quote(body))
	}
	if e.network == "unix" {
		words = append(words, "--unix-socket", quote(e.address), quote("http://localhost"+path))
	} else {
		words = append(words, quote(strings.Replace(e.url(), e.address, reachable(e.address), 1)+path))
	}
	return strings.Join(words, " ")
}

// reachable is an address that a client on this machine can call.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		return net.JoinHostPort("localhost", port)
	}
	return address
}

// quote makes one word of a text for a POSIX shell.
func quote(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./:@", r)
	}) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
