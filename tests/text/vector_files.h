// vector_files.h - reads tests/text/vectors (made by tools/golden/tokenizer_vectors.mjs) for the tests of the
// tokenisers.
#pragma once
#include "testing.h"
#include <jansson.h>
#include <stdlib.h>
#include "text/tokenizer/tokenizer.h"

static inline json_t *vector_file(const char *name)
{
    char path[512];
    json_error_t why;
    snprintf(path, sizeof path, "%s/tests/text/vectors/%s.json", SOURCE_DIR, name);
    json_t *json = json_load_file(path, JSON_ALLOW_NUL, &why);
    if (!json)
        fail_msg("%s line %d: %s", path, why.line, why.text);
    return json;
}

// The tokenizer.json of a kind: its steps, around the vocabulary that it names. Free with free.
static inline char *vector_tokenizer_json(const json_t *kind)
{
    char name[64];
    snprintf(name, sizeof name, "vocab_%s", json_string_value(json_object_get(kind, "vocab")));
    json_t *root = vector_file(name);
    json_object_update(root, json_object_get(kind, "steps"));
    json_object_update(json_object_get(root, "model"), json_object_get(kind, "model"));
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    assert_non_null(text);
    return text;
}

static inline struct str vector_text(const json_t *texts, size_t i)
{
    const json_t *text = json_array_get(texts, i);
    return (struct str){ json_string_value(text), json_string_length(text) };
}

static inline uint32_t vector_hash(uint32_t h, uint32_t value)
{
    for (int i = 0; i < 32; i += 8)
        h = (h ^ (value >> i & 255)) * 16777619u;
    return h;
}

static inline uint32_t vector_expected(const json_t *kind, const char *list, size_t i)
{
    const char *hex = json_string_value(json_object_get(kind, list)) + i * 8;
    uint32_t value = 0;
    for (int j = 0; j < 8; j++)
        value = value << 4 | (uint32_t)(hex[j] <= '9' ? hex[j] - '0' : hex[j] - 'a' + 10);
    return value;
}
