package prometheus

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	grafana "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// schemaVersion is the newest of which the schema is here.
const schemaVersion = 42

// unfit is what Grafana's schema has against a dashboard, panels and queries included.
func unfit(text []byte) (wrong []string) {
	plugins.RegisterDefaultPlugins()
	var d grafana.Dashboard
	err := d.UnmarshalJSONStrict(text)
	var all cog.BuildErrors
	if err != nil && !errors.As(err, &all) {
		return []string{err.Error()}
	}
	for _, e := range all {
		// What is not given has a default in Grafana, where the schema wants all.
		if e.Message != "required field is missing from input" {
			wrong = append(wrong, e.Error())
		}
	}
	if len(wrong) > 0 {
		return wrong
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return []string{err.Error()}
	}
	if err := d.Validate(); err != nil {
		wrong = append(wrong, err.Error())
	}
	if d.SchemaVersion < 36 || d.SchemaVersion > schemaVersion { // before 36 a data source was a name
		wrong = append(wrong, "the schema version is of another time")
	}
	return wrong
}

func TestTheDashboardFitsTheSchemaOfGrafana(t *testing.T) {
	text, err := os.ReadFile("../../deploy/grafana/historyd.json")
	if err != nil {
		t.Fatal(err)
	}
	if wrong := unfit(text); len(wrong) > 0 {
		t.Errorf("the schema has against it: %q", wrong)
	}
	known := []string{units.NoUnit, units.PercentUnit, units.BytesIEC, units.BytesPerSecondSI, units.Seconds, units.OpsPerSecond, units.RequestsPerSecond}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	used := unitsIn(v)
	if len(used) < 30 {
		t.Errorf("only %d units are found", len(used))
	}
	for _, unit := range used {
		if !slices.Contains(known, unit) {
			t.Errorf("unit %q: want one of %q", unit, known)
		}
	}
}

// unitsIn are the units of all fields and overrides.
func unitsIn(v any) (all []string) {
	switch v := v.(type) {
	case []any:
		for _, v := range v {
			all = append(all, unitsIn(v)...)
		}
	case map[string]any:
		if unit, ok := v["unit"].(string); ok {
			all = append(all, unit)
		}
		if unit, ok := v["value"].(string); ok && v["id"] == "unit" {
			all = append(all, unit)
		}
		for _, v := range v {
			all = append(all, unitsIn(v)...)
		}
	}
	return all
}

// A schema that lets everything pass would be none.
func TestWhatGrafanaDoesNotKnowIsFound(t *testing.T) {
	text, err := os.ReadFile("../../deploy/grafana/historyd.json")
	if err != nil {
		t.Fatal(err)
	}
	for was, is := range map[string]string{
		`"refId": "A"`:          `"refID": "A"`,
		`"gridPos": {`:          `"gridpos": {`,
		`"legendFormat":`:       `"legend":`,
		`"colorMode":`:          `"colourMode":`,
		`"schemaVersion": 39`:   `"schemaVersion": 16`,
		`"expr": `:              `"expr": 1, "x": `,
		`"editable": true`:      `"editable": "true"`,
		`"displayMode": "list"`: `"displayMode": 1`,
	} {
		if !strings.Contains(string(text), was) {
			t.Errorf("%s is not in it", was)
		}
		if wrong := unfit([]byte(strings.Replace(string(text), was, is, 1))); len(wrong) == 0 {
			t.Errorf("%s instead of %s is not found", is, was)
		}
	}
}
