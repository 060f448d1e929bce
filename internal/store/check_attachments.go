package store

import (
	"errors"
	"io/fs"
	"slices"

	"historyd/internal/history"
)

// checkAttachments looks through the attachments of a conversation, and returns
// those that are there, by hash. told are the directories of which something was told.
func (c *checker) checkAttachments(dir string, told map[string]bool) map[string]bool {
	there := map[string]bool{}
	for _, name := range []string{attachmentsName, typesName} {
		for _, e := range c.list(directory{dir + "/" + name, told[name]}) {
			file := dir + "/" + name + "/" + e.Name
			closed := c.checkMode(file, e)
			if _, ok := history.AttachmentHash(history.AttachmentScheme + e.Name); !ok || e.Dir {
				c.report(Finding{file, "unknown", "not a file of historyd's"})
				continue
			}
			if name == attachmentsName {
				there[e.Name] = true
				c.checkAttachment(dir, e.Name, e.Size, closed)
			}
		}
	}
	return there
}

// checkAttachment reads one. Of one that lets others in the mode is told, which is why nobody reads it.
func (c *checker) checkAttachment(dir, digits string, size int64, closed bool) {
	c.sum.Attachments++
	c.sum.Bytes += size
	there, right, err := shelf{&Store{fsys: c.fsys}, transcriptKey{}, dir}.look(digits)
	switch {
	case !closed:
	case err != nil:
		c.report(Finding{dir + "/" + attachmentsName + "/" + digits, "damage", "cannot be read"})
	case there && !right:
		c.report(Finding{dir + "/" + attachmentsName + "/" + digits, "damage", "does not hold the bytes that its name says"})
	}
}

// named reports the attachments that a message names and the conversation does not
// hold, each once.
func (k *chain) named(n int, m *history.Message) {
	m.MediaBlocks(func(b *history.Block) {
		digits, ok := history.AttachmentHash(b.Attachment)
		if _, known := k.attachments[digits]; !ok || known {
			return
		}
		k.attachments[digits] = false
		if _, err := k.fsys.ReadDir(k.dir); errors.Is(err, fs.ErrNotExist) {
			return // cleared meanwhile
		}
		k.found(n, "damage", "message %d names an attachment that is not there", m.Seq)
	})
}

// rewind checks what a line says that ends the conversation at a message.
func (k *chain) rewind(n int, it item, c *commit) {
	if c.Rewind == nil {
		return
	}
	if c.First <= c.Last || c.Rewind.Through < 0 || c.Rewind.Through > c.Last {
		k.found(n, "damage", "the line at offset %d rewinds to a message that is not there", it.off)
		return
	}
	k.rewound = k.rewound.through(c.Rewind.Through, c.Last)
	if c.Rewind.Spans == nil {
		return
	}
	listed := spansOf(c.Rewind)
	if !slices.Equal(listed, k.rewound) && k.checker.sum.Findings == 0 {
		k.found(n, "damage", "the line at offset %d lists other rewound messages than the lines before it", it.off)
	}
	k.rewound = listed
}
