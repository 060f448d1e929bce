package judge

import "strings"

// The blocks of the Messages API.

// block has the members of its type, and may have a marker of the prompt cache.
func block(c *checker, v *value, fields ...field) {
	c.object(v, append(fields, need("type", anything), may("cache_control", cacheControl))...)
}

func cacheControl(c *checker, v *value) {
	if v.kind == 'n' {
		return
	}
	c.object(v, need("type", oneOf("ephemeral")), may("ttl", oneOf("5m", "1h")))
	if text := v.parent.member("text"); text != nil && text.text == "" {
		c.complain(v, "marks an empty block")
	}
}

// The blocks that the roles and the results may hold.
var (
	anthropicSaid = map[string]check{
		"text": textBlock, "image": imageBlock, "document": documentBlock, "search_result": searchResult, "tool_result": toolResult,
		"container_upload": func(c *checker, v *value) { block(c, v, need("file_id", nonEmpty)) },
	}
	anthropicResult = map[string]check{
		"text": textBlock, "image": imageBlock, "document": documentBlock, "search_result": searchResult,
		"tool_reference": func(c *checker, v *value) { block(c, v, need("tool_name", nonEmpty)) },
	}
	anthropicAnswered = map[string]check{
		"text": textBlock, "tool_use": toolUse, "server_tool_use": serverToolUse,
		"web_search_tool_result": served(searchFound), "web_fetch_tool_result": served(typedContent), "code_execution_tool_result": served(typedContent),
		"bash_code_execution_tool_result": served(typedContent), "text_editor_code_execution_tool_result": served(typedContent),
		"tool_search_tool_result": served(typedContent), "advisor_tool_result": served(typedContent),
		"thinking": func(c *checker, v *value) {
			c.object(v, need("type", anything), need("thinking", isString), need("signature", nonEmpty))
		},
		"redacted_thinking": func(c *checker, v *value) { c.object(v, need("type", anything), need("data", nonEmpty)) },
		"mcp_tool_use": func(c *checker, v *value) {
			block(c, v, need("id", callID), need("name", nonEmpty), need("server_name", nonEmpty), need("input", isObject))
		},
		"mcp_tool_result": func(c *checker, v *value) {
			block(c, v, need("tool_use_id", callID), may("is_error", isBool), may("content", resultContent))
		},
		"compaction": func(c *checker, v *value) {
			block(c, v, need("content", orNull(nonEmpty)), may("encrypted_content", orNull(isString)))
		},
	}
)

func toolUse(c *checker, v *value) {
	block(c, v, need("id", callID), need("name", toolName(128, "")), need("input", isObject), may("caller", isObject))
	c.call(v.member("name"))
}

// served is the result of a tool that the provider runs.
func served(content check) check {
	return func(c *checker, v *value) {
		block(c, v, need("tool_use_id", callID), need("content", content), may("caller", isObject))
	}
}

// typedContent is what such a tool gave, or its error.
func typedContent(c *checker, v *value) {
	if isObject(c, v); v.kind == '{' && v.str("type") == "" {
		c.complain(v, "lacks type: field required")
	}
}

// searchFound is a list of what was found, or an error.
func searchFound(c *checker, v *value) {
	if v.kind == '{' {
		c.object(v, need("type", oneOf("web_search_tool_result_error")), need("error_code", nonEmpty))
		return
	}
	c.list(v, 0, func(c *checker, v *value) {
		c.object(v, need("type", oneOf("web_search_result")), need("url", isString), need("title", isString),
			need("encrypted_content", nonEmpty), may("page_age", orNull(isString)))
	})
}

// callID is an id of a call.
func callID(c *checker, v *value) {
	if isString(c, v); v.kind == '"' && !matches(v.text, len(v.text), "") {
		c.complain(v, "must match ^[a-zA-Z0-9_-]+$")
	}
}

