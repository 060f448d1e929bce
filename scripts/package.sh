#!/usr/bin/env bash
# Builds the Debian package for ARCH (this machine's), by MAINTAINER, into bin/, with nfpm: binary, units, user, configuration, manual
# pages, completions, and the licences of all that is linked.
#
#   scripts/package.sh VERSION COMMIT
#
# The same tree at the same commit gives the same bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export GOTOOLCHAIN=go1.27.3 CGO_ENABLED=0
version=$1 commit=$2
ARCH=${ARCH:-$(go env GOARCH)}
STAGE=.cache/package
rm -rf "$STAGE"
mkdir -p "$STAGE"

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}

# v1.2.3-4-gabcdef of git is 1.2.3+4.gabcdef; a tree without a tag comes before any version.
case $version in
v*) VERSION=$(sed -E 's/^v//; s/-([0-9]+)-g/+\1.g/; s/-/./g' <<<"$version") ;;
*) VERSION=0~$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).$(sed -E "s/[^A-Za-z0-9.]+/./g" <<<"$commit") ;;
esac
MAINTAINER=${MAINTAINER:-The historyd maintainers <historyd@localhost.localdomain>}
export ARCH VERSION MAINTAINER SOURCE_DATE_EPOCH

flags="-s -w -X main.version=$version -X main.commit=$commit"
GOARCH=$ARCH go build -trimpath -buildvcs=false -ldflags "$flags" -o "$STAGE/historyd" ./cmd/historyd

# What is linked, with its licences: they have to go where the binary goes.
mkdir "$STAGE/doc" "$STAGE/completion" "$STAGE/man1" "$STAGE/man5"
GOARCH=$ARCH go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/historyd | sort -u |
	while read -r module at dir; do
		found=0
		for file in "$dir"/LICENSE* "$dir"/LICENCE* "$dir"/COPYING* "$dir"/NOTICE*; do
			if [ -f "$file" ]; then
				printf '==== %s %s: %s\n\n' "$module" "$at" "$(basename "$file")"
				cat "$file"
				echo
				found=1
			fi
		done
		if [ $found = 0 ]; then
			echo "$module has no licence" >&2
			exit 1
		fi
	done >"$STAGE/third-party-licenses"
printf '==== Go %s: LICENSE\n\n' "$(go env GOVERSION)" >>"$STAGE/third-party-licenses"
cat "$(go env GOROOT)/LICENSE" >>"$STAGE/third-party-licenses"
gzip -9n <"$STAGE/third-party-licenses" >"$STAGE/doc/third-party-licenses.gz"
gzip -9n <CHANGELOG.md >"$STAGE/doc/changelog.gz"
for page in OPERATIONS API DURABILITY FORMAT PERFORMANCE; do
	gzip -9n <"docs/$page.md" >"$STAGE/doc/$page.md.gz"
done
cp deploy/package/copyright "$STAGE/doc/copyright"
gzip -9n >"$STAGE/doc/changelog.Debian.gz" <<END
historyd ($VERSION) unstable; urgency=medium

  * What has changed is in changelog.gz.

 -- $MAINTAINER  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
END

for page in deploy/package/man/*; do
	section=${page##*.}
	gzip -9n <"$page" >"$STAGE/man$section/$(basename "$page").gz"
done
# The completions are the program's own words; it may be for another machine than this one.
go build -o "$STAGE/native" ./cmd/historyd
for shell in bash zsh fish; do
	"$STAGE/native" completion $shell >"$STAGE/completion/$shell"
done

mkdir -p bin
rm -f bin/historyd_*_"$ARCH".deb
go tool -modfile=deploy/package/tools.mod nfpm package --packager deb --config deploy/package/nfpm.yaml --target bin/
