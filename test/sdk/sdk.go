// Package sdk holds nothing. Its tests read replays with the clients that the providers
// publish. It is a module of its own, so that the daemon never links them.
package sdk
