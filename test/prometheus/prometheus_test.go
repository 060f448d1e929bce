package prometheus

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// exposed is what may be asked for: the series of a daemon and of its rules, and what Prometheus itself adds.
type exposed struct {
	series map[string][]map[string]string // labels of each, by name
	values map[string][]float64           // of each
	rules  map[string]bool                // names whose series are not known here
}

// given are the labels that Prometheus gives, whatever is scraped.
var given = []string{"job", "instance", "__name__"}

func newExposed(families map[string]*dto.MetricFamily) *exposed {
	e := &exposed{series: map[string][]map[string]string{"up": {{}}}, values: map[string][]float64{"up": {1}}, rules: map[string]bool{}}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			own := map[string]string{}
			for _, l := range m.GetLabel() {
				own[l.GetName()] = l.GetValue()
			}
			add := func(suffix, label, value string, sample float64) {
				all := maps.Clone(own)
				if label != "" {
					all[label] = value
				}
				e.series[name+suffix] = append(e.series[name+suffix], all)
				e.values[name+suffix] = append(e.values[name+suffix], sample)
			}
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				add("_sum", "", "", m.GetHistogram().GetSampleSum())
				add("_count", "", "", float64(m.GetHistogram().GetSampleCount()))
				for _, b := range m.GetHistogram().GetBucket() {
					add("_bucket", "le", fmt.Sprint(b.GetUpperBound()), float64(b.GetCumulativeCount()))
				}
			case dto.MetricType_SUMMARY:
				add("_sum", "", "", m.GetSummary().GetSampleSum())
				add("_count", "", "", float64(m.GetSummary().GetSampleCount()))
				for _, q := range m.GetSummary().GetQuantile() {
					add("", "quantile", fmt.Sprint(q.GetQuantile()), q.GetValue())
				}
			default:
				add("", "", "", m.GetCounter().GetValue()+m.GetGauge().GetValue()+m.GetUntyped().GetValue()) // one of them
			}
		}
	}
	return e
}

// check tells what of an expression asks for nothing that there is.
func (e *exposed) check(text string) (wrong []string) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return []string{err.Error()}
	}
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			wrong = append(wrong, e.selects(n)...)
		case *parser.AggregateExpr:
			for _, label := range n.Grouping {
				if !slices.Contains(given, label) && !e.carries(n.Expr, label) {
					wrong = append(wrong, "nothing in it has the label "+label)
				}
			}
		}
		return nil
	})
	return wrong
}

// selects tells whether a selector finds a series. What a dashboard lets its user choose does not count.
func (e *exposed) selects(n *parser.VectorSelector) (wrong []string) {
	if e.rules[n.Name] {
		return nil
	}
	own := func(m *labels.Matcher) bool { return slices.Contains(given, m.Name) }
	matchers := slices.DeleteFunc(slices.Clone(n.LabelMatchers), own)
	if !slices.ContainsFunc(e.series[n.Name], func(series map[string]string) bool {
		return !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool {
			value, has := series[m.Name]
			return !has || !m.Matches(value)
		})
	}) {
		wrong = append(wrong, fmt.Sprintf("no series is %s with %v: there are %v", n.Name, matchers, e.series[n.Name]))
	}
	// Each word of a choice is one that there is: a misspelt one would go unnoticed beside the others.
	for _, m := range matchers {
		if m.Type != labels.MatchRegexp || !regexp.MustCompile(`^[a-z_|]+$`).MatchString(m.Value) {
			continue
		}
		for word := range strings.SplitSeq(m.Value, "|") {
			if !slices.ContainsFunc(e.series[n.Name], func(series map[string]string) bool { return series[m.Name] == word }) {
				wrong = append(wrong, fmt.Sprintf("no series is %s with %s=%q", n.Name, m.Name, word))
			}
		}
	}
	return wrong
}

// carries reports whether something in an expression has a label.
func (e *exposed) carries(expr parser.Expr, label string) (found bool) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if n, ok := node.(*parser.VectorSelector); ok {
			found = found || slices.ContainsFunc(e.series[n.Name], func(series map[string]string) bool { _, has := series[label]; return has })
		}
		return nil
	})
	return found
}

// rules reads one of the files.
func rules(t *testing.T, name string) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(filepath.Join("../../deploy/prometheus", name), false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatalf("%s: %v", name, errs)
	}
	var list []rulefmt.Rule
	for _, g := range groups.Groups {
		list = append(list, g.Rules...)
	}
	return list
}

