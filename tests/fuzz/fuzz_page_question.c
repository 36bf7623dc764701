// fuzz_page_question.c - any bytes as what a decode server asks: what is read fits its fields, and says so
// again.
#include "base/mem.h"
#include "server/api/api_request.h"
#include "server/generation/page_question.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = { 0 };
    struct page_question q = { 0 }, again = { 0 };
    struct buf text = { 0 };
    json_t *value = api_request_parse((struct str){ (const char *)data, size }, &err), *other = NULL;

    if (value && page_question_read(&q, value, &err)) {
        CHECK(q.n_tokens > 0 && strlen(q.cache_salt) == PAGE_SALT_BYTES - 1);
        CHECK(page_question_fits(&q, &q.info, &err));
        CHECK(page_question_write(&q, &text));
        other = api_request_parse(buf_as_str(&text), &err);
        CHECK(other && page_question_read(&again, other, &err));
        CHECK(again.n_tokens == q.n_tokens && again.n_known == q.n_known);
        CHECK(memcmp(again.tokens, q.tokens, q.n_tokens * sizeof *q.tokens) == 0);
    }
    json_decref(value);
    json_decref(other);
    page_question_free(&q);
    page_question_free(&again);
    buf_free(&text);
    return 0;
}
