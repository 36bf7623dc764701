// api_request_scan.h - scans JSON text before it is parsed: it counts the values, and leaves out those of
// unknown fields.
//
// A parsed value takes up to a hundred times the bytes of its text ("{},"). So the number of values is
// bounded, and a list or an object under an unknown name is replaced by `false`. Not here: whether the text
// is valid JSON; what is left out is not checked.
#pragma once
#include "base/err.h"
#include "base/str.h"

enum { API_REQUEST_MAX_VALUES = 256 << 10 }; // objects and lists count twice

struct api_request_names {
    bool (*known)(unsigned dialect, struct str name);
    unsigned dialect;
};

// Returns the text; if something was left out, `room` holds it. names: NULL leaves nothing out. Too many
// values: an empty string and an error.
struct str api_request_scan(struct str text, const struct api_request_names *names, struct buf *room,
                            struct err *err);
