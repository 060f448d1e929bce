#!/usr/bin/env bash
# Runs go test through gotestsum, whose closing line counts what ran.
#
#   scripts/test.sh auto|race ARGUMENTS-OF-GO-TEST...
#
# The race detector needs cgo, thus a C compiler with its headers. Without one, auto runs the tests without it
# and race runs nothing; both say so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export GOTOOLCHAIN=go1.27.3 CGO_ENABLED=0
mode=$1
shift

has_cc() { echo '#include <stdlib.h>' | $(go env CC) -x c -fsyntax-only - 2>/dev/null; }

cgo=0
race=()
if has_cc; then
	cgo=1
	race=(-race)
elif [ "$mode" = race ]; then
	echo "SKIPPED: no C compiler (go env CC), so no race detector" >&2
	exit 0
else
	echo "NOTE: no C compiler (go env CC): the tests run without the race detector" >&2
fi

# Only the tests are built with cgo; gotestsum itself is not.
exec go tool -modfile=tools.mod gotestsum --format pkgname --format-hide-empty-pkg --raw-command -- \
	env CGO_ENABLED=$cgo go test -json "${race[@]}" "$@"
