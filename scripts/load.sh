#!/usr/bin/env bash
# Measures the daemon beside Redis, PostgreSQL and SQLite, and what an append costs in a large record. Also runs the
# tests of what measures. It is a module of its own, below test/load.
#
#   scripts/load.sh run [FLAGS]   both tables, into .cache/load.txt too; FLAGS are those of test/load
#   scripts/load.sh test          its tests
#
# What can't be had is said and skipped: being offline is no finding.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export GOTOOLCHAIN=go1.27.3 CGO_ENABLED=0
mode=${1:-run}
shift || true

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
if ! (cd test/load && timeout 120 go list -deps -test ./...) >/dev/null 2>"$errors"; then
	echo "SKIPPED: nothing is compared or tested, the module of SQLite can't be had:" >&2
	head -5 "$errors" >&2
	exit 0
fi

case $mode in
test)
	cd test/load
	go test -count=1 -timeout=5m -gcflags=modernc.org/...='-N -l' ./...
	;;
run)
	mkdir -p .cache
	(cd test/load && go build -o ../../.cache/load .)
	{
		.cache/load -historyd bin/historyd "$@"
		echo
		.cache/load -historyd bin/historyd -scale "$@"
	} | tee .cache/load.txt
	;;
*)
	echo "usage: scripts/load.sh run|test" >&2
	exit 2
	;;
esac
