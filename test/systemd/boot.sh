#!/bin/sh
# Boots a system under systemd in a container, or with "chroot" runs without one, and ends with it. The system is this
# machine's, under an overlay in memory: nothing that happens there is seen here, and nothing is left of it.
#
#   boot.sh boot|chroot SHARE PROGRAM ARGS...
#
# PROGRAM runs inside, as root, with the directory SHARE at /share and its output in SHARE/out. The caller runs this in
# a mount namespace of its own, so that all mounts end with it.
set -eu
how=$1 share=$2
shift 2
scratch=$share/scratch
mkdir -p "$scratch"
mount -t tmpfs -o mode=755,size=2g none "$scratch"
mkdir "$scratch/up" "$scratch/work" "$scratch/root"
mount -t overlay -o "lowerdir=/,upperdir=$scratch/up,workdir=$scratch/work" none "$scratch/root"
root=$scratch/root

# No service of this machine, and nothing of a historyd that is installed on it.
rm -rf "$root"/etc/systemd/system/*.wants "$root"/etc/systemd/system/historyd* "$root"/etc/historyd "$root"/var/lib/historyd
rm -f "$root"/etc/credstore/historyd.*
# The services of packages may be started there, whatever the rule here.
rm -f "$root/usr/sbin/policy-rc.d"
# No index of manual pages is made at each installation.
rm -f "$root/var/lib/man-db/auto-update"
mkdir -p "$root/share"
# PID 1 of a container makes its own, and complains of this one.
: >"$root/etc/machine-id"

if [ "$how" = chroot ]; then
	mount --bind "$share" "$root/share"
	mount -t proc proc "$root/proc"
	mount -t tmpfs none "$root/run"
	mount -t tmpfs -o mode=1777 none "$root/tmp"
	mount --rbind /dev "$root/dev"
	ip link set lo up 2>/dev/null || true
	exec chroot "$root" "$@" >"$share/out" 2>&1
fi

# A disk that can be frozen, for the data directory, where a file can be mounted.
disk=
if truncate -s 256M "$scratch/disk" && mkfs.ext4 -q "$scratch/disk" 2>/dev/null && mkdir "$scratch/state" &&
	mount -o loop "$scratch/disk" "$scratch/state" 2>/dev/null; then
	rmdir "$scratch/state/lost+found"
	chmod 700 "$scratch/state"
	mkdir -p "$root/var/lib/historyd"
	disk=--bind=$scratch/state:/var/lib/historyd
fi

command=
for word; do command="$command \"$word\""; done
cat >"$root/etc/systemd/system/inside.service" <<END
[Unit]
Description=The tests
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
Environment=HISTORYD_TEST_DISK=$disk HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin HISTORYD_TEST_INSIDE=boot
ExecStart=$command
StandardOutput=file:/share/out
StandardError=inherit
END
cat >"$root/etc/systemd/system/inside.target" <<END
[Unit]
Requires=basic.target inside.service
After=basic.target
END
# Where systemd runs here, too, the container gets a unit of its own from it.
keep=--keep-unit
[ -d /run/systemd/system ] && keep=
exec systemd-nspawn --quiet --directory="$root" --boot --register=no $keep --private-network --console=pipe \
	--machine="historyd-test-$$" --bind="$share:/share" $disk systemd.unit=inside.target </dev/null
