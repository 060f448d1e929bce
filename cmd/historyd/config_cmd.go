package main

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "check the configuration, or print what is in force",
		Long: "Check the configuration, or print what is in force.\n\n" +
			"Settings come from, later wins: defaults; the file given with --config, or " + systemConfig + "\n" +
			"when it is there; environment variables such as HISTORYD_LISTEN_TCP for listen.tcp; flags.\n" +
			"A key or a variable that is not known is an error. The lists projection.withhold and\n" +
			"projection.tools can be set in the file only; in a variable allowed_hosts is comma-separated.",
		Example: "  historyd config check --config historyd.yaml\n" +
			"  historyd config print",
	}
	onlyCommands(cmd)
	addFlags(cmd.PersistentFlags(), "data_dir", "listen.tcp", "listen.unix", "log.level")
	cmd.AddCommand(newConfigCheck(), newConfigPrint())
	return cmd
}

func newConfigCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "say ok, or everything that is wrong with the configuration",
		Long: "Say ok and which file was read, or everything that is wrong with the configuration.\n\n" +
			"A category of projection.tools that looks like a misspelt one of projection.withhold is warned of,\n" +
			"and a limit of open files that is too low here for a daemon with that configuration.\n" +
			"Nothing is opened or looked up but the configuration file itself; that the files of TLS are\n" +
			"there is checked, what is in them is not.",
		Example: "  historyd config check --config historyd.yaml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("%q: give the file with --config", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := loadFor(cmd)
			var bad problems
			if errors.As(err, &bad) && !errors.As(err, new(usageError)) {
				// The problems are what was asked for.
				fmt.Fprintln(cmd.OutOrStdout(), bad)
				return errUnsound
			}
			if err != nil {
				return err
			}
			from := "no configuration file was read"
			if s.read != "" {
				from = "read " + plain(s.read)
			}
			if _, err = fmt.Fprintf(cmd.OutOrStdout(), "ok: %s\n", from); err != nil {
				return err
			}
			warnings := s.misspelt()
			plan := s.planFiles(mayOpen(), s.listeners())
			if lack, short := plan.short(); short {
				warnings = append(warnings, lack)
			}
			for _, p := range warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", p)
			}
			return nil
		},
	}
}

func newConfigPrint() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "print",
		Short: "print the configuration in force, and where each value came from",
		Long: "Print the configuration in force as YAML, and in a comment where each value came from:\n" +
			"default, a file, a variable or a flag. What is printed can be used as a configuration file.",
		Example: "  historyd config print\n" +
			"  HISTORYD_LOG_LEVEL=debug historyd config print --json",
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := loadFor(cmd)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), &s)
			}
			return printYAML(cmd.OutOrStdout(), &s)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: by key, value and from")
	return cmd
}

// printYAML prints one key a line. JSON is YAML, so that is what values are.
func printYAML(w io.Writer, s *settings) error {
	var section []string
	for _, k := range keys {
		path := strings.Split(k.path, ".")
		in, name := path[:len(path)-1], path[len(path)-1]
		for i, s := range in {
			if i < len(section) && slices.Equal(in[:i+1], section[:i+1]) {
				continue
			}
			if _, err := fmt.Fprintf(w, "%s%s:\n", strings.Repeat("  ", i), s); err != nil {
				return err
			}
		}
		section = in
		indent := strings.Repeat("  ", len(in))
		value, err := json.Marshal(k.of(&s.Config).Interface(), jsontext.SpaceAfterColon(true), jsontext.SpaceAfterComma(true))
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s%s: %s # %s\n", indent, name, value, s.from[k.path]); err != nil {
			return err
		}
	}
	return nil
}

// printJSON prints one object with a member for each key.
func printJSON(w io.Writer, s *settings) error {
	type entry struct {
		Value any    `json:"value"`
		From  string `json:"from"`
	}
	all := make(map[string]entry, len(keys))
	for _, k := range keys {
		all[k.path] = entry{Value: k.of(&s.Config).Interface(), From: s.from[k.path]}
	}
	text, err := json.Marshal(all, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}
