package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"historyd/internal/history"
)

// classify gives an error of the file system its class.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, history.ErrGone), errors.Is(err, history.ErrFull), errors.Is(err, history.ErrUnavailable),
		errors.Is(err, history.ErrDamaged), errors.Is(err, history.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return fmt.Errorf("%w: %w", history.ErrFull, err)
	}
	return fmt.Errorf("%w: %w", history.ErrUnavailable, err)
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// shortName is what a log shows of a conversation: the beginning of its directory's hash.
func shortName(dir string) string {
	base := dir[strings.LastIndexByte(dir, '/')+1:]
	return base[:min(12, len(base))]
}
