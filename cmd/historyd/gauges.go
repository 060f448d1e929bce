package main

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// measure registers what only the daemon as a whole can tell. Everything that is asked
// here is open until the last request has been answered.
func (d *daemon) measure(reg prometheus.Registerer) {
	auto := promauto.With(reg)
	started := float64(time.Now().UnixMilli()) / 1000
	gauge := func(name, help string, value func() float64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	// That of the process needs a file of /proc which the unit hides.
	gauge("historyd_start_time_seconds", "When this daemon started, in seconds since 1970.", func() float64 { return started })
	gauge("historyd_ready", "1 while a write would be accepted, as /readyz says.", func() float64 { return one(d.engine.Ready() == nil) })
	gauge("historyd_callers_file_usable", "1 while the callers file as it is now is in force; otherwise the last good one is.", func() float64 { return one(d.registry.Usable()) })
	gauge("historyd_reload_ok", "1 until a reload has failed, and again when one works.", func() float64 { return one(!d.reloadFailed.Load()) })
	d.selfchecks = auto.NewCounterVec(prometheus.CounterOpts{
		Name: "historyd_selfchecks_total",
		Help: "Checks of the daemon by itself for the watchdog of systemd, by result: ok, unwritable, failed.",
	}, []string{"result"})
	for _, result := range []string{checkOK, checkUnwritable, checkFailed} {
		d.selfchecks.WithLabelValues(result)
	}
	reg.MustRegister(endpoints(d.endpoints))
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// buildGauge tells in a metric what runs here.
func buildGauge() prometheus.Collector {
	b := buildInfo()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "historyd_build_info",
		Help:        "What this daemon was built from; always 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Commit, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
}

// endpoints counts the connections of all listeners of a network together.
type endpoints []endpoint

// A headcount is what the listeners of one network have.
type headcount struct{ open, limit, waiting, evicted float64 }

// headcountDescs stand in the order of its fields.
func headcountDescs() []*prometheus.Desc {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"network"}, nil)
	}
	return []*prometheus.Desc{
		desc("historyd_connections", "Connections that have a place."),
		desc("historyd_connections_limit", "Places for connections."),
		desc("historyd_connections_waiting", "Connections that wait for a place."),
		desc("historyd_connections_evicted_total", "Idle connections that were closed because others needed their place."),
	}
}

// Describe is as in prometheus.Collector.
func (c endpoints) Describe(to chan<- *prometheus.Desc) {
	for _, d := range headcountDescs() {
		to <- d
	}
}

// Collect is as in prometheus.Collector.
func (c endpoints) Collect(to chan<- prometheus.Metric) {
	sums := map[string]*headcount{}
	for _, e := range c {
		if sums[e.network] == nil {
			sums[e.network] = &headcount{}
		}
		e.gate.addTo(sums[e.network])
	}
	descs := headcountDescs()
	for network, n := range sums {
		for i, v := range []float64{n.open, n.limit, n.waiting} {
			to <- prometheus.MustNewConstMetric(descs[i], prometheus.GaugeValue, v, network)
		}
		to <- prometheus.MustNewConstMetric(descs[3], prometheus.CounterValue, n.evicted, network)
	}
}
