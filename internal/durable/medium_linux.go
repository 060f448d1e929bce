package durable

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A Medium is where a file system keeps what was synced, as far as its kind tells.
type Medium int

const (
	Disk    Medium = iota // or a kind that is not known here
	Memory                // gone with the power, and when it is unmounted
	Network               // another machine, which says by itself what is kept and who has a lock
)

// MediumOf tells the medium of a directory, and the kind of its file system as mount(8) names it, which is empty for a
// disk.
func MediumOf(dir string) (Medium, string, error) {
	dir = filepath.Clean(dir)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Disk, "", fmt.Errorf("statfs %s: %w", dir, err)
	}
	if uint32(st.Type) != unix.FUSE_SUPER_MAGIC {
		m, kind := mediumOfMagic(uint32(st.Type))
		return m, kind, nil
	}
	// All of FUSE has one number; what it is of is told by the mounts alone.
	var in unix.Stat_t
	if err := unix.Stat(dir, &in); err != nil {
		return Disk, "", fmt.Errorf("stat %s: %w", dir, err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Disk, "", fmt.Errorf("read the mounts: %w", err)
	}
	m, kind := mediumOfMount(string(mounts), uint64(in.Dev))
	return m, kind, nil
}

func mediumOfMagic(magic uint32) (Medium, string) {
	switch magic {
	case unix.TMPFS_MAGIC:
		return Memory, "tmpfs"
	case unix.RAMFS_MAGIC:
		return Memory, "ramfs"
	case unix.NFS_SUPER_MAGIC:
		return Network, "nfs"
	case unix.CIFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC:
		return Network, "cifs"
	case unix.V9FS_MAGIC:
		return Network, "9p"
	case unix.CEPH_SUPER_MAGIC:
		return Network, "ceph"
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return Network, "afs"
	case unix.CODA_SUPER_MAGIC:
		return Network, "coda"
	}
	return Disk, ""
}

// mediumOfMount is for the FUSE file system of a device, in the words of /proc/self/mountinfo:
//
//	36 25 0:31 / /mnt rw,relatime shared:1 - fuse.sshfs me@host: rw,user_id=1000
func mediumOfMount(mounts string, dev uint64) (Medium, string) {
	device := fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	for line := range strings.Lines(mounts) {
		mount, source, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(mount); len(fields) < 3 || fields[2] != device {
			continue
		}
		kind, _, _ := strings.Cut(source, " ")
		switch kind {
		case "fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.ceph-fuse", "fuse.juicefs":
			return Network, kind
		}
	}
	return Disk, ""
}
