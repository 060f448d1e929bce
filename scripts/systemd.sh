#!/usr/bin/env bash
# Tests the units by systemd's own tools, and the Debian package in bin/ in systems of their own, one of them booted
# under systemd. On CI what is missing is installed first, with apt-get; elsewhere, and where that fails, what can't be
# done is said and skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export GOTOOLCHAIN=go1.27.3 CGO_ENABLED=0

wanted=(systemd systemd-container lintian e2fsprogs)
if [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	missing=()
	for package in "${wanted[@]}"; do
		dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
	done
	if [ ${#missing[@]} -gt 0 ]; then
		(apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "${missing[@]}") >/dev/null 2>&1 ||
			echo "NOTE: apt-get can't install ${missing[*]}" >&2
	fi
fi

deb=$(ls -t bin/historyd_*.deb | head -1)
if ! command -v lintian >/dev/null; then
	echo "SKIPPED: no lintian, so nobody has looked at the package" >&2
elif ! lintian --allow-root --fail-on error,warning "$deb"; then
	exit 1
fi
[ "$(id -u)" = 0 ] || echo "SKIPPED: the package is installed by root only" >&2
command -v systemd-nspawn >/dev/null || echo "SKIPPED: no systemd-nspawn, so no booted system" >&2
HISTORYD_TEST_DEB=$PWD/$deb exec go test -count=1 -timeout=15m -v ./test/systemd ./deploy/systemd
