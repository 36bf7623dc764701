// template_string.h - operations on strings for filters and methods. The origin of every byte is kept, and a
// safe string stays safe.
#pragma once
#include "text/template/template_value.h"

enum string_case { CASE_UPPER, CASE_LOWER, CASE_CAPITALIZE, CASE_TITLE, CASE_TITLE_FILTER, CASE_SWAP };
bool string_case(struct render *r, struct value text, enum string_case to, struct value *out);
// chars: a string of characters to take away; absent or None: white space. side: enum char_strip_side.
bool string_strip(struct render *r, struct value text, struct value chars, int side, struct value *out);
// count < 0: all.
bool string_replace(struct render *r, struct value text, const struct value *old_new, int64_t count,
                    struct value *out);
// separator absent or None: runs of white space. limit < 0: no limit. from_right: rsplit.
struct split {
    struct value separator;
    int64_t limit;
    bool from_right;
};
bool string_split(struct render *r, struct value text, const struct split *how, struct value *out);
bool string_lines(struct render *r, struct value text, bool keep_ends, struct value *out);
bool string_join(struct render *r, struct value separator, const struct list *items, struct value *out);
bool string_pad(struct render *r, struct value text, int64_t left, int64_t right, struct value *out);

bool string_has_case(struct str text, bool upper); // isupper, islower
