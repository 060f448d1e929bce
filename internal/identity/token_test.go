package identity

import (
	"regexp"
	"strings"
	"testing"
)

func TestTokensAreWellFormedAndDifferent(t *testing.T) {
	shape := regexp.MustCompile(`^hd_[0-9A-Za-z]{49}$`)
	seen := map[string]bool{}
	for range 1000 {
		token := newToken()
		if !shape.MatchString(token) || !WellFormed(token) || seen[token] {
			t.Fatalf("a token of %d characters is not of the shape, or not new", len(token))
		}
		seen[token] = true
		if id := newTokenID(); WellFormed(id) || !strings.HasPrefix(id, tokenIDPrefix) || seen[id] {
			t.Fatalf("token id %q", id)
		}
	}
}

func TestEveryCharacterOfATokenIsDrawnEvenly(t *testing.T) {
	count := map[rune]int{}
	const n = 62 * 2000
	for _, c := range random62(n) {
		count[c]++
	}
	for _, c := range base62 {
		if got := count[c]; got < 1700 || got > 2300 { // 2000, give or take 6.7 standard deviations
			t.Errorf("%q came %d times of %d", c, got, n)
		}
	}
}

func TestATokenIDIsAWordThatIsNoFlagAndNoToken(t *testing.T) {
	for _, id := range []string{newTokenID(), "a", "7", "tok_1", "a.b_c-D", "laptop-", strings.Repeat("x", maxTokenID)} {
		if !validTokenID(id) {
			t.Errorf("%q is refused", id)
		}
	}
	for _, id := range []string{
		"", "-a", "_a", ".a", "~a", "a~b", "a b", "a/b", "é", "a\n", "a\x00", "a\xffb", newToken(), tokenPrefix + "a",
		strings.Repeat("x", maxTokenID+1),
	} {
		if validTokenID(id) {
			t.Errorf("%q is accepted", id)
		}
	}
}

func TestATypingErrorIsNoToken(t *testing.T) {
	const token = "hd_" + "0000000000000000000000000000000000000000000" + "27jcQ4"
	body := token[:tokenLen-tokenCheck]
	check := checksum(body)
	if got := body + string(check[:]); got != token {
		t.Fatalf("the checksum changed: got %s, want %s", got, token)
	}
	for i := range token {
		for _, c := range []byte("0aZ-_ \x00\xff") {
			typo := token[:i] + string([]byte{c}) + token[i+1:]
			if got, want := WellFormed(typo), typo == token; got != want {
				t.Errorf("WellFormed(%q) = %v", typo, got)
			}
		}
		if WellFormed(token[:i]) || WellFormed(token[:i]+token[i+1:]) || WellFormed(token[:i]+"0"+token[i:]) {
			t.Errorf("a token with a character too few or too many at %d is well formed", i)
		}
	}
}
