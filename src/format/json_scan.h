// json_scan.h - JSON as a stream of tokens over the text itself.
//
// Strict (RFC 8259), one pass, no recursion, no memory: a safetensors header may be 100 MB and comes from
// anyone, and a tree of it would take twenty times its size. Strings are slices of the text; json_unescape
// unescapes one. Python's NaN and Infinity are accepted as numbers, since config.json is written by Python.
// Private to format/; elsewhere jansson is used.
#pragma once
#include "base/arena.h"

enum json_token {
    JSON_ERROR, // scan->problem says what, scan->pos where
    JSON_END,
    JSON_OBJECT,
    JSON_OBJECT_END,
    JSON_ARRAY,
    JSON_ARRAY_END,
    JSON_KEY,
    JSON_STRING,
    JSON_NUMBER,
    JSON_TRUE,
    JSON_FALSE,
    JSON_NULL,
};

enum { JSON_MAX_DEPTH = 64 };

struct json_scan {
    struct str all;
    size_t pos;
    struct str text; // of a key, string (between the quotes, still escaped) or number
    bool escaped;    // text holds a backslash
    const char *problem;
    uint32_t depth;
    bool in_object[JSON_MAX_DEPTH];
    bool after_value, after_key, after_comma;
};

struct json_scan json_begin(struct str text);
enum json_token json_next(struct json_scan *scan);
// Passes over the value whose first token was just read.
bool json_skip(struct json_scan *scan, enum json_token first);
// The key or string just read, unescaped: a slice of the text when nothing was escaped, otherwise a copy in
// arena. False, with `problem` set, on a bad escape, invalid UTF-8 or no memory.
bool json_unescape(struct json_scan *scan, struct arena *arena, struct str *value);
