package main

import (
	"encoding/json/v2"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Set by the linker (-X main.version=… -X main.commit=…); the build information
// of the Go toolchain stands in for what is empty.
var version, commit string

// build is what this program was made from.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

func buildInfo() build {
	b := build{Version: version, Commit: commit, Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		if b.Version == "" && info.Main.Version != "(devel)" {
			b.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && b.Commit == "" {
				b.Commit = s.Value
			}
		}
	}
	if b.Version == "" {
		b.Version = "dev"
	}
	if b.Commit == "" {
		b.Commit = "unknown"
	}
	return b
}

// versionLine is what people are told.
func versionLine() string {
	b := buildInfo()
	return fmt.Sprintf("historyd %s, commit %s, %s", b.Version, b.Commit, b.Go)
}

func newVersionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "print version, commit and Go version",
		Long:    "Print the version, the commit and the Go version this program was built from.",
		Example: "  historyd version --json",
		Args:    takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				text, err := json.Marshal(buildInfo())
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", text)
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
