// fuzz_logits_file.c - any bytes as reference logits: refused with a message, or all of it can be read. Sums
// are made right first, else nothing would be behind them.
#include "base/mem.h"
#include "model_tools/eval_score.h"
#include "model_tools/logits_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 56, SUM = 32 };

static void put_sum(unsigned char *at, size_t n)
{
    struct sha256_stream *s = sha256_open();

    sha256_add(s, at, n);
    struct sha256 sum = sha256_take(s);
    memcpy(at + n, &sum, SUM);
    sha256_close(s);
}

static void mend_head(unsigned char *bytes, size_t n)
{
    uint32_t head[4];

    if (n < HEAD)
        return;
    memcpy(head, bytes + 8, sizeof head);
    uint64_t tokens = (uint64_t)head[1] * head[2] * 4;
    if (tokens < n && HEAD + tokens + SUM <= n)
        put_sum(bytes, HEAD + tokens);
}

static void read_all(struct logits_file *f)
{
    unsigned sum = 0;

    for (uint32_t c = 0; c < f->text.n_chunks; c++) {
        put_sum((unsigned char *)(uintptr_t)f->chunks + c * f->chunk_bytes, f->chunk_bytes - SUM);
        const uint16_t *codes = logits_file_chunk(f, c, NULL);
        CHECK(codes);
        for (uint64_t i = 0; i < (uint64_t)eval_text_scored(&f->text) * f->text.n_vocab; i++)
            sum += codes[i];
    }
    CHECK(sum + 1 != 0 || f->text.n_chunks);
    logits_file_close(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char *bytes = mem_alloc(size + 1);
    struct logits_file f;
    struct err err = { 0 };

    memcpy(bytes, data, size);
    mend_head(bytes, size);
    if (logits_file_parse(&f, (struct str){ (const char *)bytes, size }, &err))
        read_all(&f);
    else
        CHECK(err.code != ERR_NONE && err.message[0]);
    mem_free(bytes);
    return 0;
}
