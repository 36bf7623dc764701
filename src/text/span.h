// span.h - rendered text with its origin, so that a control token typed by a user never becomes one.
//
// A prompt is a list of spans. Trusted text was written by the model's template (or is one of its special tokens): the
// tokeniser looks for control tokens there and nowhere else. Untrusted text came from a request: it is only ever text.
// Words may cross the border between two spans; control tokens may not.
#pragma once
#include "base/str.h"

struct text_span {
    struct str text;
    bool trusted;
};
