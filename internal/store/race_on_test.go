//go:build race

package store

// raced tells that the race detector makes everything slow.
const raced = true
