// Package prometheus holds nothing. Its tests hold the alerts and the dashboard to what a daemon exposes, with the
// parser of Prometheus. It is a module of its own, so that the daemon never links that.
package prometheus
