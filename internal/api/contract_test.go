package api

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/go-chi/chi/v5"

	"historyd/internal/projection"
	"historyd/internal/wire"
)

var update = flag.Bool("update", false, "rewrite golden files")

// document is the contract as OpenAPI says it.
type document struct {
	*openapi3.T
	router routers.Router
}

func openDocument(t testing.TB) *document {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openAPI)
	must(t, err)
	doc.Servers = nil // tests listen elsewhere
	router, err := gorillamux.NewRouter(doc)
	must(t, err)
	return &document{doc, router}
}

func init() {
	// Bodies that are no JSON are compared by other tests.
	for _, media := range []string{"text/plain", "application/x-ndjson", "application/x-tar", "image/png"} {
		openapi3filter.RegisterBodyDecoder(media, func(body io.Reader, _ http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
			text, err := io.ReadAll(body)
			return string(text), err
		})
	}
}

// mustAllow holds a response to what the document says of its operation.
func (d *document) mustAllow(t testing.TB, req *http.Request, got reply) {
	t.Helper()
	if req.Method == http.MethodHead || len(got.body) > 1<<20 {
		return
	}
	route, vars, err := d.router.FindRoute(req)
	if err != nil {
		return
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: vars, Route: route},
		Status:                 got.status,
		Header:                 got.header,
		Options:                &openapi3filter.Options{IncludeResponseStatus: true},
	}
	input.SetBodyBytes([]byte(got.body))
	if err := openapi3filter.ValidateResponse(context.Background(), input); err != nil {
		t.Errorf("%s %s answered %d, which openapi.json does not allow: %v\n%.300s", req.Method, route.Path, got.status, err, got.body)
	}
}

func TestTheDocumentIsValid(t *testing.T) {
	if err := openDocument(t).Validate(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestTheDocumentHasTheRoutesAndNoOthers(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	var served, told []string
	must(t, chi.Walk(d.handler.(*server).router, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if method != http.MethodHead {
			served = append(served, method+" "+pattern)
		}
		return nil
	}))
	for path, item := range d.doc.Paths.Map() {
		for method := range item.Operations() {
			told = append(told, method+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(told)
	if !slices.Equal(served, told) {
		t.Errorf("served %q\ntold %q", served, told)
	}
}

// What a route says of the parameters that it knows is what the document says.
func TestTheDocumentHasTheParametersAndNoOthers(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for path, item := range d.doc.Paths.Map() {
		if path == "/metrics" {
			continue // takes whatever scrapers add
		}
		for method, op := range item.Operations() {
			var names []string
			for _, p := range op.Parameters {
				if p.Value.In == openapi3.ParameterInQuery {
					names = append(names, p.Value.Name)
				}
			}
			detail := "this route takes no parameters in the query"
			if names != nil {
				detail = "a parameter of the query is not known here; known are " + strings.Join(names, ", ")
				if len(names) == 1 {
					detail = "a parameter of the query is not known here; known is " + names[0]
				}
			}
			got := d.send(request{method: method, path: strings.ReplaceAll(path, "{c}", "x") + "?zzz=1", caller: "ann", body: bodyFor(method)})
			want(t, got, 400, "invalid_parameter")
			if p := got.problem(t); p.Detail != detail || strings.Contains(got.body, "zzz") {
				t.Errorf("%s %s: %q, want %q", method, path, p.Detail, detail)
			}
		}
	}
}

func bodyFor(method string) string {
	if method == http.MethodPost {
		return "{}"
	}
	return ""
}

func TestTheDocumentNamesEveryCode(t *testing.T) {
	var told []string
	for _, v := range openDocument(t).Components.Schemas["Problem"].Value.Properties["code"].Value.Enum {
		told = append(told, v.(string))
	}
	var ours []string
	for _, c := range codes {
		ours = append(ours, c.name)
	}
	slices.Sort(told)
	slices.Sort(ours)
	if !slices.Equal(told, ours) {
		t.Errorf("told %q\nours %q", told, ours)
	}
}

// The document's bounds of an append are those that its decoder has: at them it goes well, and past them it is refused.
func TestTheDocumentHasTheBoundsOfAnAppend(t *testing.T) {
	schemas := openDocument(t).Components.Schemas
	members := schemas["Append"].Value.Properties
	messages, names := members["messages"].Value.MaxItems, members["tool_categories"].Value.MaxProps
	granted := schemas["ReplayRequest"].Value.Properties["granted"].Value.MaxItems
	if messages == nil || names == nil || granted == nil || *granted != maxGranted {
		t.Fatalf("messages %v, names %v, granted %v, want bounds", messages, names, granted)
	}
	for _, over := range []int{0, 1} {
		const message = `{"role":"user","content":"x"}`
		var tools strings.Builder
		for i := range int(*names) + over {
			fmt.Fprintf(&tools, `,"t%d":"general"`, i)
		}
		for what, body := range map[string]string{
			"messages":        `{"messages":[` + message + strings.Repeat(","+message, int(*messages)-1+over) + `]}`,
			"tool_categories": `{"messages":[` + message + `],"tool_categories":{` + tools.String()[1:] + `}}`,
		} {
			if _, err := wire.DecodeAppend(wire.Native, []byte(body), 0); (err != nil) != (over > 0) {
				t.Errorf("%s, %d over the bound: %v", what, over, err)
			}
		}
	}
}

func TestTheTableOfErrorsIsAsItWas(t *testing.T) {
	var b strings.Builder
	for _, c := range codes {
		fmt.Fprintf(&b, "%d %s\n%s\n", c.status, c.name, newProblem(c.name).body("REQUEST"))
	}
	golden(t, "errors.golden", b.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(name, []byte(got), 0o644))
	}
	want, err := os.ReadFile(name)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s differs\n got %s\nwant %s", name, got, want)
	}
}

func TestTheDocumentIsServed(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	got := d.get("", "/openapi.json")
	if got.status != 200 || got.body != string(openAPI) || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("got %d, %d bytes", got.status, len(got.body))
	}
}
