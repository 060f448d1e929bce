package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"strings"
)

// A token is
//
//	hd_ | 43 random characters | 6 characters of checksum
//
// over the digits and letters of base 62. The 43 hold more than 256 bits of
// randomness. The checksum is the CRC-32 of all that comes before it, so that
// a typing error and a look-alike are told from a token without a look-up.
const (
	tokenPrefix = "hd_"
	tokenRandom = 43
	tokenCheck  = 6
	tokenLen    = len(tokenPrefix) + tokenRandom + tokenCheck

	// tokenIDPrefix differs from tokenPrefix, so that one is not taken for
	// the other: a token id is no secret.
	tokenIDPrefix = "tok_"
	tokenIDRandom = 12
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// newToken returns a fresh token.
func newToken() string {
	body := tokenPrefix + random62(tokenRandom)
	check := checksum(body)
	return body + string(check[:])
}

// newTokenID returns a name for a token that says nothing about it.
func newTokenID() string { return tokenIDPrefix + random62(tokenIDRandom) }

// maxTokenID is the longest token id, in bytes.
const maxTokenID = 128

// validTokenID reports whether the callers file may call a token by id: one word
// on a command line that is no flag, ^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$, and no
// token by its beginning.
func validTokenID(id string) bool {
	if id == "" || len(id) > maxTokenID || strings.HasPrefix(id, tokenPrefix) {
		return false
	}
	return strings.Trim(id, base62+"._-") == "" && strings.IndexByte(base62, id[0]) >= 0
}

// random62 returns n independent, evenly distributed base 62 characters.
func random62(n int) string {
	const even = 256 / len(base62) * len(base62) // bytes from here on would favour some characters
	out := make([]byte, 0, n)
	var buf [64]byte
	for len(out) < n {
		rand.Read(buf[:]) // never fails: the runtime ends the process instead
		for _, b := range buf {
			if int(b) < even && len(out) < n {
				out = append(out, base62[int(b)%len(base62)])
			}
		}
	}
	return string(out)
}

// checksum returns the CRC-32 of body as base 62 characters. It goes byte by
// byte because crc32.ChecksumIEEE would move its argument to the heap.
func checksum(body string) (out [tokenCheck]byte) {
	sum := ^uint32(0)
	for i := range len(body) {
		sum = crc32.IEEETable[byte(sum)^body[i]] ^ sum>>8
	}
	sum = ^sum
	for i := tokenCheck - 1; i >= 0; i-- {
		out[i] = base62[sum%uint32(len(base62))]
		sum /= uint32(len(base62))
	}
	return out
}

// WellFormed reports whether text could be a token: it has the shape and the
// checksum of one. It says nothing about whether the token is known.
func WellFormed(text string) bool {
	if len(text) != tokenLen || !strings.HasPrefix(text, tokenPrefix) {
		return false
	}
	for i := len(tokenPrefix); i < len(text); i++ {
		if strings.IndexByte(base62, text[i]) < 0 {
			return false
		}
	}
	check := checksum(text[:tokenLen-tokenCheck])
	return text[tokenLen-tokenCheck:] == string(check[:])
}

// hashToken is what is stored of a token. The token has full entropy, so a
// slow hash would add nothing.
func hashToken(token string) [sha256.Size]byte {
	var buf [tokenLen]byte // of fixed size, so that it stays on the stack
	if len(token) == len(buf) {
		copy(buf[:], token)
		return sha256.Sum256(buf[:])
	}
	return sha256.Sum256([]byte(token))
}
