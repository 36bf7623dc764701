// span.h - rendered text with its origin, so that text typed by a user never becomes a control token.
//
// A prompt is a list of spans. Trusted text was written by the model's template (or is one of its special
// tokens): the tokeniser recognises control tokens only there. Untrusted text came from a request and is
// always plain text.
// Words may cross the border between two spans; control tokens may not.
#pragma once
#include "base/str.h"

struct text_span {
    struct str text;
    bool trusted;
};
