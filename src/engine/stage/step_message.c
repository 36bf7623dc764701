// step_message.c - see step_message.h.
#include "engine/stage/step_message.h"
#include <string.h>
#include "base/mem.h"
#include "ops/sample/sample.h"

enum { HEAD_WORDS = 8, ROW_WORDS = 6, NEWS_WORDS = 4, OUTPUT_WORDS = 2 + sizeof(struct sample_params) / 4 };
enum { WANTS = 1 };

static bool wrong(struct err *err, const char *what, uint64_t found, uint64_t most)
{
    return err_set(
        err, ERR_DEVICE,
        "a step from the rank before has %s %llu; want at most %llu; all ranks need the same ingot", what,
        (unsigned long long)found, (unsigned long long)most);
}

// ---- news

void step_news_add(struct step_news *news, const uint32_t head[4], const uint32_t *words)
{
    size_t n = news->n + NEWS_WORDS + head[3];

    if (n > news->capacity && !news->failed) {
        uint32_t *at = mem_realloc(news->at, 2 * n * sizeof *at);
        news->failed = !at;
        news->at = at ? at : news->at;
        news->capacity = at ? 2 * n : news->capacity;
    }
    if (news->failed)
        return;
    memcpy(news->at + news->n, head, NEWS_WORDS * sizeof *head);
    memcpy(news->at + news->n + NEWS_WORDS, words, head[3] * sizeof *words);
    news->n = n;
}

void step_news_free(struct step_news *news)
{
    mem_free(news->at);
    *news = (struct step_news){ 0 };
}

// ---- writing

static size_t constraint_words(struct step_constraint c, const struct step_limits *l)
{
    return (c.mask ? sample_mask_words(l->n_vocab) : 0) + 2 * (size_t)c.n_biases;
}

size_t step_message_most(const struct step_limits *l)
{
    size_t table = NEWS_WORDS + (size_t)l->max_pages * (1 + NEWS_WORDS);
    size_t news = 2ull * l->n_slots * (NEWS_WORDS + (l->n_windows ? 2 : 1) * table + l->history_stride);

    return 4 * (HEAD_WORDS + (size_t)l->max_rows * (ROW_WORDS + (size_t)l->n_cols) + news +
                (size_t)l->max_outputs * (OUTPUT_WORDS + sample_mask_bias_words(l->n_vocab)));
}

static size_t n_constraint_words(const struct batch *b, step_constraint_of *of, const struct step_limits *l)
{
    size_t n = 0;

    for (uint32_t i = 0; i < b->n_outputs; i++)
        n += constraint_words(of(b, i), l);
    return n;
}

size_t step_message_bytes(const struct batch *b, const struct step_news *news,
                          step_constraint_of *constraint_of, const struct step_limits *l)
{
    return 4 * (HEAD_WORDS + (size_t)b->n_rows * (ROW_WORDS + (l->blocks_apart ? 0 : (size_t)l->n_cols)) +
                (size_t)b->n_outputs * OUTPUT_WORDS + news->n + n_constraint_words(b, constraint_of, l));
}

static uint32_t *write_rows(uint32_t *to, const struct batch *b)
{
    for (uint32_t i = 0; i < b->n_rows; i++, to += ROW_WORDS) {
        const struct batch_row *r = &b->rows[i];
        const uint32_t words[ROW_WORDS] = { r->token,      r->position, r->slot,
                                            r->state_from, r->state_to, r->pooled_by ? WANTS : 0 };
        memcpy(to, words, sizeof words);
    }
    for (uint32_t i = 0; i < b->n_outputs; i++, to += OUTPUT_WORDS) {
        const struct batch_output *o = &b->outputs[i];
        to[0] = o->row;
        to[1] = o->wants_logits ? WANTS : 0;
        memcpy(to + 2, &o->params, sizeof o->params);
    }
    return to;
}

static uint32_t *write_words(uint32_t *to, const uint32_t *from, size_t n)
{
    if (n > 0)
        memcpy(to, from, n * sizeof *to);
    return to + n;
}

size_t step_message_write(unsigned char *to, const struct batch *b, const struct step_news *news,
                          step_constraint_of *constraint_of, const struct step_limits *l)
{
    uint32_t *at = (uint32_t *)(void *)to;
    const uint32_t head[HEAD_WORDS] = { b->n_rows,
                                        b->n_outputs,
                                        (uint32_t)news->n,
                                        (uint32_t)n_constraint_words(b, constraint_of, l),
                                        (uint32_t)b->sequence,
                                        (uint32_t)(b->sequence >> 32),
                                        l->n_cols,
                                        0 };

    at = write_rows(write_words(at, head, HEAD_WORDS), b);
    at = write_words(at, news->at, news->n);
    for (uint32_t i = 0; i < b->n_outputs; i++) {
        struct step_constraint c = constraint_of(b, i);
        at = write_words(at, c.mask, c.mask ? sample_mask_words(l->n_vocab) : 0);
        at = write_words(at, c.biases, 2 * (size_t)c.n_biases);
    }
    return (size_t)((unsigned char *)at - to);
}

// ---- reading

