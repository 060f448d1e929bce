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
			"  historyd token create --kind mesh --id bob > bob.token\n" +
			"  historyd check",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	onlyCommands(root)
	token := newTokenCommand(openCallersFile)
	addFlags(token.PersistentFlags(), "data_dir")
	root.AddCommand(newServeCommand(), token, newCheckCommand(), newConfigCommand(), newVersionCommand())
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
		hint := ""
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = fmt.Sprintf(", did you mean %q?", near[0])
		}
		return usageError{fmt.Errorf("there is no command %q%s", args[0], hint)}
	}
	cmd.RunE = func(*cobra.Command, []string) error { return nil } // never: Args refuses all
}

// addFlags gives a command --config and the flags of some keys, by path.
func addFlags(f *pflag.FlagSet, paths ...string) {
	f.String("config", "", "configuration `FILE` (default "+systemConfig+" when it is there)")
	for _, path := range paths {
		name := strings.TrimPrefix(flagNames[path], "--")
		switch path {
		case "data_dir":
			f.String(name, "", "`DIR` that holds the conversations")
		case "listen.tcp":
			f.String(name, "", "`HOST:PORT` to listen on, port 0 for a free one, empty for none")
		case "listen.unix":
			f.String(name, "", "`PATH` of a unix socket to listen on")
		case "log.level":
			f.String(name, "", "`LEVEL` of the log: debug, info, warn or error")
		}
	}
}

// loadFor returns the settings for a command, from all sources. What is wrong
// with a flag is a usage error.
func loadFor(cmd *cobra.Command) (settings, error) {
	src := sources{system: systemConfig, env: os.Environ(), flags: map[string]string{}}
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
			if _, ok := src.flags[p.key]; ok {
				return settings{}, usageError{err}
			}
		}
	}
	return s, err
}
