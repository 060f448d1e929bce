package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"historyd/internal/durable"
	"historyd/internal/identity"
)

// openDataDir opens the data directory for the daemon. It makes it when it is
// missing, durably and with every level above it. The caller closes the FS.
func (s *settings) openDataDir() (durable.FS, error) {
	err := lookForDir(s.DataDir)
	if errors.Is(err, fs.ErrNotExist) && os.Geteuid() == 0 && s.ofService() {
		if _, err := user.Lookup(serviceUser); err == nil {
			return nil, fmt.Errorf("data_dir: %s would be root's and is the user %s's: start the service (systemctl start historyd), "+
				"or give another with --data-dir", s.DataDir, serviceUser)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(s.DataDir); err != nil {
			return nil, fmt.Errorf("make data_dir: %w", err)
		}
	}
	return explain(s.DataDir)(durable.Open(s.DataDir))
}

// unmakeDataDir takes away the data directory that a start has made which fails, so that whoever looks for another one
// there is still told that there is none. It stays when it holds anything but what an empty store is made of. The store
// is open, so that no other daemon is in there.
func (d *daemon) unmakeDataDir() {
	if !d.made || d.store == nil {
		return
	}
	for _, name := range emptyStore(d.settings.DataDir) {
		_ = os.Remove(name) // what is left is an empty store still
	}
}

// emptyStore lists an empty store in the order in which it may be removed, the directory last; nothing when it is anything else.
// The lock goes last before that: until then nobody else is in there, and who comes then begins anew.
func emptyStore(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	lock := filepath.Join(dir, "LOCK")
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch e.Name() {
		case "LOCK":
		case "format":
			names = append(names, name)
		case "transcripts", "staging", "trash":
			if within, err := os.ReadDir(name); err != nil || len(within) > 0 {
				return nil
			}
			names = append(names, name)
		default:
			return nil
		}
	}
	return append(names, lock, dir)
}

// tellMedium warns of a data directory that doesn't keep what is acknowledged.
func (d *daemon) tellMedium() {
	dir := d.settings.DataDir
	medium, kind, err := durable.MediumOf(dir)
	switch {
	case err != nil:
		d.log.Warn("what file system data_dir is on is not known: it must be a local one, on a disk", "data_dir", dir, "error", err)
	case medium == durable.Memory:
		d.log.Warn("data_dir is in memory: all conversations and tokens are lost when this machine stops; give a directory on a disk",
			"data_dir", dir, "file_system", kind)
	case medium == durable.Network:
		d.log.Warn("data_dir is on a network file system: conversations that were acknowledged may be lost or damaged when the network, its "+
			"server or this machine fails, and another daemon may write to it at the same time; give a directory on a local disk",
			"data_dir", dir, "file_system", kind)
	}
}

// explain says what is wrong with a data directory that was not opened.
func explain(dir string) func(durable.FS, error) (durable.FS, error) {
	there := describe(dir)
	return func(fsys durable.FS, err error) (durable.FS, error) {
		switch {
		case err == nil:
			return fsys, nil
		case errors.Is(err, durable.ErrUnsafe):
			return nil, fmt.Errorf("data_dir: %s is %s, want %s%s", dir, there, ours(), runAs(dir))
		default:
			return nil, fmt.Errorf("data_dir: %w%s", err, remedy(err))
		}
	}
}

// remedy says what to do about an error of the file system; empty when that says enough.
func remedy(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return ": run it with sudo, or as the user whose it is"
	case errors.Is(err, unix.EROFS):
		return ": mount it for writing (mount -o remount,rw), or give another with --data-dir"
	}
	return ""
}

// runAs tells root as whom to start a daemon.
func runAs(dir string) string {
	var st unix.Stat_t
	if os.Geteuid() != 0 || unix.Lstat(dir, &st) != nil || st.Uid == 0 || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return ""
	}
	name := fmt.Sprintf("'#%d'", st.Uid)
	if u, err := user.LookupId(strconv.Itoa(int(st.Uid))); err == nil {
		name = u.Username
	}
	return fmt.Sprintf(": run it as that user (sudo -u %s historyd serve), or start its service", name)
}

// lookForDataDir says where the data directory was looked for when it isn't
// there, and how to give another one.
func (s *settings) lookForDataDir() error {
	return s.lookFor(lookForDir)
}

