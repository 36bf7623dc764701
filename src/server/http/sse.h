// sse.h - server-sent events: one JSON object per event.
#pragma once
#include <jansson.h>
#include "base/str.h"

// "data: JSON" and an empty line, with "event: NAME" before it when there is a name. Takes value.
void sse_event(struct buf *out, const char *name, json_t *value);
// Appends compact JSON. Takes value.
void sse_json(struct buf *out, json_t *value);
// A JSON string. If the text is not UTF-8, bytes that are not ASCII become "?".
json_t *sse_text(const char *text);
// Appends UTF-8 text in the form that it has between the quotes of a JSON string.
void sse_escape(struct buf *out, struct str text);
