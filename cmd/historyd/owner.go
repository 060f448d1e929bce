package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"historyd/internal/durable"
)

// Of the service as deploy/systemd and the package install it.
const (
	serviceDir  = "/var/lib/historyd" // its data directory
	serviceUser = "historyd"
	serviceUnit = "historyd.service"
)

// serviceDataDir is the data directory of the service for those who mean it when
// they name none: its user, and root where it is installed. It is empty for
// anybody else.
func serviceDataDir() string {
	root := os.Geteuid() == 0
	var st unix.Stat_t
	if unix.Lstat(serviceDir, &st) == nil {
		if root || int(st.Uid) == os.Geteuid() {
			return serviceDir
		}
		return ""
	}
	for _, dir := range []string{"/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"} {
		if _, err := os.Stat(filepath.Join(dir, "systemd/system", serviceUnit)); root && err == nil {
			return serviceDir
		}
	}
	return ""
}

// ofService reports whether the data directory is the one that the service has,
// and was not given to this command alone.
func (s *settings) ofService() bool {
	from := s.from["data_dir"]
	return from == fromService || from == "file "+systemConfig && s.file == ""
}

// becomeOwner makes root the owner of what it is about to work on, for good: what
// a command makes belongs to who has to read it. Anybody else stays who he is,
// and is told that it is not his.
func becomeOwner(uid, gid int) error {
	if os.Geteuid() != 0 || uid == 0 {
		return nil
	}
	err := syscall.Setgroups(nil)
	if err == nil {
		err = syscall.Setgid(gid)
	}
	if err == nil {
		err = syscall.Setuid(uid)
	}
	if err != nil {
		return fmt.Errorf("run as uid %d, whose it is: %w", uid, err)
	}
	return nil
}

// makeServiceDir makes the data directory of the service, as root, for its user.
func makeServiceDir(dir string) error {
	u, err := user.Lookup(serviceUser)
	if err != nil {
		return fmt.Errorf("make data_dir %s: there is no user %s to make it for (systemd-sysusers makes one): %w", dir, serviceUser, err)
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	if err := makeDir(dir); err != nil {
		return fmt.Errorf("make data_dir: %w", err)
	}
	if err := os.Lchown(dir, uid, gid); err != nil {
		return fmt.Errorf("make data_dir: %w", errors.Join(err, os.Remove(dir)))
	}
	return nil
}

// openDataDirAsOwner is openDataDir for a command that is no daemon: root becomes
// the owner of the directory.
func (s *settings) openDataDirAsOwner(make bool) (durable.FS, error) {
	err := lookForDir(s.DataDir)
	switch {
	case make && errors.Is(err, fs.ErrNotExist) && os.Geteuid() == 0 && s.ofService():
		err = makeServiceDir(s.DataDir)
	case make && errors.Is(err, fs.ErrNotExist):
		if err = makeDir(s.DataDir); err != nil {
			err = fmt.Errorf("make data_dir: %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	return explain(s.DataDir)(durable.OpenAsOwner(s.DataDir, becomeOwner))
}

// actAsCallersOwner makes root the owner of a callers file that is not in the data
// directory. One that is to be made is for the daemon, so it can't be made where
// only root may.
func (s *settings) actAsCallersOwner() error {
	if os.Geteuid() != 0 {
		return nil
	}
	var file, dir, data unix.Stat_t
	if err := unix.Lstat(s.CallersFile, &file); err == nil {
		return becomeOwner(int(file.Uid), int(file.Gid))
	}
	parent := filepath.Dir(s.CallersFile)
	if err := unix.Stat(parent, &dir); err != nil {
		return fmt.Errorf("callers_file: %w", &fs.PathError{Op: "stat", Path: parent, Err: err})
	}
	if filepath.Base(parent) == "credstore" {
		return nil // systemd hands on what root has there
	}
	if err := unix.Lstat(s.DataDir, &data); err == nil && data.Uid != 0 && dir.Uid == 0 {
		return fmt.Errorf("callers_file: what root makes in %s can't be read by uid %d, whose data_dir is: give that user a directory for it",
			parent, data.Uid)
	}
	return becomeOwner(int(dir.Uid), int(dir.Gid))
}
