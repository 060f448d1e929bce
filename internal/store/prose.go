package store

import (
	"context"

	"historyd/internal/history"
)

// Summarise implements history.Log.
func (l *log) Summarise(ctx context.Context, epoch string, p history.Prose) error {
	return history.ErrPrecondition
}
