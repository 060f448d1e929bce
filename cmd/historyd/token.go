package main

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"historyd/internal/durable"
	"historyd/internal/identity"
)

// openCallers finds the callers file of a command; the FS is closed by who asked.
type openCallers func(cmd *cobra.Command) (durable.FS, *identity.File, error)

// newTokenCommand returns "token" with "create", "list" and "revoke". They
// work on the callers file, so the daemon may be running or not.
func newTokenCommand(open openCallers) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "make, list and revoke the tokens of callers",
		Long: "Make, list and revoke the tokens of callers.\n\n" +
			"A running daemon sees every change at the next request, without a restart.",
		Example: "  historyd token create --kind operator --id alice\n" +
			"  historyd token list",
	}
	onlyCommands(cmd)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.AddCommand(newTokenCreate(open), newTokenList(open), newTokenRevoke(open))
	return cmd
}

func newTokenCreate(open openCallers) *cobra.Command {
	var (
		kind, id, permissionScope, workspace, expires string
		uid                                           uint32
	)
	cmd := &cobra.Command{
		Use:   "create --kind operator|mesh --id ID",
		Short: "make a caller, or one more token of it, and print the token once",
		Long: "Make a caller, or one more token of a caller that is there, and print the token alone on\n" +
			"standard output. It is not shown again: only its SHA-256 is kept.\n\n" +
			"Kind, id and permission scope together say who the caller is. The same three with another\n" +
			"workspace are refused. With --uid, processes of that user are this caller on the unix socket\n" +
			"without a token, for as long as one of the caller's tokens is neither revoked nor expired.",
		Example: "  historyd token create --kind operator --id alice\n" +
			"  (umask 077; historyd token create --kind mesh --id bob --permission-scope work --expires 30d > bob.token)",
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kind == "" || id == "" {
				return usageError{errors.New("--kind and --id are required")}
			}
			c, err := identity.NewCaller(kind, id, permissionScope, workspace)
			if err != nil {
				return usageError{err}
			}
			n := identity.NewToken{Caller: c}
			if cmd.Flags().Changed("uid") {
				if !identity.ValidUID(uid) {
					return usageError{fmt.Errorf("--uid %d is never an identity", uid)}
				}
				n.UID = &uid
			}
			if cmd.Flags().Changed("expires") {
				if n.Expires, err = parseExpires(expires, time.Now()); err != nil {
					return usageError{fmt.Errorf("--expires: %w", err)}
				}
			}
			return createToken(cmd, open, n)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kind, "kind", "", "operator, a session of who runs this machine, or mesh, a peer agent (required)")
	f.StringVar(&id, "id", "", "name of the caller, 1 to 256 bytes (required)")
	f.StringVar(&permissionScope, "permission-scope", "", "under which permissions; another one is another caller")
	f.StringVar(&workspace, "workspace", "", "workspace that the caller's retrievers are asked for")
	f.Uint32Var(&uid, "uid", 0, "numeric user id that is this caller on the unix socket")
	f.StringVar(&expires, "expires", "", "when the token ends: after a time such as 720h or 30d, or at one as in RFC 3339")
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(
		[]string{string(identity.Operator), string(identity.Mesh)}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func createToken(cmd *cobra.Command, open openCallers, n identity.NewToken) error {
	fsys, file, err := open(cmd)
	if err != nil {
		return err
	}
	defer fsys.Close()
	token, tokenID, err := file.Create(n)
	if errors.Is(err, identity.ErrInvalid) {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), token); err != nil {
		// Nobody has seen it, so nobody can use it or would know to revoke it.
		return errors.Join(fmt.Errorf("print the token: %w", err), file.Revoke(tokenID))
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Made token %s. Keep what stands on standard output: it is not shown again.\n", tokenID)
	return nil
}

// longestExpiry is a century: more is a slip.
const longestExpiry = 36525 * 24 * time.Hour

// parseExpires reads a time to come: a Go duration, a number of days such as
// 30d, or a time as in RFC 3339.
func parseExpires(text string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		var d time.Duration
		if d, err = parseDays(text); err != nil {
			return time.Time{}, errors.New("give a time such as 720h, 30d or 2030-01-31T00:00:00Z")
		}
		at = now.Add(d)
	}
	if !at.After(now) {
		return time.Time{}, errors.New("this is not in the future")
	}
	if at.Sub(now) > longestExpiry {
		return time.Time{}, errors.New("this is more than a hundred years away: leave --expires out for never")
	}
	return at, nil
}

func parseDays(text string) (time.Duration, error) {
	number, ok := strings.CutSuffix(text, "d")
	if !ok {
		return time.ParseDuration(text)
	}
	days, err := strconv.ParseUint(number, 10, 16) // small enough for a Duration
	return time.Duration(days) * 24 * time.Hour, err
}

// tokenLine is a token in "token list --json".
type tokenLine struct {
	TokenID         string     `json:"token_id"`
	Kind            string     `json:"kind"`
	ID              string     `json:"id"`
	PermissionScope string     `json:"permission_scope"`
	Workspace       string     `json:"workspace"`
	UID             *uint32    `json:"uid"`
	State           string     `json:"state"`
	CreatedAt       time.Time  `json:"created_at"`
	ExpiresAt       *time.Time `json:"expires_at"`
	RevokedAt       *time.Time `json:"revoked_at"`
}

func newTokenLine(t identity.TokenInfo, now time.Time) tokenLine {
	l := tokenLine{
		TokenID: t.ID, Kind: string(t.Caller.Kind), ID: t.Caller.ID, PermissionScope: t.Caller.PermissionScope,
		Workspace: t.Caller.Workspace, UID: t.UID, State: "live", CreatedAt: t.Created,
	}
	if !t.Expires.IsZero() {
		l.ExpiresAt = &t.Expires
		if !now.Before(t.Expires) {
			l.State = "expired"
		}
	}
	if !t.Revoked.IsZero() {
		l.RevokedAt = &t.Revoked
		l.State = "revoked"
	}
	return l
}

func newTokenList(open openCallers) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list the tokens ever made: ids, callers, times; never a token",
		Long: "List the tokens ever made, with their ids, callers and times. Revoked and expired ones stay in the\n" +
			"list. A token itself is never shown: nobody has it but the caller.",
		Example: "  historyd token list\n" +
			"  historyd token list --json",
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			fsys, file, err := open(cmd)
			if err != nil {
				return err
			}
			defer fsys.Close()
			tokens, err := file.List()
			if err != nil {
				return err
			}
			now := time.Now()
			lines := make([]tokenLine, 0, len(tokens))
			for _, t := range tokens {
				lines = append(lines, newTokenLine(t, now))
			}
			if asJSON {
				list := struct {
					Object string      `json:"object"`
					Data   []tokenLine `json:"data"`
				}{"list", lines}
				data, err := json.Marshal(list, jsontext.WithIndent("  "))
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", data)
				return err
			}
			return printTokens(cmd.OutOrStdout(), lines)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printTokens(out io.Writer, lines []tokenLine) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOKEN ID\tSTATE\tKIND\tID\tPERMISSION SCOPE\tWORKSPACE\tUID\tCREATED\tEXPIRES")
	for _, l := range lines {
		uid, expires := "-", "-"
		if l.UID != nil {
			uid = strconv.FormatUint(uint64(*l.UID), 10)
		}
		if l.ExpiresAt != nil {
			expires = l.ExpiresAt.Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.TokenID, l.State, l.Kind,
			plain(l.ID), plain(l.PermissionScope), plain(l.Workspace), uid, l.CreatedAt.Format(time.RFC3339), expires)
	}
	return w.Flush()
}

// plain is a text for a terminal: quoted unless it is one visible word, so
// that neither columns nor the terminal can be forged by it. Nothing is "-".
func plain(text string) string {
	if text == "" {
		return "-"
	}
	for _, r := range text {
		if !unicode.IsGraphic(r) || unicode.IsSpace(r) || r == '"' {
			return strconv.Quote(text)
		}
	}
	if text == "-" {
		return strconv.Quote(text)
	}
	return text
}

func newTokenRevoke(open openCallers) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke TOKEN_ID",
		Short: "end a token; the next request with it is refused",
		Long: "End a token, given by its id as token list shows it. The next request with it is refused, also on a\n" +
			"connection that is open. Revoking it again changes nothing.",
		Example: "  historyd token revoke tok_0123456789ab",
		Args:    takes("TOKEN_ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if identity.WellFormed(args[0]) {
				return usageError{errors.New("this is a token, and now in the history of a shell perhaps: " +
					"give its id, which token list shows")}
			}
			fsys, file, err := open(cmd)
			if err != nil {
				return err
			}
			defer fsys.Close()
			if err := file.Revoke(args[0]); err != nil {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "Revoked.")
			return nil
		},
	}
}

// usageError is a mistake in how a command was called: exit code 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }
