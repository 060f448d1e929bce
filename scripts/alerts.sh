#!/usr/bin/env bash
# Lets promtool check and test the rules and alerts of deploy/prometheus, and holds them and the dashboard of
# deploy/grafana to what a daemon exposes. promtool is $PROMTOOL, that of the machine, or that of Debian's package, unpacked
# into .cache: 19 MB, where building it takes 134 modules and minutes.
#
# What can't be had is said and skipped: being offline is no finding.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export GOTOOLCHAIN=go1.27.3 CGO_ENABLED=0

unpacked=$PWD/.cache/prometheus
promtool=${PROMTOOL:-$(command -v promtool || true)}
if [ -z "$promtool" ] && [ ! -x "$unpacked/usr/bin/promtool" ] && command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
	rm -rf "$unpacked"
	mkdir -p "$unpacked"
	fetch() (cd "$unpacked" && timeout 120 apt-get -q download prometheus) >/dev/null 2>&1
	if ! fetch && [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ]; then
		timeout 120 apt-get -q update >/dev/null 2>&1 || true
		fetch || true
	fi
	for deb in "$unpacked"/*.deb; do
		# The one file that is wanted, and nothing of the package is run.
		if [ -e "$deb" ]; then
			dpkg-deb --fsys-tarfile "$deb" | tar -xf - -C "$unpacked" ./usr/bin/promtool
			rm "$deb"
		fi
	done
fi
if [ -z "$promtool" ] && [ -x "$unpacked/usr/bin/promtool" ]; then
	promtool=$unpacked/usr/bin/promtool
fi

if [ -z "$promtool" ]; then
	echo "SKIPPED: no promtool and no Debian package of it, so nobody has checked and tested the alerts (PROMTOOL names one)" >&2
else
	"$promtool" check rules deploy/prometheus/historyd.*.yaml
	"$promtool" check config --syntax-only deploy/prometheus/scrape.example.yaml
	"$promtool" test rules deploy/prometheus/tests/*.yaml
fi

cd test/prometheus
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
if ! timeout 120 go list -deps -test ./... >/dev/null 2>"$errors"; then
	echo "SKIPPED: no check of alerts and dashboard against a daemon, the parser of Prometheus can't be had:" >&2
	head -5 "$errors" >&2
	exit 0
fi
PROMTOOL=$promtool go test -count=1 -timeout=5m ./...
