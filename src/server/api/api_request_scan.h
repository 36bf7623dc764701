// api_request_scan.h - a look through JSON text before values are made of it: how many they would be, and
// which of them nobody will read.
//
// A value takes a hundred times the bytes of its text ("{},"). So their number is bounded, and a list or an
// object under a name that a request does not have is left out: `false` stands in its place. Not here:
// whether the text is JSON at all; what is left out is not asked.
#pragma once
#include "base/err.h"
#include "base/str.h"

enum { API_REQUEST_MAX_VALUES = 256 << 10 }; // objects and lists count twice

struct api_request_names {
    bool (*known)(unsigned dialect, struct str name);
    unsigned dialect;
};

// The text, shorter where something is left out; then `room` holds it. names: NULL leaves nothing out. An
// empty string with an error when there are too many values.
struct str api_request_scan(struct str text, const struct api_request_names *names, struct buf *room,
                            struct err *err);
