package replay_test

import (
	"fmt"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/test/replay"
)

func TestImagesOverTheLimitsGiveWay(t *testing.T) {
	for _, tt := range []struct {
		name    string
		sizes   []int // of images, the oldest first
		dropped []int // places of those that are to be gone
	}{
		{"too many", make([]int, 110), upTo(0, 21)}, // down to four fifths of 100, and nine more
		{"too large", []int{10, 6 << 20, 10}, upTo(1, 2)},
		{"too much in all", []int{10, 3_600_000, 3_600_000, 3_600_000, 3_600_000, 3_600_000}, upTo(0, 3)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if raced && tt.name != "too many" {
				t.Skip("SKIPPED: large images, because the race detector is on")
			}
			var msgs []history.Message
			for i, size := range tt.sizes {
				image := history.Block{Type: history.ImageBlock, MediaType: "image/png"}
				image.SetData([]byte(strings.Repeat("x", size) + fmt.Sprint(i)))
				msgs = append(msgs,
					history.Message{Role: history.User, Kind: history.Person, Content: []history.Block{image, history.Text(fmt.Sprintf("[[said %d]]", i+1))}},
					history.Message{Role: history.Assistant, Model: replay.Model, Content: []history.Block{history.Text("ok")}})
			}
			for _, f := range replay.Formats {
				r, problems := sent(f, msgs, replay.Asked{})
				if len(problems) > 0 {
					t.Fatalf("%s: %s", f, problems[0])
				}
				if got := r.Shown.Report.DroppedMedia; got != int64(len(tt.dropped)) {
					t.Errorf("%s: %d images are told as dropped, want %d", f, got, len(tt.dropped))
				}
				out := texts(r.Messages)
				for i := range tt.sizes {
					mark := fmt.Sprintf("[[said %d]]", i+1)
					if strings.Count(out, mark) != 1 {
						t.Errorf("%s: %s is lost", f, mark)
					}
				}
				for _, i := range tt.dropped {
					before, _, _ := strings.Cut(out, fmt.Sprintf("[[said %d]]", i+1))
					if !strings.Contains(before[max(0, len(before)-200):], "[image") {
						t.Errorf("%s: nothing stands for image %d", f, i)
					}
				}
			}
		})
	}
}

// upTo are the numbers from one up to another.
func upTo(from, to int) []int {
	var out []int
	for ; from < to; from++ {
		out = append(out, from)
	}
	return out
}
