#!/usr/bin/env bash
# Lets the clients that the providers publish read and write replays: those for Go, and those for Node where it is
# there. They are a module and a package of their own, below test/sdk; the daemon links none of it.
#
# What can't be had is said and skipped: being offline is no finding.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../test/sdk"
export GOTOOLCHAIN=go1.27.3 CGO_ENABLED=0

# The proxy may be slow to answer; nobody should wait for it for ever. Only what the tests link is fetched.
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
if ! timeout 120 go list -deps -test ./... >/dev/null 2>"$errors"; then
	echo "SKIPPED: no check with the providers' clients, their modules can't be had:" >&2
	head -5 "$errors" >&2
	exit 0
fi

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
	echo "SKIPPED: no node and npm, so no clients for Node" >&2
elif ! cmp -s node/package-lock.json node/node_modules/.fetched; then
	if (cd node && timeout 60 npm ci --loglevel=error) >"$errors" 2>&1; then
		cp node/package-lock.json node/node_modules/.fetched
	else
		rm -rf node/node_modules
		echo "SKIPPED: the clients for Node can't be had:" >&2
		head -5 "$errors" >&2
	fi
fi

# The clients are large: to compile them without optimisation takes a good deal less.
go test -count=1 -timeout=5m -gcflags=all='-N -l' ./...
