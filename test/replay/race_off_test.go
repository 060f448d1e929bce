//go:build !race

package replay_test

// raced tells that the race detector makes everything slow.
const raced = false