func textBlock(c *checker, v *value) {
	block(c, v, need("text", func(c *checker, v *value) {
		if isString(c, v); v.kind == '"' && v.text == "" {
			c.complain(v, "is empty: text content blocks must be non-empty")
		}
	}), may("citations", orNull(isList)))
}

func imageBlock(c *checker, v *value) {
	block(c, v, need("source", func(c *checker, v *value) {
		c.typed(v, "an image", map[string]check{
			"base64": func(c *checker, v *value) {
				c.object(v, need("type", anything), need("media_type", oneOf("image/jpeg", "image/png", "image/gif", "image/webp")),
					need("data", func(c *checker, v *value) {
						data, _ := base64Of(c, v)
						c.image(v, v.text)
						c.sides(v, data)
					}))
			},
			"url": func(c *checker, v *value) {
				c.object(v, need("type", anything), need("url", webURL))
				c.image(v, "")
			},
			"file": func(c *checker, v *value) {
				c.object(v, need("type", anything), need("file_id", nonEmpty))
				c.image(v, "")
			},
		})
	}))
}

func documentBlock(c *checker, v *value) {
	c.documents++
	block(c, v, may("title", orNull(atMost(maxTitle))), may("context", orNull(nonEmpty)),
		may("citations", orNull(func(c *checker, v *value) { c.object(v, may("enabled", isBool)) })),
		need("source", func(c *checker, v *value) {
			c.typed(v, "a document", map[string]check{
				"base64": func(c *checker, v *value) {
					c.object(v, need("type", anything), need("media_type", oneOf("application/pdf")), need("data", func(c *checker, v *value) {
						if data, _ := base64Of(c, v); len(data) > maxFile {
							c.complain(v, "is a document of %d bytes: the limit is 32 MB", len(data))
						}
					}))
				},
				"text": func(c *checker, v *value) {
					c.object(v, need("type", anything), need("media_type", oneOf("text/plain")), need("data", nonEmpty))
				},
				"content": func(c *checker, v *value) {
					c.object(v, need("type", anything), need("content", documentContent))
				},
				"url":  func(c *checker, v *value) { c.object(v, need("type", anything), need("url", webURL)) },
				"file": func(c *checker, v *value) { c.object(v, need("type", anything), need("file_id", nonEmpty)) },
			})
		}))
}

func documentContent(c *checker, v *value) {
	if v.kind == '"' {
		spoken(c, v)
		return
	}
	c.list(v, 1, func(c *checker, v *value) {
		c.typed(v, "the content of a document", map[string]check{"text": textBlock, "image": imageBlock})
	})
}

func searchResult(c *checker, v *value) {
	block(c, v, need("source", nonEmpty), need("title", nonEmpty), may("citations", orNull(isObject)),
		need("content", listOf(1, func(c *checker, v *value) {
			c.typed(v, "a search result", map[string]check{"text": textBlock})
		})))
}

func toolResult(c *checker, v *value) {
	block(c, v, need("tool_use_id", callID), may("content", resultContent), may("is_error", isBool))
}

// resultContent is what a tool answered; one that answered nothing has none.
func resultContent(c *checker, v *value) {
	if v.kind == '"' {
		spoken(c, v)
		return
	}
	c.list(v, 0, func(c *checker, v *value) { c.typed(v, "a result", anthropicResult) })
	notBlank(c, v)
}

func serverToolUse(c *checker, v *value) {
	block(c, v, need("id", func(c *checker, v *value) {
		if callID(c, v); !strings.HasPrefix(v.text, "srvtoolu_") {
			c.complain(v, "must match ^srvtoolu_[a-zA-Z0-9_]+$")
		}
	}), need("name", func(c *checker, v *value) {
		if !strings.HasPrefix(v.text, "tool_search_") {
			oneOf("web_search", "web_fetch", "code_execution", "bash_code_execution", "text_editor_code_execution", "advisor")(c, v)
		}
	}), need("input", isObject), may("caller", isObject))
}
