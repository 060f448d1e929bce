package main

import "testing"

func TestADamageIsWithinOneOfEachKindAsMuch(t *testing.T) {
	for _, tt := range []struct {
		name     string
		d, other *damage
		want     bool
		says     string
	}{
		{"none", nil, nil, true, ""},
		{"a message, of none", &damage{Places: 1, Lost: 1}, nil, false, "1 message lost"},
		{"the same", &damage{Places: 3, Lost: 2, Attachments: 1}, &damage{Places: 3, Lost: 2, Attachments: 1}, true, "2 messages lost, 1 attachment lost"},
		{"an attachment, of a message", &damage{Places: 1, Attachments: 1}, &damage{Places: 1, Lost: 1}, false, "1 attachment lost"},
		{"a message, of an attachment", &damage{Places: 1, Lost: 1}, &damage{Places: 1, Attachments: 1}, false, "1 message lost"},
		{"a place, of two attachments", &damage{Places: 1}, &damage{Places: 2, Attachments: 2}, false, "1 place not readable"},
		{"an attachment, of two and a place", &damage{Places: 1, Attachments: 1}, &damage{Places: 3, Attachments: 2}, true, "1 attachment lost"},
		{"a place and an attachment", &damage{Places: 2, Attachments: 1}, &damage{Places: 2, Attachments: 1}, true, "1 attachment lost, 1 place not readable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.d.within(tt.other); got != tt.want {
				t.Errorf("%+v within %+v: got %t, want %t", tt.d, tt.other, got, tt.want)
			}
			if tt.d != nil && tt.d.String() != tt.says {
				t.Errorf("%+v says %q, want %q", tt.d, tt.d, tt.says)
			}
		})
	}
}