static bool check_state(const uint32_t *row, bool first, uint32_t n_states, struct err *err)
{
    uint32_t from = row[3], to = row[4];

    if (n_states == 0)
        return true;
    if (from != STATE_ZERO && (from != STATE_NEXT || first) && from >= n_states)
        return wrong(err, "a state", from, n_states - 1);
    return to == STATE_NONE || to < n_states || wrong(err, "a state", to, n_states - 1);
}

static bool check_rows(const struct step_view *v, const struct step_limits *l, struct err *err)
{
    for (uint32_t i = 0; i < v->n_rows; i++) {
        const uint32_t *row = v->rows + (size_t)i * ROW_WORDS;
        if (row[1] >= l->history_stride)
            return wrong(err, "a position", row[1], l->history_stride - 1);
        if (row[2] >= l->n_slots)
            return wrong(err, "a slot", row[2], l->n_slots - 1);
        if (!check_state(row, i == 0, l->n_states, err))
            return false;
    }
    return true;
}

static bool check_outputs(const struct step_view *v, const struct step_limits *l, struct err *err)
{
    size_t n = 0;

    for (uint32_t i = 0; i < v->n_outputs; i++) {
        const uint32_t *o = v->outputs + (size_t)i * OUTPUT_WORDS;
        struct sample_params p;
        memcpy(&p, o + 2, sizeof p);
        if (o[0] >= v->n_rows || (i > 0 && o[0] <= o[-(int)OUTPUT_WORDS]))
            return wrong(err, "an output of row", o[0], v->n_rows);
        if (p.n_biases > SAMPLE_MAX_BIASES)
            return wrong(err, "biases", p.n_biases, SAMPLE_MAX_BIASES);
        n += (p.flags & SAMPLE_MASKED ? sample_mask_words(l->n_vocab) : 0) + 2 * (size_t)p.n_biases;
    }
    return n == v->n_constraints || wrong(err, "words of masks and biases", v->n_constraints, n);
}

static bool check_biases(const struct step_view *v, const struct step_limits *l, struct err *err)
{
    size_t at = 0;

    for (uint32_t i = 0; i < v->n_outputs; i++) {
        struct step_constraint c = step_view_constraint(v, i, &at, l);
        for (uint32_t k = 0; k < c.n_biases; k++)
            if (c.biases[2 * k] >= l->n_vocab)
                return wrong(err, "a bias of token", c.biases[2 * k], l->n_vocab - 1);
    }
    return true;
}

static bool check_entry(const uint32_t *head, size_t left, const struct step_limits *l, struct err *err)
{
    uint32_t kind = head[0], slot = head[1], from = head[2], n = head[3];
    uint32_t most = kind == STEP_NEWS_HISTORY ? l->history_stride : l->max_pages;
    uint32_t n_pages = kind == STEP_NEWS_WINDOWS ? l->n_windows : l->n_pages;

    if (kind > STEP_NEWS_WINDOWS)
        return wrong(err, "news of kind", kind, STEP_NEWS_WINDOWS);
    if (slot >= l->n_slots)
        return wrong(err, "news of slot", slot, l->n_slots - 1);
    if (kind == STEP_NEWS_WINDOWS && l->n_windows == 0)
        return wrong(err, "news of window pages, entries:", n, 0);
    if (from > most || n > most - from || (kind == STEP_NEWS_HISTORY && from > 0))
        return wrong(err, "news up to", (uint64_t)from + n, most);
    if (n > left)
        return wrong(err, "words of news", n, left);
    for (uint32_t i = 0; i < n && kind != STEP_NEWS_HISTORY; i++)
        if (head[NEWS_WORDS + i] >= n_pages)
            return wrong(err, kind == STEP_NEWS_WINDOWS ? "a window page" : "a page", head[NEWS_WORDS + i],
                         n_pages - 1);
    return true;
}

static bool check_news(const struct step_view *v, const struct step_limits *l, struct err *err)
{
    for (size_t at = 0; at < v->n_news;) {
        if (v->n_news - at < NEWS_WORDS)
            return wrong(err, "words of news behind its end", v->n_news - at, 0);
        if (!check_entry(v->news + at, v->n_news - at - NEWS_WORDS, l, err))
            return false;
        at += NEWS_WORDS + v->news[at + 3];
    }
    return true;
}

static uint64_t sequence_of(const uint32_t *head)
{
    return head[4] | (uint64_t)head[5] << 32;
}

bool step_message_read(const unsigned char *at, size_t n, const struct step_limits *l, struct step_view *v,
                       struct err *err)
{
    const uint32_t *head = (const uint32_t *)(const void *)at;