// What rules, alerts and dashboard ask for is there once a daemon has done a little of everything, and no alert is
// raised by it.
func TestEverythingThatIsAskedForIsExposed(t *testing.T) {
	d := newDaemon(t)
	d.traffic()
	families := d.scrape()
	e := newExposed(families)
	recorded := rules(t, "historyd.rules.yaml")
	for _, r := range recorded {
		e.rules[r.Record] = true
	}
	for _, r := range append(recorded, rules(t, "historyd.alerts.yaml")...) {
		for _, wrong := range e.check(r.Expr) {
			t.Errorf("%s%s: %s", r.Record, r.Alert, wrong)
		}
	}
	board := dashboard(t)
	asked := map[string]bool{}
	for title, expressions := range board.expressions(t) {
		for _, text := range expressions {
			for _, wrong := range e.check(text) {
				t.Errorf("panel %q: %s: %s", title, text, wrong)
			}
			for name := range families {
				asked[name] = asked[name] || strings.Contains(text, name)
			}
		}
	}
	for name := range families {
		if strings.HasPrefix(name, "historyd_") && !asked[name] && !slices.Contains(unasked, name) {
			t.Errorf("no panel shows %s", name)
		}
	}
	t.Run("the table of metrics is right", func(t *testing.T) { table(t, families) })
	t.Run("no alert is raised", func(t *testing.T) { quiet(t, e) })
	t.Run("promtool has nothing to say", func(t *testing.T) {
		check := exec.CommandContext(t.Context(), promtool(t), "check", "metrics")
		check.Stdin = strings.NewReader(d.ask(200, "GET", "/metrics", ""))
		if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("got %v and %s, want no word", err, out)
		}
	})
}

func promtool(t *testing.T) string {
	path := os.Getenv("PROMTOOL")
	if path == "" {
		t.Skip("no promtool: PROMTOOL names one, and make alerts fetches it")
	}
	return path
}

var (
	row  = regexp.MustCompile("(?m)^\\| (`historyd_[^|]*`) \\| (counter|gauge|histogram) \\|([^|]*)\\|")
	word = regexp.MustCompile("`([a-z_]+)`")
)

// table holds that of OPERATIONS.md to what is exposed: names, types and labels.
func table(t *testing.T, families map[string]*dto.MetricFamily) {
	page, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		var own []string
		for _, label := range word.FindAllStringSubmatch(m[3], -1) {
			own = append(own, label[1])
		}
		slices.Sort(own)
		for _, name := range word.FindAllStringSubmatch(m[1], -1) {
			told[name[1]] = true
			f := families[name[1]]
			if f == nil {
				if !slices.Contains(unseen, name[1]) {
					t.Errorf("%s is in the table and not exposed", name[1])
				}
				continue
			}
			var got []string
			for _, l := range f.GetMetric()[0].GetLabel() {
				got = append(got, l.GetName())
			}
			slices.Sort(got)
			if kind := strings.ToLower(f.GetType().String()); kind != m[2] || !slices.Equal(got, own) {
				t.Errorf("%s: the table says %s with labels %v, exposed is %s with %v", name[1], m[2], own, kind, got)
			}
		}
	}
	for name := range families {
		if strings.HasPrefix(name, "historyd_") && !told[name] {
			t.Errorf("%s is exposed and not in the table", name)
		}
	}
}

// unseen are metrics of what does not happen here; no rule and no panel asks for them.
var unseen = []string{"historyd_index_segments_dropped_total"}

// unasked have no panel: another one says the same.
var unasked = []string{"historyd_store_messages_total", "historyd_ready"}

