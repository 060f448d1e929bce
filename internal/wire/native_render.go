package wire

import "historyd/internal/history"

// renderNative writes what is there: whoever reads native form maps it himself, and
// the summary has a place beside the messages.
func renderNative(s *Show) Shown {
	var out Shown
	for i := range s.Messages {
		if i > 0 {
			out.Messages = append(out.Messages, ',')
		}
		out.Messages = history.AppendMessage(out.Messages, &s.Messages[i])
	}
	out.Tools, out.Refusals = s.declare(nil, func(o *object, d Declaration) {
		o.open()
		o.text("name", d.Name)
		if d.Refusal != "" {
			o.text("description", d.Refusal)
		}
		o.schema("parameters")
		o.close()
	})
	return out
}
