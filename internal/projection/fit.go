package projection

import (
	"slices"

	"historyd/internal/history"
)

// Fit returns the newest whole turns whose estimate is at most maxTokens, how many
// older ones it left out, and whether even the newest, which always stays, is over.
// What comes before the first turn belongs to it.
func Fit(msgs []history.Message, maxTokens int64) (kept []history.Message, droppedTurns int, over bool) {
	starts := []int{0}
	for i, begun := 0, false; i < len(msgs); i++ {
		if !msgs[i].StartsTurn() {
			continue
		}
		if begun {
			starts = append(starts, i)
		}
		begun = true
	}
	total, end, first := int64(0), len(msgs), len(starts)-1
	for t := first; t >= 0; t-- {
		for i := starts[t]; i < end; i++ {
			total += EstimateTokens(&msgs[i])
		}
		if total > maxTokens && t < len(starts)-1 {
			break
		}
		over = total > maxTokens
		end, first = starts[t], t
		if over {
			break
		}
	}
	return slices.Clip(msgs[starts[first]:]), first, over
}