// quiet lets promtool see the series of a healthy daemon for two hours.
func quiet(t *testing.T, e *exposed) {
	tool := promtool(t)
	type series struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	type expectation struct {
		Expr    string `json:"expr"`
		At      string `json:"eval_time"`
		Samples []int  `json:"exp_samples"`
	}
	var input []series
	for _, name := range slices.Sorted(maps.Keys(e.series)) {
		for i, own := range e.series[name] {
			selector := name + `{job="historyd", instance="a"`
			for _, label := range slices.Sorted(maps.Keys(own)) {
				selector += fmt.Sprintf(", %s=%q", label, own[label])
			}
			input = append(input, series{selector + "}", fmt.Sprintf("%vx150", e.values[name][i])})
		}
	}
	dir, err := filepath.Abs("../../deploy/prometheus")
	if err != nil {
		t.Fatal(err)
	}
	// JSON is YAML, too.
	text, err := json.Marshal(map[string]any{
		"rule_files":          []string{filepath.Join(dir, "historyd.rules.yaml"), filepath.Join(dir, "historyd.alerts.yaml")},
		"evaluation_interval": "1m",
		"tests": []any{map[string]any{
			"interval":     "1m",
			"input_series": input,
			"promql_expr_test": []expectation{
				{Expr: `ALERTS{severity!="info"}`, At: "5m"}, {Expr: `ALERTS{severity!="info"}`, At: "2h"},
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "quiet.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// board is what of a dashboard is looked at.
type board struct {
	UID        string  `json:"uid"`
	Title      string  `json:"title"`
	Panels     []panel `json:"panels"`
	Templating struct {
		List []struct {
			Name  string          `json:"name"`
			Type  string          `json:"type"`
			Query json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

type panel struct {
	ID         int                      `json:"id"`
	Type       string                   `json:"type"`
	Title      string                   `json:"title"`
	Datasource *source                  `json:"datasource"`
	Grid       struct{ H, W, X, Y int } `json:"gridPos"`
	Targets    []struct {
		Ref        string  `json:"refId"`
		Expr       string  `json:"expr"`
		Datasource *source `json:"datasource"`
	} `json:"targets"`
}

type source struct{ Type, UID string }

func dashboard(t *testing.T) *board {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/historyd.json")
	if err != nil {
		t.Fatal(err)
	}
	var b board
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	return &b
}

// variable is what Grafana puts in before it asks.
var variable = strings.NewReplacer("$__rate_interval", "5m")

// expressions are all that a dashboard asks for, by title of the panel, those of its variables included.
func (b *board) expressions(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], variable.Replace(target.Expr))
		}
	}
	choice := regexp.MustCompile(`label_values\((.*), *([a-z]+)\)`)
	for _, v := range b.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := choice.FindSubmatch([]byte(strings.ReplaceAll(string(v.Query), `\"`, `"`)))
		if m == nil {
			t.Errorf("variable %s: %s is not understood", v.Name, v.Query)
			continue
		}
		all["variable "+v.Name] = []string{fmt.Sprintf("count by (%s) (%s)", m[2], m[1])}
	}
	return all
}

func TestTheDashboardIsWhole(t *testing.T) {
	b := dashboard(t)
	if b.UID != "historyd" || b.Title != "historyd" || len(b.Panels) < 30 {
		t.Errorf("uid %q, title %q, %d panels", b.UID, b.Title, len(b.Panels))
	}
	names := map[string]string{}
	for _, v := range b.Templating.List {
		names[v.Name] = v.Type
	}
	if want := map[string]string{"datasource": "datasource", "job": "query", "instance": "query"}; !maps.Equal(names, want) {
		t.Errorf("variables: got %v, want %v", names, want)
	}
	chosen := source{Type: "prometheus", UID: "${datasource}"}
	ids, titles := map[int]bool{}, map[string]bool{}
	for i, p := range b.Panels {
		if p.ID <= 0 || ids[p.ID] || p.Title == "" || titles[p.Title] {
			t.Errorf("panel %d: id %d and title %q, want each once", i, p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		for _, q := range b.Panels[:i] {
			if g, o := p.Grid, q.Grid; g.X < o.X+o.W && o.X < g.X+g.W && g.Y < o.Y+o.H && o.Y < g.Y+g.H {
				t.Errorf("%q lies over %q", p.Title, q.Title)
			}
		}
		if g := p.Grid; g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%q is at %+v", p.Title, g)
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource == nil || *p.Datasource != chosen || len(p.Targets) == 0 {
			t.Errorf("%q asks %v for %d things, want what is chosen for some", p.Title, p.Datasource, len(p.Targets))
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if target.Datasource == nil || *target.Datasource != chosen || refs[target.Ref] || target.Ref == "" {
				t.Errorf("%q: %s asks %v under the name %q", p.Title, target.Expr, target.Datasource, target.Ref)
			}
			refs[target.Ref] = true
			// Else two daemons would be one.
			if !strings.Contains(target.Expr, `job="$job", instance=~"$instance"`) {
				t.Errorf("%q: %s asks for more than is chosen", p.Title, target.Expr)
			}
		}
	}
}

// A check that lets everything pass would be none.
func TestWhatIsNotExposedIsFound(t *testing.T) {
	e := &exposed{
		series: map[string][]map[string]string{"a_total": {{"result": "ok"}, {"result": "failed"}}, "b_bucket": {{"le": "1"}}},
		rules:  map[string]bool{"x:a:rate5m": true},
	}
	for text, want := range map[string]string{
		`rate(a_total{result="ok", job="x"}[5m])`:        "",
		`sum by (result, job) (rate(a_total[5m]))`:       "",
		`sum by (le) (rate(b_bucket[5m]))`:               "",
		`x:a:rate5m > 1`:                                 "",
		`rate(a_total{result=~"ok|failed"}[5m])`:         "",
		`rate(a_totl[5m])`:                               "no series is a_totl",
		`rate(a_total{result="okay"}[5m])`:               "no series is a_total",
		`rate(a_total{reslt="ok"}[5m])`:                  "no series is a_total",
		`rate(a_total{result=~"ok|faild"}[5m])`:          `result="faild"`,
		`sum by (reason) (rate(a_total[5m]))`:            "label reason",
		`x:b:rate5m > 1`:                                 "no series is x:b:rate5m",
		`sum(rate(a_total[5m])`:                          "parse error",
		`a_total > 1 unless b_bucket{le="2"} offset 10m`: "no series is b_bucket",
	} {
		got := strings.Join(e.check(text), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