// lookFor is lookForDataDir by another look.
func (s *settings) lookFor(look func(dir string) error) error {
	err := look(s.DataDir)
	from := s.from["data_dir"]
	if !errors.Is(err, fs.ErrNotExist) || from == "flag "+flagNames["data_dir"] {
		return err
	}
	service := ""
	if _, there := os.Lstat(serviceDir); there == nil && s.DataDir != serviceDir {
		service = ", that of the service " + serviceDir + ", with sudo"
	}
	return fmt.Errorf("%w (%s): give the one you mean with --data-dir; that of make run is .run/data%s", err, from, service)
}

// lookForDir says when there is no directory of a name, and what is there instead.
func lookForDir(dir string) error {
	info, err := os.Lstat(filepath.Clean(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missingDir(dir)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is %s, want the directory of a historyd", dir, describe(dir))
	}
	return nil
}

// lookForRecord is lookForDir, and says when nothing in the directory is a historyd's: nobody may
// take the wrong one, or an empty copy, for sound.
func lookForRecord(dir string) error {
	if err := lookForDir(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil //nolint:nilerr // whoever opens it says more
	}
	for _, e := range entries {
		switch e.Name() {
		case "format", "transcripts", "callers.json":
			return nil
		}
	}
	return fmt.Errorf("%s is no data directory of a historyd: nothing in it is named format, transcripts or callers.json", dir)
}

// missingDir is the name of a directory that is not there.
type missingDir string

func (m missingDir) Error() string { return "there is no directory " + string(m) }
func (m missingDir) Unwrap() error { return fs.ErrNotExist }

// ours says what a data directory has to be.
func ours() string { return fmt.Sprintf("a directory of uid %d with mode 0700", os.Geteuid()) }

// describe says what there is of a name.
func describe(name string) string {
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Clean(name), &st); err != nil {
		return err.Error()
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return fmt.Sprintf("a directory of uid %d with mode %04o", st.Uid, st.Mode&0o777)
	case unix.S_IFREG:
		return "a file"
	case unix.S_IFLNK:
		return "a symbolic link"
	default:
		return "neither a file nor a directory"
	}
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
// the data directory or one of its own, which may be that of the credentials. The
// caller closes the FS.
func openCallersAt(name, credentials string) (durable.FS, *identity.File, error) {
	open := durable.OpenAny
	if filepath.Dir(name) == credentials {
		open = durable.OpenCredentials
	}
	fsys, err := open(filepath.Dir(name))
	if err != nil {
		return nil, nil, fmt.Errorf("callers_file: %w", err)
	}
	return fsys, identity.OpenFile(fsys, filepath.Base(name)), nil
}

// openCallersFile finds the callers file for "token". Making a token makes the
// directory when it is missing; nothing else does.
func openCallersFile(cmd *cobra.Command) (durable.FS, *identity.File, error) {
	s, err := loadElsewhere(cmd)
	if err != nil {
		return nil, nil, err
	}
	if name, ok := credential(s.CallersFile); ok {
		return nil, nil, fmt.Errorf("callers_file is the credential %s of the service: change what it is made from, such as "+
			"HISTORYD_CALLERS_FILE=/etc/credstore/historyd.%s, and restart the service", name, name)
	}
	create := cmd.Name() == "create"
	if filepath.Dir(s.CallersFile) != s.DataDir {
		if err := s.actAsCallersOwner(); err != nil {
			return nil, nil, err
		}
		if err := identity.CheckOwner(s.CallersFile); err != nil {
			return nil, nil, err
		}
		return openCallersAt(s.CallersFile, "")
	}
	missing := s.lookForDataDir()
	if missing != nil && !(create && errors.Is(missing, fs.ErrNotExist)) {
		return nil, nil, missing
	}
	if os.Geteuid() != 0 {
		if err := identity.CheckOwner(s.CallersFile); err != nil {
			return nil, nil, err
		}
	}
	// The rules for the directory hold whether or not the daemon runs.
	fsys, err := s.openDataDirAsOwner(create)
	if err != nil {
		return nil, nil, err
	}
	if missing != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "Made the data directory %s.\n", s.DataDir)
	}
	return fsys, identity.OpenFile(fsys, filepath.Base(s.CallersFile)), nil
}
