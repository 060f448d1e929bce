package store

import (
	"testing"

	"historyd/internal/history"
)

// What a repair put in the place of an image is no title.
func TestWhatARepairWroteIsNoTitle(t *testing.T) {
	mended := history.Text("[image: its bytes are missing]")
	mended.Synthetic = true
	m := user("see")
	m.Content = append([]history.Block{mended}, m.Content...)
	if got := titleOf(&m); got != "see" {
		t.Errorf("the title is %q", got)
	}
}