    if (n < HEAD_WORDS * 4)
        return wrong(err, "bytes too few:", n, HEAD_WORDS * 4);
    if (head[0] == 0 || head[0] > l->max_rows)
        return wrong(err, "rows:", head[0], l->max_rows);
    if (head[1] > l->max_outputs || head[1] > head[0])
        return wrong(err, "outputs:", head[1], head[0] < l->max_outputs ? head[0] : l->max_outputs);
    if (head[6] != l->n_cols)
        return wrong(err, "columns:", head[6], l->n_cols);
    *v = (struct step_view){ .sequence = sequence_of(head),
                             .n_rows = head[0],
                             .n_outputs = head[1],
                             .n_news = head[2],
                             .n_constraints = head[3],
                             .block_bytes = (size_t)head[0] * l->n_cols * sizeof(float) };
    v->rows = head + HEAD_WORDS;
    v->outputs = v->rows + (size_t)v->n_rows * ROW_WORDS;
    v->news = v->outputs + (size_t)v->n_outputs * OUTPUT_WORDS;
    v->block_at = 4 * (HEAD_WORDS + (size_t)v->n_rows * ROW_WORDS + (size_t)v->n_outputs * OUTPUT_WORDS +
                       v->n_news + v->n_constraints);
    size_t wanted = v->block_at + (l->blocks_apart ? 0 : v->block_bytes);
    if (n != wanted)
        return wrong(err, "bytes:", n, wanted);
    v->constraints = v->news + v->n_news;
    return check_rows(v, l, err) && check_outputs(v, l, err) && check_biases(v, l, err) &&
           check_news(v, l, err);
}

void step_view_fill(const struct step_view *v, struct batch *b)
{
    batch_clear(b);
    b->sequence = v->sequence;
    for (uint32_t i = 0; i < v->n_rows; i++) {
        const uint32_t *row = v->rows + (size_t)i * ROW_WORDS;
        b->rows[b->n_rows++] = (struct batch_row){
            .token = row[0], .position = row[1], .slot = row[2], .state_from = row[3], .state_to = row[4]
        };
    }
    for (uint32_t i = 0; i < v->n_outputs; i++) {
        const uint32_t *o = v->outputs + (size_t)i * OUTPUT_WORDS;
        struct batch_output *output = &b->outputs[b->n_outputs++];
        *output = (struct batch_output){ .row = o[0], .wants_logits = o[1] & WANTS };
        memcpy(&output->params, o + 2, sizeof output->params);
    }
}

bool step_view_wants_hidden(const struct step_view *v, uint32_t row)
{
    return v->rows[(size_t)row * ROW_WORDS + 5] & WANTS;
}

bool step_view_wants_logits(const struct step_view *v, uint32_t output)
{
    return v->outputs[(size_t)output * OUTPUT_WORDS + 1] & WANTS;
}

struct step_constraint step_view_constraint(const struct step_view *v, uint32_t output, size_t *at,
                                            const struct step_limits *l)
{
    struct sample_params p;
    struct step_constraint c = { 0 };

    memcpy(&p, v->outputs + (size_t)output * OUTPUT_WORDS + 2, sizeof p);
    c.mask = p.flags & SAMPLE_MASKED ? v->constraints + *at : NULL;
    *at += c.mask ? sample_mask_words(l->n_vocab) : 0;
    c.n_biases = p.n_biases;
    c.biases = v->constraints + *at;
    *at += 2 * (size_t)c.n_biases;
    return c;
}

// ---- results

size_t step_result_bytes(const struct step_result *v, const struct step_limits *l)
{
    return 4 *
           (HEAD_WORDS + v->n_outputs + (size_t)v->n_logits * l->n_vocab + (size_t)v->n_hidden * l->n_cols);
}

size_t step_result_most(const struct step_limits *l)
{
    return step_result_bytes(&(struct step_result){ .n_outputs = l->max_outputs,
                                                    .n_logits = l->max_outputs,
                                                    .n_hidden = l->max_rows },
                             l);
}

void step_result_write(unsigned char *to, const struct step_result *v)
{
    const uint32_t head[HEAD_WORDS] = { v->n_outputs,          v->n_logits,
                                        v->n_hidden,           0,
                                        (uint32_t)v->sequence, (uint32_t)(v->sequence >> 32) };

    memcpy(to, head, sizeof head);
}

bool step_result_read(const unsigned char *at, size_t n, const struct step_limits *l, struct step_result *v,
                      struct err *err)
{
    const uint32_t *head = (const uint32_t *)(const void *)at;

    if (n < HEAD_WORDS * 4)
        return wrong(err, "results with bytes too few:", n, HEAD_WORDS * 4);
    *v = (struct step_result){
        .sequence = sequence_of(head), .n_outputs = head[0], .n_logits = head[1], .n_hidden = head[2]
    };
    if (v->n_outputs > l->max_outputs || v->n_logits > v->n_outputs)
        return wrong(err, "results:", v->n_outputs, l->max_outputs);
    if (v->n_hidden > l->max_rows)
        return wrong(err, "hidden states:", v->n_hidden, l->max_rows);
    if (n != step_result_bytes(v, l))
        return wrong(err, "results with bytes:", n, step_result_bytes(v, l));
    v->ids = head + HEAD_WORDS;
    v->logits = (const float *)(const void *)(v->ids + v->n_outputs);
    v->hidden = v->logits + (size_t)v->n_logits * l->n_vocab;
    for (uint32_t i = 0; i < v->n_outputs; i++)
        if (v->ids[i] >= l->n_vocab && v->ids[i] != STEP_TOKEN_INVALID)
            return wrong(err, "a token", v->ids[i], l->n_vocab - 1);
    return true;
}
