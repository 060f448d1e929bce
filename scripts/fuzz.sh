#!/usr/bin/env bash
# Runs each fuzz target of the packages for a time.
#
#   scripts/fuzz.sh FUZZTIME PACKAGES...
#
# Finds are written below testdata/fuzz of their package; commit them as seeds. With KEEP=N as many of the inputs that
# reached something new, of all sizes, are written there, too, so that every run of the tests tries them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export GOTOOLCHAIN=go1.27.3 CGO_ENABLED=0
fuzztime=$1
shift
keep=${KEEP:-0}
found=$(go env GOCACHE)/fuzz

failed=()
targets=0
while IFS=$'\t' read -r pkg dir; do
	names=$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go 2>/dev/null | awk '{print $2}' || true)
	for name in $names; do
		targets=$((targets + 1))
		echo "== $pkg $name for $fuzztime"
		# Making a find smaller may take all the time there is: ten tries are enough to go on.
		go test -run '^$' -fuzz "^$name\$" -fuzztime "$fuzztime" -fuzzminimizetime 10x "$pkg" </dev/null || failed+=("$pkg $name")
		if [ "$keep" -gt 0 ] && [ -d "$found/$pkg/$name" ]; then
			mkdir -p "$dir/testdata/fuzz/$name"
			find "$found/$pkg/$name" -type f -size -16k -printf '%s\t%p\n' | sort -n | cut -f2- |
				awk -v keep="$keep" '{ all[NR] = $0 } END { for (i = 1; i <= NR; i++) if (int(i * keep / NR) > int((i - 1) * keep / NR) || NR <= keep) print all[i] }' |
				xargs -r cp -t "$dir/testdata/fuzz/$name" --
		fi
	done
done < <(go list -f $'{{.ImportPath}}\t{{.Dir}}' "$@")

echo "$targets fuzz targets, ${#failed[@]} failed"
for f in "${failed[@]}"; do echo "FAILED: $f"; done
[ ${#failed[@]} -eq 0 ]
