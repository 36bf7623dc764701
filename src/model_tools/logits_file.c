// logits_file.c - see logits_file.h.
#include "model_tools/logits_file.h"

static const char MAGIC[8] = "ingotlg1";

struct logits_head {
    char magic[8];
    uint32_t n_vocab, n_chunk, n_chunks, zero;
    struct sha256 vocabulary;
};
_Static_assert(sizeof(struct logits_head) == 8 + 4 * 4 + sizeof(struct sha256), "no holes");

enum { SUM_BYTES = sizeof(struct sha256), MOST_VOCAB = 1 << 24 };

static bool sum_is(struct sha256_stream *s, const unsigned char *bytes, size_t n)
{
    sha256_add(s, bytes, n);
    struct sha256 sum = sha256_take(s);
    return memcmp(&sum, bytes + n, SUM_BYTES) == 0;
}

static bool head_check(const struct logits_head *h, struct err *err)
{
    if (h->n_chunk < EVAL_CHUNK_MIN || h->n_chunk > EVAL_CHUNK_MAX || h->n_vocab == 0 ||
        h->n_vocab > MOST_VOCAB || h->n_chunks == 0 || h->zero)
        return err_set(err, ERR_INPUT, "damaged: %u chunks of %u tokens of a vocabulary of %u; save it again",
                       h->n_chunks, h->n_chunk, h->n_vocab);
    return true;
}

// The size that follows from the head, computed without overflow.
static bool size_check(const struct logits_file *f, size_t n, uint64_t head_bytes, struct err *err)
{
    if (n >= head_bytes && (n - head_bytes) % f->chunk_bytes == 0 &&
        (n - head_bytes) / f->chunk_bytes == f->text.n_chunks)
        return true;
    return err_set(
        err, ERR_INPUT,
        "%zu bytes, and the logits of %u chunks of %u tokens have more or fewer: cut off? save it again", n,
        f->text.n_chunks, f->text.n_chunk);
}

static bool tokens_check(const struct eval_text *t, struct err *err)
{
    for (uint64_t i = 0; i < (uint64_t)t->n_chunks * t->n_chunk; i++)
        if (t->tokens[i] >= t->n_vocab)
            return err_set(err, ERR_INPUT, "token %llu is %u, and the vocabulary has %u; save it again",
                           (unsigned long long)i, t->tokens[i], t->n_vocab);
    return true;
}

static bool parse(struct logits_file *f, struct str bytes, struct err *err)
{
    struct logits_head h;
    const unsigned char *at = (const unsigned char *)bytes.at;

    if (bytes.n < sizeof h || memcmp(at, MAGIC, sizeof MAGIC - 1) != 0)
        return err_set(err, ERR_INPUT,
                       "these are no logits of ingot's; 'ingot eval --save-logits' writes them");
    memcpy(&h, at, sizeof h);
    if (h.magic[7] != MAGIC[7])
        return err_set(err, ERR_UNSUPPORTED, "logits of layout %.1s; this ingot reads %.1s: save them again",
                       &h.magic[7], &MAGIC[7]);
    if (!head_check(&h, err))
        return false;
    f->text = (struct eval_text){ h.n_vocab, h.n_chunk, h.n_chunks, h.vocabulary,
                                  (uint32_t *)(uintptr_t)(at + sizeof h) };
    f->chunk_bytes = (uint64_t)eval_text_scored(&f->text) * h.n_vocab * sizeof(uint16_t) + SUM_BYTES;
    uint64_t summed = sizeof h + (uint64_t)h.n_chunks * h.n_chunk * sizeof(uint32_t);
    if (!size_check(f, bytes.n, summed + SUM_BYTES, err))
        return false;
    f->chunks = at + summed + SUM_BYTES;
    f->sum = sha256_open();
    if (!f->sum)
        return err_memory(err, "a file's sum");
    return sum_is(f->sum, at, summed)
               ? tokens_check(&f->text, err)
               : err_set(err, ERR_INPUT, "damaged: the sum of its tokens is another; save it again");
}

bool logits_file_parse(struct logits_file *f, struct str bytes, struct err *err)
{
    *f = (struct logits_file){ 0 };
    if (parse(f, bytes, err))
        return true;
    logits_file_close(f);
    return false;
}

bool logits_file_open(struct logits_file *f, const char *path, struct err *err)
{
    struct file_map map;

    *f = (struct logits_file){ 0 };
    if (!file_map_open(&map, path, err))
        return false;
    if (logits_file_parse(f, (struct str){ (const char *)map.at, map.bytes }, err)) {
        f->map = map;
        return true;
    }
    file_map_close(&map);
    return err_prefix(err, "%s", path);
}

const uint16_t *logits_file_chunk(struct logits_file *f, uint32_t chunk, struct err *err)
{
    const unsigned char *at = f->chunks + chunk * f->chunk_bytes;

    CHECK(chunk < f->text.n_chunks);
    if (chunk >= f->checked && !sum_is(f->sum, at, f->chunk_bytes - SUM_BYTES)) {
        err_set(err, ERR_INPUT, "damaged: the sum of chunk %u is another; save it again", chunk);
        return NULL;
    }
    f->checked = chunk == f->checked ? chunk + 1 : f->checked;
    return (const uint16_t *)(const void *)at;
}

void logits_file_close(struct logits_file *f)
{
    sha256_close(f->sum);
    file_map_close(&f->map);
    *f = (struct logits_file){ 0 };
}

// ---- writing

static void add(struct logits_file_writer *w, const void *bytes, size_t n)
{
    sha256_add(w->sum, bytes, n);
    file_write(&w->out, bytes, n);
}

void logits_file_end_chunk(struct logits_file_writer *w)
{
    struct sha256 sum = sha256_take(w->sum);
    file_write(&w->out, &sum, sizeof sum);
}

bool logits_file_create(struct logits_file_writer *w, const char *path, const struct eval_text *text,
                        struct err *err)
{
    struct logits_head h = { .n_vocab = text->n_vocab,
                             .n_chunk = text->n_chunk,
                             .n_chunks = text->n_chunks,
                             .vocabulary = text->vocabulary };

    *w = (struct logits_file_writer){ .out.fd = -1, .sum = sha256_open() };
    if (!w->sum)
        return err_memory(err, "a file's sum");
    if (!file_create(&w->out, path, err)) {
        sha256_close(w->sum);
        *w = (struct logits_file_writer){ .out.fd = -1 };
        return false;
    }
    memcpy(h.magic, MAGIC, sizeof h.magic);
    add(w, &h, sizeof h);
    add(w, text->tokens, (size_t)text->n_chunks * text->n_chunk * sizeof *text->tokens);
    logits_file_end_chunk(w); // the head's sum
    return true;
}

void logits_file_add(struct logits_file_writer *w, const uint16_t *codes, size_t n)
{
    add(w, codes, n * sizeof *codes);
}

bool logits_file_commit(struct logits_file_writer *w, struct err *err)
{
    bool ok = file_commit(&w->out, err);

    sha256_close(w->sum);
    *w = (struct logits_file_writer){ .out.fd = -1 };
    return ok;
}

void logits_file_abort(struct logits_file_writer *w)
{
    if (!w->sum)
        return;
    file_abort(&w->out);
    sha256_close(w->sum);
    *w = (struct logits_file_writer){ .out.fd = -1 };
}
