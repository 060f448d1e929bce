package api

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Labels of routes that are none.
const (
	refused   = "refused"   // a request that did not get as far as a route
	unmatched = "unmatched" // one whose path or method is none of ours
)

// methods are those with a label of their own.
var methods = []string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"}

func methodLabel(method string) string {
	if slices.Contains(methods, method) {
		return method
	}
	return "other"
}

// classNames are the values of the label class: those of the status, and one for
// clients that did not wait for it.
var classNames = [...]string{"2xx", "3xx", "4xx", "5xx", "canceled"}

// metrics have labels from closed sets only: no path, name, caller or id.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
	panics   prometheus.Counter
	refusals *prometheus.CounterVec
	problems map[string]prometheus.Counter // by code
	replays  map[replayKind]prometheus.Counter

	none map[string]map[string]*route // refused and unmatched, by method label
}

// series are those of one route and method, looked up once.
type series struct {
	requests [len(classNames)]prometheus.Counter
	seconds  prometheus.Observer
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	m := &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "historyd_http_requests_total",
			Help: "Requests by route template, method and class of the status.",
		}, []string{"route", "method", "class"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:                            "historyd_http_request_duration_seconds",
			Help:                            "Time from the end of a request's header to the end of its response.",
			Buckets:                         []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  100,
			NativeHistogramMinResetDuration: time.Hour,
		}, []string{"route", "method"}),
		inFlight: f.NewGauge(prometheus.GaugeOpts{
			Name: "historyd_http_requests_in_flight",
			Help: "Requests without an answer yet: served, or waiting for a place.",
		}),
		panics: f.NewCounter(prometheus.CounterOpts{
			Name: "historyd_http_panics_total",
			Help: "Panics while serving a request.",
		}),
		refusals: f.NewCounterVec(prometheus.CounterOpts{
			Name: "historyd_http_unauthenticated_total",
			Help: "Failed authentications by reason: missing, invalid.",
		}, []string{"reason"}),
		problems: map[string]prometheus.Counter{},
		replays:  map[replayKind]prometheus.Counter{},
		none:     map[string]map[string]*route{},
	}
	for _, reason := range []string{"missing", "invalid"} {
		m.refusals.WithLabelValues(reason)
	}
	problems := f.NewCounterVec(prometheus.CounterOpts{
		Name: "historyd_http_errors_total",
		Help: "Errors answered, by the code that the client got.",
	}, []string{"code"})
	for _, c := range codes {
		m.problems[c.name] = problems.WithLabelValues(c.name)
	}
	replays := f.NewCounterVec(prometheus.CounterOpts{
		Name: "historyd_replays_total",
		Help: "Replays by mode, format and result: cached, rendered, unchanged (304), failed.",
	}, []string{"mode", "format", "result"})
	for _, want := range []shape{{}, {full: true}} {
		for _, format := range messageFormats {
			for _, result := range []string{cached, rendered, unchanged, failed} {
				m.replays[replayKind{want.mode(), format, result}] = replays.WithLabelValues(want.mode(), string(format), result)
			}
		}
	}
	for _, name := range []string{refused, unmatched} {
		m.none[name] = map[string]*route{}
		for _, method := range append(slices.Clone(methods), "other") {
			m.none[name][method] = m.route(method, name)
		}
	}
	return m
}

// A route is a method and a template of paths.
type route struct {
	pattern string
	named   bool           // the path names the conversation
	series  func() *series // they begin when the route is first used
}

func (m *metrics) route(method, pattern string) *route {
	return &route{pattern: pattern, series: sync.OnceValue(func() *series {
		s := &series{seconds: m.seconds.WithLabelValues(pattern, method)}
		for i, class := range classNames {
			s.requests[i] = m.requests.WithLabelValues(pattern, method, class)
		}
		return s
	})}
}

func (rt *route) template() string {
	if rt == nil {
		return refused
	}
	return rt.pattern
}

func (m *metrics) observe(x *exchange, method string, took time.Duration) {
	rt := x.route
	if rt == nil {
		rt = m.none[refused][methodLabel(method)]
	}
	class := max(x.status, 200)/100 - 2
	if x.gone {
		class = len(classNames) - 1
	}
	s := rt.series()
	s.requests[class].Inc()
	s.seconds.Observe(took.Seconds())
}

func (m *metrics) unauthenticated(reason string) { m.refusals.WithLabelValues(reason).Inc() }

// scraper serves what the gatherer has.
func scraper(g prometheus.Gatherer) http.Handler {
	if g == nil {
		g = prometheus.NewRegistry()
	}
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}
