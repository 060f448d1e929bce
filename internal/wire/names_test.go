package wire

import (
	"crypto/sha256"
	"strings"
	"testing"

	"historyd/internal/history"
)

// alike finds two names whose hashes begin with the same 32 bits, and of which nothing
// stays but their length.
func alike() (a, b string) {
	met := map[[4]byte]string{}
	for i := rune(0); ; i++ {
		name := string([]rune{0x4e00 + i%9000, 0x4e00 + i/9000%9000, 'ü'})
		sum := sha256.Sum256([]byte(name))
		short := [4]byte(sum[:])
		if other, there := met[short]; there {
			return other, name
		}
		met[short] = name
	}
}

func TestNamesWhoseHashesBeginAlikeStayApart(t *testing.T) {
	a, b := alike()
	for _, f := range providerFormats() {
		out := Render(f, Show{Messages: calling(a, b), Added: []Declaration{{Name: a}, {Name: b, Refusal: "Not callable."}}})
		if len(out.Names) != 2 || len(out.Refusals) != 1 || out.Names[out.Refusals[0].Name] != b {
			t.Errorf("%s: %q and %q are declared as %q, refused %v", f, a, b, out.Names, out.Refusals)
		}
		for mapped, original := range out.Names {
			if calls, tools := strings.Count(string(out.Messages), `"`+mapped+`"`), strings.Count(string(out.Tools), `"`+mapped+`"`); calls == 0 || tools != 1 {
				t.Errorf("%s: %q is called %d times and declared %d times by %s", f, original, calls, tools, mapped)
			}
		}
	}
}

// A name that somebody looks for on purpose costs as much as half of the bits.
func TestAMappedNameEndsInMostOfItsHash(t *testing.T) {
	const bits = 128
	for f, rule := range nameRules {
		for _, original := range []string{"", ".", "a.b", "9", "-x", "ü", strings.Repeat("n", 300), strings.Repeat("é", 300)} {
			n := naming{rule: rule}
			mapped := n.name(original)
			if mapped == original {
				continue
			}
			_, hash, _ := strings.Cut(mapped[max(0, len(mapped)-bits/4-1):], "_")
			if !rule.legal(mapped) || len(hash) != bits/4 || strings.Trim(hash, "0123456789abcdef") != "" {
				t.Errorf("%s: %q becomes %q", f, original, mapped)
			}
			if outside := WrittenName(f, original); outside != mapped {
				t.Errorf("%s: %q becomes %q, and outside of a render %q", f, original, mapped, outside)
			}
		}
	}
}

// The names in calls, in results and in declarations are the same in every request that
// holds the call, whatever else is in it.
func TestAMappedNameDependsOnNothingElse(t *testing.T) {
	for _, f := range providerFormats() {
		mapped := map[string]bool{}
		for _, before := range [][]string{nil, {"a"}, {"b.c", "", "ü"}} {
			msgs := calling(append(before, "find.me")...)
			for i := range msgs {
				msgs[i].Status = history.Complete
			}
			for name, original := range Render(f, Show{Messages: msgs, Added: []Declaration{{Name: "find.me"}}}).Names {
				if original == "find.me" {
					mapped[name] = true
				}
			}
		}
		if len(mapped) != 1 {
			t.Errorf("%s: find.me is %v", f, mapped)
		}
	}
}
