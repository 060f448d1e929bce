package recall

import "strings"

// stemMark begins a term that stands for all forms of a word. No token begins so.
const stemMark = "\x01"

// stem is what the forms of an English word have in common, roughly, and the word itself where it has no ending. It
// need not be a word. For other languages it does little: only plain ASCII letters count.
func stem(word []byte) []byte {
	if n := len(word) - 2; n > 0 && word[n-1] >= '0' && word[n-1] <= '9' {
		switch string(word[n:]) {
		case "st", "nd", "rd", "th":
			return word[:n]
		}
	}
	if len(word) < 4 {
		return word
	}
	for _, c := range word {
		if c < 'a' || c > 'z' {
			return word
		}
	}
	s := word
	if n := len(s); s[n-1] == 's' && s[n-2] != 's' && s[n-2] != 'u' && s[n-2] != 'i' {
		s = s[:n-1]
		if cut := ending(s, "ie", 2); cut != nil {
			return append(cut[:len(cut):len(cut)], 'y')
		}
	}
	for _, e := range []struct {
		text string
		left int
	}{{"ation", 5}, {"ing", 3}, {"ed", 3}, {"e", 3}} {
		if cut := ending(s, e.text, e.left); cut != nil {
			if e.text == "ed" && cut[len(cut)-1] == 'i' {
				return append(cut[:len(cut)-1:len(cut)-1], 'y')
			}
			s = cut
			break
		}
	}
	if n := len(s); n > 3 && s[n-1] == s[n-2] && !strings.ContainsRune("aeiou", rune(s[n-1])) {
		s = s[:n-1]
	}
	return s
}

// ending returns what is left of s without an ending; nil when it has none, or too little is left.
func ending(s []byte, text string, left int) []byte {
	if len(s) < len(text)+left || !strings.HasSuffix(string(s), text) {
		return nil
	}
	return s[:len(s)-len(text)]
}

// common are English words that say nothing of what a text is about, though some are rare in it.
var common = func() map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(`a about after again all also am an and any are aren as at be been before being but by can could couldn
		did didn do does doesn doing don for from get got had hadn has hasn have haven having he her here him his how i if in into
		is isn it its just ll may me might mustn my no nor not of off on or our out over own please re she should shouldn since so
		some such t than that the their them then there these they this those to too up us ve very was wasn we were weren what
		when where which while who whom whose why will with would wouldn you your`) {
		m[w] = true
	}
	return m
}()
