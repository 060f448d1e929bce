//go:build race

package api

// raced tells that the race detector makes everything slow.
const raced = true
