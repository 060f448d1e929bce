package store

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/identity"
)

// TestBytesPutIntoASealedSegmentLoseNoLine inserts into a segment that others follow:
// what moves behind the place where the next one says that it ends is still served.
func TestBytesPutIntoASealedSegmentLoseNoLine(t *testing.T) {
	for _, insert := range []string{"{\"size\":12", "garbage\n", strings.Repeat("\x00", 512) + "\n", "\n"} {
		ctx := context.Background()
		fsys := crashfs.New()
		s, err := Open(Options{FS: fsys, NewID: counterIDs(), SegmentBytes: 3000})
		if err != nil {
			t.Fatal(err)
		}
		scope := scopeOf(t, identity.Operator, "ann", "")
		var want []string
		for i := 1; i <= 30; i++ {
			if _, err := s.Log(scope, "c").Append(ctx, batch(fmt.Sprint("m", i))); err != nil {
				t.Fatal(err)
			}
			want = append(want, fmt.Sprintf("%d:m%d", i, i))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		dir := transcriptsName + "/" + scope.Dir() + "/" + scope.Conversation("c") + "/"
		fsys.Corrupt(dir+segmentName(2), func(b []byte) []byte {
			at := bytes.IndexByte(b, '\n') + 1
			return append(append(bytes.Clone(b[:at]), insert...), b[at:]...)
		})
		s = mustOpen(t, fsys)
		if got := texts(t, s.Log(scope, "c")); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("insert %.12q: got %v", insert, got)
		}
		st, err := s.Log(scope, "c").State(ctx)
		if err != nil || st.Damage == nil {
			t.Errorf("insert %.12q: the damage is not told: %+v, %v", insert, st, err)
		}
		findings := 0
		if _, err := Check(ctx, fsys, func(Finding) { findings++ }, nil); err != nil || findings == 0 {
			t.Errorf("insert %.12q: check found %d, %v", insert, findings, err)
		}
	}
}
