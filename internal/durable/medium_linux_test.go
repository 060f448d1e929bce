package durable

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTheMediumIsToldByTheNumberOfTheFileSystem(t *testing.T) {
	for _, tt := range []struct {
		magic uint32
		want  Medium
		kind  string
	}{
		{unix.TMPFS_MAGIC, Memory, "tmpfs"},
		{unix.RAMFS_MAGIC, Memory, "ramfs"},
		{unix.NFS_SUPER_MAGIC, Network, "nfs"},
		{unix.CIFS_SUPER_MAGIC, Network, "cifs"},
		{unix.SMB_SUPER_MAGIC, Network, "cifs"},
		{unix.SMB2_SUPER_MAGIC, Network, "cifs"},
		{unix.V9FS_MAGIC, Network, "9p"},
		{unix.CEPH_SUPER_MAGIC, Network, "ceph"},
		{unix.EXT4_SUPER_MAGIC, Disk, ""},
		{unix.XFS_SUPER_MAGIC, Disk, ""},
		{unix.OVERLAYFS_SUPER_MAGIC, Disk, ""},
	} {
		if got, kind := mediumOfMagic(tt.magic); got != tt.want || kind != tt.kind {
			t.Errorf("%#x: got %d, %q, want %d, %q", tt.magic, got, kind, tt.want, tt.kind)
		}
	}
}

func TestTheMediumOfFUSEIsToldByItsMount(t *testing.T) {
	const mounts = "22 27 8:1 / / rw,relatime - ext4 /dev/root rw\n" +
		"36 25 0:31 / /mnt/a rw,relatime shared:1 master:2 - fuse.sshfs me@host:/x\\040-\\040y rw,user_id=1000\n" +
		"37 25 0:32 / /mnt/b rw,relatime - fuse.ntfs-3g /dev/sdb1 rw\n" +
		"38 25 0:33 / /mnt/c rw,relatime - fuse.rclone remote: rw\n" +
		"short\n"
	for _, tt := range []struct {
		minor uint32
		want  Medium
		kind  string
	}{
		{31, Network, "fuse.sshfs"},
		{32, Disk, ""},
		{33, Network, "fuse.rclone"},
		{34, Disk, ""},
	} {
		if got, kind := mediumOfMount(mounts, unix.Mkdev(0, tt.minor)); got != tt.want || kind != tt.kind {
			t.Errorf("0:%d: got %d, %q, want %d, %q", tt.minor, got, kind, tt.want, tt.kind)
		}
	}
}

func TestAFileSystemInMemoryIsKnown(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "historyd")
	if err != nil {
		t.Skipf("no file system in memory here: %v", err)
	}
	defer func() { _ = os.Remove(dir) }()
	if got, kind, err := MediumOf(dir); err != nil || got != Memory || kind != "tmpfs" {
		t.Errorf("got %d, %q, %v, want %d, tmpfs", got, kind, err, Memory)
	}
	if _, _, err := MediumOf(dir + "/none"); err == nil {
		t.Error("the medium of no directory is told")
	}
}
