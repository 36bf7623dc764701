// request.h - one generation, from prompt to the last event.
#pragma once
#include "engine/detokenizer.h"
#include "engine/stage/batch.h"
#include "engine/constraint.h"
#include "engine/engine.h"
#include "engine/pool.h"
#include "engine/session.h"
#include "engine/speculate/speculate.h"
#include "engine/token_logprobs.h"
#include "engine/tiles.h"

enum request_state { REQUEST_QUEUED, REQUEST_PREFILL, REQUEST_DECODE, REQUEST_DONE };

struct event_record {
    uint32_t token, position;
    struct str text;
    float *logits; // owned until the event is taken; NULL: not wanted
};

struct request {
    struct engine *engine;
    struct request *next;
    enum request_state state;
    bool cancelled, own_session, was_held; // was_held: limits kept it from starting at once
    bool deferred;                         // it waits for ingot_start
    struct ingot_session *session;         // NULL until admitted, when it has none of its own
    uint32_t *tokens, n_tokens, n_prompt;  // the prompt, and what was generated
    uint32_t n_fed;                        // positions whose row has been played
    bool is_ahead;                         // the last of these rows was played before its token was known
    uint32_t next_logits;                  // the first position whose logits are wanted and not yet delivered
    uint32_t n_lacked;                     // available pages when admission last failed, plus 1
    int32_t priority;
    float *scales; // [adapters of the engine], or NULL: it uses none
    struct sha256 adapters_key;
    struct sha256 root; // of its salt and its adapters
    // n_logits: rows of the prompt that are read back, for logits or log-probabilities
    uint32_t max_tokens, n_logits;
    bool gives_logits;
    struct token_logprobs logprobs;
    bool ignore_eos, keep_special;
    struct constraint constraint;
    struct pool pool;
    struct request_tiles tiles;
    struct speculated speculated;
    struct sample_params params;
    struct detokenizer detokenizer;
    struct event_record *events; // [n_events_max]
    uint32_t n_events, n_taken, n_events_max;
    size_t event_size, result_size; // in the caller's program
    uint32_t n_unread, n_kept;      // limit and number of logit rows kept for the caller
    struct ingot_result result;
    uint64_t submitted_ns, started_ns, first_ns, deadline_ns; // deadline_ns 0: none
};

struct request_output { // one output row of a step
    // token UINT32_MAX: not requested; STEP_TOKEN_INVALID: the logits were not finite
    uint32_t position, token;
    const float *logits; // NULL: not wanted
};

// Checks the options and copies what it needs. The state lock is not held.
struct request *request_create(struct engine *e, const struct ingot_request_options *options,
                               struct err *err);
void request_destroy(struct request *r);

// The state lock is held for all of these.
// Whether steps have nothing to do for it: it is finished, or waits for ingot_start.
bool request_is_idle(const struct request *r);
// A step begins: lets go of what layers with a window do not see any more.
void request_advance(struct request *r);
// Adds at most `most` rows, as many as fit; a decoding request has one. False: there is no page for the
// first.
bool request_add_rows(struct request *r, struct batch *b, uint32_t most);
// Adds the row of a token that may follow the rows so far, and an output. False: there is no page.
bool request_add_draft(struct request *r, struct batch *b, uint32_t token);
// Takes back the rows behind the last that counted.
void request_roll_back(struct request *r);
// Whether what the row at this position was fed is what the request has there: else its output is void.
bool request_is_right(const struct request *r, uint32_t position);
// Whether its prompt is still to be read: it waits, or has been read in part.
bool request_is_unread(const struct request *r);
// Whether the request's rows of the next step can be submitted before the current step is over: its next
// decode row, or the next chunk of its prompt. Not with a grammar, biases, embeddings, logits for the caller
// or pictures. True for a finished request.
bool request_goes_ahead(const struct request *r);
// Adds none when this token is the last, or there is no page.
void request_add_ahead(struct request *r, struct batch *b);
bool request_accept(struct request *r, const struct request_output *o, struct err *err);
void request_drop_logits(struct request *r, uint32_t event); // the caller has read them
void request_finish(struct request *r, enum ingot_finish finish, const struct err *why);
