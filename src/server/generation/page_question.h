// page_question.h - what a decode server asks a prefill server: the pages of a prompt, for an engine like
// this.
//
// It is JSON: the words of ingot_pages_info, `cache_salt`, `n_known` and `tokens`. The answer is the files of
// the pages.
#pragma once
#include <jansson.h>
#include "base/err.h"
#include "base/str.h"
#include "ingot.h"

enum { PAGE_SALT_BYTES = 65 };

struct page_question {
    struct ingot_pages_info info;     // of the engine that asks
    char cache_salt[PAGE_SALT_BYTES]; // 64 hexadecimal digits
    uint32_t *tokens;                 // [n_tokens] of the prompt, up to one behind the pages
    size_t n_tokens;
    size_t n_known; // tokens whose pages the asking engine has
};

// The salt under which both servers keep pages of this salt: a digest, which gives no client's key away.
// False: no memory.
bool page_question_salt(const char *salt, char to[PAGE_SALT_BYTES]);
bool page_question_write(const struct page_question *q, struct buf *text); // false: no memory
// Free it with page_question_free in any case.
bool page_question_read(struct page_question *q, const json_t *value, struct err *err);
void page_question_free(struct page_question *q);
// Whether pages can move between the engine that asks and this one. False: *err names the first difference.
bool page_question_fits(const struct page_question *q, const struct ingot_pages_info *own, struct err *err);
