// step_message.h - a step on its way to the next rank, and its results on their way back, as bytes.
//
// A step has its rows and outputs, what is new in page tables and histories since the step before, the masks
// and biases of its outputs, and the block of activations at its end, so that a rank in the middle passes the
// same message on with its own block in it; or no block, where the ranks' devices send it themselves. Words
// of 32 bits; all ranks have one order of bytes (ranks.h). Reading trusts nothing: every number is checked
// against the engine's limits. Masks and biases are taken as they are, but for the tokens' numbers. Sampling
// parameters may be any numbers.
#pragma once
#include "engine/stage/batch.h"

struct step_limits { // of an engine, the same on all ranks
    uint32_t max_rows, max_outputs, n_slots, max_pages, n_pages, n_states, history_stride, n_vocab, n_cols;
    uint32_t n_windows; // window pages (kv_window.h)
    bool blocks_apart;  // the block goes from device to device, not in the message
};

// Entries of page tables (STEP_NEWS_TABLE, slot, from, n), tokens of histories (STEP_NEWS_HISTORY, slot, 0,
// n), and entries of the tables of window pages (STEP_NEWS_WINDOWS, slot, from, n), each followed by n words.
enum { STEP_NEWS_TABLE, STEP_NEWS_HISTORY, STEP_NEWS_WINDOWS };
struct step_news {
    uint32_t *at;
    size_t n, capacity;
    bool failed; // there was no memory
};
void step_news_add(struct step_news *news, const uint32_t head[4], const uint32_t *words);
void step_news_free(struct step_news *news);

// Mask and biases of an output: what struct constraint has, which a rank without requests has not.
struct step_constraint {
    const uint32_t *mask;   // [sample_mask_words], or NULL
    const uint32_t *biases; // [2 * n_biases]: pairs of token and fp32
    uint32_t n_biases;
};
// Of output i.
typedef struct step_constraint step_constraint_of(const struct batch *b, uint32_t i);

struct step_view { // of a message; points into it
    uint64_t sequence;
    uint32_t n_rows, n_outputs;
    const uint32_t *rows, *outputs, *news, *constraints;
    size_t n_news, n_constraints;
    size_t block_at, block_bytes; // from the message's beginning
};

size_t step_message_most(const struct step_limits *l); // bytes of the largest that is taken
size_t step_message_bytes(const struct batch *b, const struct step_news *news,
                          step_constraint_of *constraint_of, const struct step_limits *l);
// All but the block, whose place it returns. `to` has room for step_message_bytes.
size_t step_message_write(unsigned char *to, const struct batch *b, const struct step_news *news,
                          step_constraint_of *constraint_of, const struct step_limits *l);
// `at` is aligned to 4 bytes.
bool step_message_read(const unsigned char *at, size_t n, const struct step_limits *l, struct step_view *v,
                       struct err *err);
void step_view_fill(const struct step_view *v, struct batch *b); // rows and outputs without requests
bool step_view_wants_hidden(const struct step_view *v, uint32_t row);
bool step_view_wants_logits(const struct step_view *v, uint32_t output);
// Moves on *at, an index into the constraints that begins at 0: outputs in their order.
struct step_constraint step_view_constraint(const struct step_view *v, uint32_t output, size_t *at,
                                            const struct step_limits *l);

struct step_result { // [n_outputs] ids, then the logits that were wanted, then hidden states
    uint64_t sequence;
    uint32_t n_outputs, n_logits, n_hidden;
    const uint32_t *ids;
    const float *logits, *hidden; // [n_logits, n_vocab], [n_hidden, n_cols]
};
size_t step_result_bytes(const struct step_result *v, const struct step_limits *l);
size_t step_result_most(const struct step_limits *l);
// The head; ids, logits and hidden states follow in this order.
void step_result_write(unsigned char *to, const struct step_result *v);
bool step_result_read(const unsigned char *at, size_t n, const struct step_limits *l, struct step_result *v,
                      struct err *err);
