package main

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// known is a name that somebody may have meant, and what to call it.
type known struct{ name, full string }

// hintKey names the known key that somebody may have meant by a name in a
// section: one of that section, or of any. Without one it is empty.
func hintKey(prefix, name string, fields map[string]reflect.Type) string {
	var list []known
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		list = append(list, known{field, prefix + field})
	}
	for _, k := range keys {
		if k.path == prefix+name {
			section, rest, _ := strings.Cut(k.path, ".")
			return ": write " + rest + " below " + section
		}
		list = append(list, known{lastOf(k.path), k.path})
	}
	return hint(name, list)
}

// hintVariable is hintKey for a variable of the environment.
func hintVariable(name string) string {
	var list []known
	for _, k := range keys {
		list = append(list, known{strings.TrimPrefix(k.env, envPrefix), k.env}, known{lastOf(k.path), k.env})
	}
	return hint(strings.TrimPrefix(name, envPrefix), list)
}

func lastOf(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// hint names the first of those that take the fewest edits to get to, in
// whatever case of letters. Nobody means what is further off than a third of
// the name.
func hint(name string, list []known) string {
	best, least := "", max(1, len(name)/3)+1
	for _, k := range list {
		if d := distance(strings.ToLower(name), strings.ToLower(k.name)); d < least {
			best, least = k.full, d
		}
	}
	if best == "" {
		return ""
	}
	return ", the nearest known one is " + best
}

// distance counts the insertions, removals and changes of a byte, and the swaps
// of neighbours, between two texts.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
