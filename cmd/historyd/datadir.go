package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"historyd/internal/durable"
	"historyd/internal/identity"
)

// openDataDir opens the data directory, and with make makes it when it is
// missing, durably and with every level above it. The caller closes the FS.
func openDataDir(dir string, make bool) (durable.FS, error) {
	if make {
		if err := makeDir(dir); err != nil {
			return nil, fmt.Errorf("make data_dir: %w", err)
		}
	}
	fsys, err := durable.Open(dir)
	if errors.Is(err, durable.ErrUnsafe) {
		return nil, fmt.Errorf("data_dir: %w: it must be a directory of the user who runs this, with mode 0700", err)
	}
	if err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	return fsys, nil
}

// makeDir makes what is missing of a path, with mode 0700.
func makeDir(dir string) error {
	there := filepath.Clean(dir)
	for {
		_, err := os.Stat(there)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || there == filepath.Dir(there) {
			return err
		}
		there = filepath.Dir(there)
	}
	missing, err := filepath.Rel(there, dir)
	if err != nil || missing == "." {
		return err
	}
	// Above the data directory links are the system's business.
	if there, err = filepath.EvalSymlinks(there); err != nil {
		return err
	}
	fsys, err := durable.OpenAny(there)
	if err != nil {
		return err
	}
	return errors.Join(durable.MkdirAll(fsys, filepath.ToSlash(missing)), fsys.Close())
}

// openCallersAt returns the callers file of a path, and the FS it is in: that of
// the data directory or one of its own. The caller closes the FS.
func openCallersAt(name string) (durable.FS, *identity.File, error) {
	fsys, err := durable.OpenAny(filepath.Dir(name))
	if err != nil {
		return nil, nil, fmt.Errorf("callers_file: %w", err)
	}
	return fsys, identity.OpenFile(fsys, filepath.Base(name)), nil
}

// openCallersFile finds the callers file for "token". Making a token makes the
// directory when it is missing; nothing else does.
func openCallersFile(cmd *cobra.Command) (durable.FS, *identity.File, error) {
	s, err := loadFor(cmd)
	if err != nil {
		return nil, nil, err
	}
	if err := identity.CheckOwner(s.CallersFile); err != nil {
		return nil, nil, err
	}
	if filepath.Dir(s.CallersFile) == s.DataDir {
		// The rules for the directory hold whether or not the daemon runs.
		fsys, err := openDataDir(s.DataDir, cmd.Name() == "create")
		if err != nil {
			return nil, nil, err
		}
		return fsys, identity.OpenFile(fsys, filepath.Base(s.CallersFile)), nil
	}
	return openCallersAt(s.CallersFile)
}
