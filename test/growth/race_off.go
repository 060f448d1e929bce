//go:build !race

package growth

// Raced tells that the race detector looks at each byte that is handed on, however little is done with it.
const Raced = false
