// speculate.h - several tokens of a request in one step: drafted tokens are played as rows behind its last
// one, and those that the model draws itself are kept.
//
// Nothing depends on the draft but time. Each row draws its own token from (seed, position); the row behind
// it counts if it was fed that very token. So the answer is the one without drafts wherever a row's bits do
// not depend on the rows beside it. Rows that do not count are played again later, in their right tokens.
//
// A draft costs rows, and on a device with a queue the step that would have been played ahead. Steps are
// timed by their number of rows, drafts counted by how many tokens agreed before them: together they tell
// how long a draft pays, and whether any does. Rows of a grammar have no drafts: their masks would have to
// be known before their tokens are.
#pragma once
#include "engine/speculate/ngram.h"
#include "engine/stage/batch.h"

struct request;
struct engine;

enum { SPECULATE_MOST = 7, SPECULATE_ROWS = 64, SPECULATE_CLASSES = 6 };

struct speculation {                    // of an engine
    bool is_on, always;                 // always: whether it pays or not
    uint32_t most;                      // drafted tokens of a request and step
    double step_ns[SPECULATE_ROWS + 1]; // by rows, of steps without prompts; 0: none was timed
    uint32_t n_since;                   // steps since one without drafts
    double model_ns, drafting_ns;       // of the draft model: for a token of each request; for this step's
    uint64_t n_drafted, n_accepted;
};

struct draft { // of a request, for the next step or in the one that runs
    uint32_t tokens[SPECULATE_MOST], n, class;
};

struct speculated {     // of a request
    struct ngram ngram; // capacity 0: it has no drafts
    struct draft draft;
    uint32_t n_known;                // tokens of the request when the draft model drafted that
    uint32_t n_rows;                 // drafted rows in the step that runs
    uint32_t n_read, n_idle;         // by the model's own draft layer: rows; steps since it drafted
    bool unread;                     // a row is missing there: it drafts no more
    float chance[SPECULATE_CLASSES]; // that a drafted token is right
    double plain_ns, ns; // of steps with drafts: what as many tokens take without, and what they took
};

struct speculate_step {      // what is planned
    uint32_t n_rows, n_free; // n_free: rows and outputs that no request needs
    double n_tokens;         // expected
    bool none;               // a step without drafts, to be timed
};

// Of a model with recurrent layers: the rows for states behind drafted tokens, which the slots share
// (engine/kv/kv_state.h). One request may have its longest draft, or some of many requests a token each.
uint32_t speculate_spare_states(const struct speculation *s, uint32_t n_slots);
// The request's options are checked.
bool speculate_create(struct request *r, struct err *err);

// The state lock is held for all of these.
struct speculate_step speculate_begin(struct engine *e);
// Whether a draft for this request would pay in that step.
bool speculate_wants(struct request *r, struct speculate_step *step);
// Adds the rows of a draft behind the request's row, if any pay.
void speculate_add(struct request *r, struct batch *b, struct speculate_step *step);
// How many tokens of the draft model would pay for this request, where the text repeats little.
uint32_t speculate_asks_model(struct request *r, struct speculate_step *step);
// What the draft model says, for the next step.
void speculate_take(struct request *r, const struct draft *draft);
// It took ns, for n tokens of each request; 0: it has also read a prompt.
void speculate_note_model(struct engine *e, uint64_t ns, uint32_t n);
// What the step of ns has shown; the requests of its outputs have accepted their tokens. Rows that do not
// count leave the requests.
void speculate_note(struct engine *e, uint64_t ns);
