// Command historyd keeps the conversations of agents, durably and for each
// caller alone, and gives back what to send to the model next. It holds the
// commands, the configuration, the wiring and the life of the daemon; what is
// kept and how is for the packages under internal.
//
// Everything is wired here, once, and handed on by Options: no other package
// reads the environment, the configuration or a flag.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes.
const (
	exitDone  = 0
	exitFail  = 1 // it failed, or what was checked is unsound
	exitUsage = 2 // it was called wrongly
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	// After the first signal the next one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run runs one command line and returns its exit code. What people asked for
// goes to stdout, what went wrong to stderr.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// What fails before a command has begun is about how it was called.
	begun := false
	root := newRootCommand()
	root.PersistentPreRun = func(*cobra.Command, []string) { begun = true }
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errUnsound):
		return exitFail // the findings have been printed
	case errors.As(err, &usage), !begun:
		fmt.Fprintf(stderr, "historyd: %v\nrun \"%s --help\" for how to call it\n", err, cmd.CommandPath())
		return exitUsage
	default:
		fmt.Fprintf(stderr, "historyd: %v\n", err)
		return exitFail
	}
}

// errUnsound ends a command whose findings are its message.
var errUnsound = errors.New("unsound")

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "historyd",
		Short: "keep the conversations of agents, durably and privately",
		Long: "historyd keeps the conversations of agents, durably and for each caller alone, and gives back\n" +
			"what to send to the model next.\n\n" +
			"Exit codes: 0 done; 1 failed, or what was checked is unsound (a configuration file, too);\n" +
			"2 called wrongly.",
		Example: "  historyd serve --bootstrap-operator me\n" +
			"  (umask 077; historyd token create --kind mesh --id bob > bob.token)\n" +
			"  historyd check",
		Version:       versionLine(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	onlyCommands(root)
	token := newTokenCommand(openCallersFile)
	addFlags(token.PersistentFlags(), "data_dir")
	root.AddCommand(newServeCommand(), token, newCheckCommand(), newStatsCommand(), newRetentionCommand(),
		newExportCommand(), newImportCommand(), newConfigCommand(), newVersionCommand())
	helpOfCommandsOnly(root)
	return root
}

// onlyCommands makes it a usage error to call a command by itself, or with the
// name of a command that it doesn't have.
func onlyCommands(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			var names []string
			for _, c := range cmd.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, c.Name())
				}
			}
			return usageError{fmt.Errorf("a command is missing: %s", strings.Join(names, ", "))}
		}
		return noCommand(cmd, args[0])
	}
	cmd.RunE = func(*cobra.Command, []string) error { return nil } // never: Args refuses all
}

// noCommand says that a command has none of this name.
func noCommand(cmd *cobra.Command, name string) error {
	hint := ""
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		hint = fmt.Sprintf(", did you mean %q?", near[0])
	}
	return usageError{fmt.Errorf("there is no command %q%s", name, hint)}
}

// helpOfCommandsOnly makes "help" complain about a command that is not there,
// for which it would show the nearest one above.
func helpOfCommandsOnly(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	help, _, err := root.Find([]string{"help"})
	if err != nil {
		panic(err) // it was made one line above
	}
	help.Short = "show what a command is for and how to call it"
	help.Long = "Show what a command is for and how to call it, as --help of the command does."
	help.Example = "  historyd help token create"
	help.Args = func(_ *cobra.Command, args []string) error {
		cmd, rest, err := root.Find(args)
		if err != nil {
			return usageError{err}
		}
		if len(rest) > 0 {
			return noCommand(cmd, rest[0])
		}
		return nil
	}
}

// takes makes it a usage error to call a command with more or fewer arguments
// than these: names, the last of which may be in brackets, which it can do without.
func takes(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names) && !strings.HasPrefix(names[len(args)], "["):
			return usageError{fmt.Errorf("%s is missing", names[len(args)])}
		case len(args) > len(names) && len(names) == 0:
			return usageError{fmt.Errorf("%q: no arguments are taken, only flags", args[0])}
		case len(args) > len(names):
			return usageError{fmt.Errorf("%q is one too many: all that is taken is %s", args[len(names)], strings.Join(names, " "))}
		}
		return nil
	}
}

// count says how many there are of something.
func count(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// addFlags gives a command --config and the flags of some keys, by path.
func addFlags(f *pflag.FlagSet, paths ...string) {
	f.String("config", "", "configuration `FILE` (default "+systemConfig+" when it is there)")
	for _, path := range paths {
		name := strings.TrimPrefix(flagNames[path], "--")
		switch path {
		case "data_dir":
			f.String(name, "", "`DIR` that holds the conversations (default $XDG_STATE_HOME/historyd, else ~/.local/state/historyd;\nthat of the service for root and for its user)")
		case "listen.tcp":
			f.String(name, "", "`HOST:PORT` to listen on, port 0 for a free one, empty for none (default "+Default().Listen.TCP+")")
		case "listen.unix":
			f.String(name, "", "`PATH` of a unix socket to listen on (default none)")
		case "log.level":
			f.String(name, "", "`LEVEL` of the log: debug, info, warn or error (default "+Default().Log.Level+")")
		}
	}
}

// loadFor returns the settings for a command, from all sources. What is wrong
// with a flag is a usage error.
func loadFor(cmd *cobra.Command) (settings, error) { return loadAs(cmd, false) }

// loadElsewhere is loadFor for a command that is not about the process of the
// daemon; see sources.
func loadElsewhere(cmd *cobra.Command) (settings, error) { return loadAs(cmd, true) }

func loadAs(cmd *cobra.Command, elsewhere bool) (settings, error) {
	src := sources{system: systemConfig, env: os.Environ(), flags: map[string]string{}, elsewhere: elsewhere, service: serviceDataDir()}
	src.file = cmd.Flag("config").Value.String()
	if cmd.Flag("config").Changed && src.file == "" {
		return settings{}, usageError{errors.New("--config needs a file")}
	}
	for path, name := range flagNames {
		if f := cmd.Flag(strings.TrimPrefix(name, "--")); f != nil && f.Changed {
			src.flags[path] = f.Value.String()
		}
	}
	s, err := load(src)
	var bad problems
	if errors.As(err, &bad) {
		for _, p := range bad {
			if _, ok := src.flags[p.key]; ok && p.where == "" {
				return settings{}, usageError{err}
			}
		}
	}
	return s, err
}
