// template.h - chat templates: the Jinja language, as the templates inside model files use it.
//
// A template is data from a file, the variables are data from a request: neither can crash, hang or exhaust
// the process. A template reads nothing but the variables; every operation costs fuel; depth, output, ranges
// and memory are bounded.
// The result equals that of Python's Jinja with trim_blocks and lstrip_blocks, byte for byte, in spans that
// tell the template's own text from text of the variables. Not here: includes, imports, inheritance,
// autoescape, custom filters.
#pragma once
#include <jansson.h>
#include "base/str.h"
#include "text/span.h"

struct template_limits {
    size_t source_bytes;  // of the template
    uint32_t parse_depth; // nesting of blocks and expressions
    uint32_t call_depth;  // macros within macros
    uint64_t fuel;        // about one per operation, and per 4 to 64 bytes worked on
    uint64_t range_items; // of one range()
    size_t output_bytes;  // of the result
    size_t memory_bytes;  // of one parse, and of one rendering
};
extern const struct template_limits template_limits_default;

struct template; // read-only after parsing: any number of threads

// limits: NULL for the defaults. The source is copied. A message names the line.
bool template_parse(struct template **t, struct str source, const struct template_limits *limits,
                    struct err *err);
void template_free(struct template *t); // NULL is allowed

struct template_output {
    struct text_span *spans; // neighbours differ in trust; empty spans are left out
    size_t n_spans;
    struct str text; // all spans joined
    struct arena *arena;
};

// variables: a JSON object: messages, tools, documents, add_generation_prompt, bos_token, eos_token, ...
// Strings from it are untrusted, except those of top-level names that end in "_token" and the well-known
// roles in messages[i].role. unix_time: what strftime_now shows, in the local time zone.
bool template_render_at(const struct template *t, json_t *variables, int64_t unix_time,
                        struct template_output *out, struct err *err);
bool template_render(const struct template *t, json_t *variables, struct template_output *out,
                     struct err *err); // now
void template_output_free(struct template_output *out);

// Whether the template reads a variable of this name ("tools", "enable_thinking").
bool template_uses(const struct template *t, const char *name);
