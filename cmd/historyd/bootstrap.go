package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
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

// announce prints where the daemon listens, an endpoint a line. With the id of
// an operator it prints two lines to paste besides, or one that makes the token
// they take when that is not there.
func (d *daemon) announce(out io.Writer, operator string) error {
	var text strings.Builder
	for _, e := range d.endpoints {
		fmt.Fprintf(&text, "historyd listens on %s\n", e.url())
	}
	token := filepath.Join(d.settings.DataDir, tokenFile)
	switch {
	case operator == "":
	case !d.hasTokenFile():
		// The new file takes the place of one that others may have read.
		fmt.Fprintf(&text, "\nThere is no token to use in %s. To make one:\n\n(umask 077; %s > %s && mv %[3]s %[1]s)\n\n",
			quote(token), d.settings.tokenCommand(operator), quote(token+".new"))
	default:
		fmt.Fprintf(&text, "\nRecord a turn, then replay it:\n\n%s\n\n%s\n\n",
			curl(d.endpoints[0], token, "/v1/history/turns", sampleTurn),
			curl(d.endpoints[0], token, "/v1/history/replay", ""))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// tokenCommand is a line for a POSIX shell that makes a token of an operator.
func (s *settings) tokenCommand(id string) string {
	words := []string{quote(os.Args[0]), "token create"}
	if s.file != "" {
		words = append(words, "--config", quote(s.file))
	}
	words = append(words, "--data-dir", quote(s.DataDir), "--kind", string(identity.Operator), "--id", quote(id))
	return strings.Join(words, " ")
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
