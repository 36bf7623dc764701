// engine.h - the engine: a loaded model on its stages, KV pages, and the requests that run on it.
//
// The parts, each in its own file: place (which layers on which stage), stage (weights, pages and tapes of a
// range of layers), link (the activation block between stages), kv (pages and slots), batch (fills a step),
// schedule (which rows run next), request (one generation from prompt to text), admit (admission),
// flight (steps that follow each other before they are over, and threads of stages), prefill_budget (prefill
// rows beside decode rows), api (the public functions). Three locks: `stepping` is
// held for a whole step, `state` while lists and requests are read or changed, `making` while a part is made
// on first use. state is taken after stepping.
#pragma once
#include <pthread.h>
#include "device/step.h"
#include "engine/stage/devices.h"
#include "engine/kv/kv.h"
#include "engine/health/health.h"
#include "engine/health/shown.h"
#include "engine/limits/load_watch.h"
#include "engine/flight/flight.h"
#include "engine/prefill_budget.h"
#include "engine/speculate/speculate.h"
#include "engine/stage/adapters.h"
#include "engine/stage/place.h"
#include "ingot.h"
#include "models/model.h"
#include "text/tokenizer/tokenizer.h"

struct request;
struct draft_model; // engine/speculate/draft_model.h
struct draft_stage; // engine/speculate/draft_stage.h
struct link;        // engine/stage/link.h
struct pipeline;    // engine/flight/pipeline.h
struct remote;      // engine/stage/remote.h
struct rank_group;  // engine/group/group.h
struct pool_room;   // engine/pool.h
struct chat;        // text/template/chat.h
struct token_trie;  // text/grammar/token_trie.h

// Constant once engine_load has returned: any thread reads it without a lock. But the devices, placement,
// stages and links belong to the thread that holds `stepping`, and change under both locks when a device is
// lost.
struct engine_loaded {
    struct ingot_engine_options options; // strings are not kept
    struct model_file *file, *eyes;      // eyes: the mmproj file of the vision tower, or NULL
    bool eyes_beside;                    // it was found beside the model
    struct model model;
    struct adapters adapters;
    struct tokenizer *tokenizer; // NULL: the file has none; the reason is in no_tokenizer
    struct err no_tokenizer;
    struct chat *chat; // NULL: no tokenizer, or the template cannot be used; the reason is in no_chat
    struct err no_chat;
    struct devices devices;
    struct placement placement;
    struct stage *stages; // [n_stages]
    struct link *links;   // [n_stages - 1]: link i is between stages i and i + 1
    uint32_t n_stages;
    bool returns_tokens; // see link_returns_tokens
    struct model *parts; // [n_parts], what each rank of a tensor parallel engine has of the model; else NULL
    uint32_t n_parts;
    struct rank_group *group;                                 // the ranks, of which stages[0] is the first
    struct remote *remote;                                    // the stages on other ranks; NULL: all are here
    uint32_t n_context, max_rows, max_outputs, longest_token; // longest_token: bytes of text
};

struct engine {
    const struct engine_loaded *loaded;
    pthread_mutex_t stepping, state, making;
    pthread_cond_t news; // with state: a step is over, or a request is new, cancelled or finished

    // Guarded by stepping; the requests that outputs belong to also by state.
    struct batch *batch;
    struct batch *ahead; // the step after batch; see fill_ahead
    bool is_ahead;       // it has been played
    struct flight flight;
    struct pipeline *pipeline; // NULL: the engine's thread plays all stages
    struct health health;
    struct draft_model *draft_model; // NULL: none
    bool is_drafter;                 // it is itself one, and has no requests; constant
    struct draft_stage *draft_stage; // the model's own layer that drafts; NULL: none
    bool block_is_fresh;             // the last stage's block holds the rows of `batch`
    float *logits;                   // one row, read back from a device that shares no memory; else NULL

    // Guarded by state.
    struct kv kv;
    struct tile_cache *tiles;  // engine/tiles.h; NULL: the model takes no pictures
    struct kv_store *kv_store; // NULL: pages are not kept on disk
    // the states that belong to pages, and the window pages; NULL: as above, or the model has none
    struct kv_store *state_store, *window_store;
    struct request *first, *last; // not done, by priority, then by age
    struct ingot_session *sessions;
    struct prefill_budget prefill_budget;
    struct speculation speculation;
    struct pace pace;
    struct shown shown;
    uint64_t n_pauses, n_steps, n_rows, prompts_at; // the last: n_steps when prompts were read
    uint64_t n_untaken;                             // events of all requests that the caller has not taken
    bool is_stepping;                               // a thread runs a step, or is about to
    uint32_t n_turns, n_bringing; // threads: that wait for both locks (wait_turn_begin); that bring pages
    uint64_t n_renewed;           // how often the pages were made anew
    struct sha256 identity;       // kv_persist_identity, as of identity_at = n_renewed + 1
    uint64_t identity_at;
    uint32_t n_live; // requests and sessions that exist
    bool closed;     // by the caller; the engine is freed with the last of these
    bool failed;     // the device failed: no step runs any more
    struct err failure;

    struct load_watch watch; // its own thread's, but for `stop`

    // Guarded by making, and constant once made.
    struct token_trie *trie;     // made for the first request with a grammar
    struct pool_room *pool_room; // engine/pool.h: made for the first embedding
};

bool engine_load(struct engine *e, const struct ingot_engine_options *options, struct err *err);
void engine_unload(struct engine *e);
// For a lost device. Both locks are held: releases all stages; makes pages and prefix cache anew, empty.
void engine_release_stages(struct engine *e);
bool engine_renew_pages(struct engine *e, struct err *err);
// stepping is held: makes the stages on the devices that are there, by the plan where there are several.
bool engine_reload(struct engine *e, struct err *err);
// What these options would place where, and how fast it would be with `depth` tokens in the context. Opens
// the file and the devices, loads some layers to each, unless the cache knows them, and measures what each
// can do. The placement that engine_load chooses comes from here.
struct plan; // engine/stage/plan.h
bool engine_plan(const struct ingot_engine_options *options, uint32_t depth, struct plan *plan,
                 struct err *err);
// The memory that an engine with these options needs, and that of the devices that it would use, in sum.
// Opens the file and the devices, loads nothing.
bool engine_estimate(const struct ingot_engine_options *options, struct place_memory *need,
                     struct device_info *device, struct err *err);

// The state lock is held for these two; an error of the device marks the engine as failed.
// Gives a slot pages for positions below n_tokens and writes them to the stages' page tables. False: not
// enough pages. Window pages: kv_window_advance has said which are let go.
bool engine_grow(struct engine *e, uint32_t slot, uint32_t n_tokens);
// Writes all pages of a slot and their n tokens to the stages.
void engine_tell_slot(struct engine *e, uint32_t slot, const uint32_t *tokens, uint32_t n);
// Writes the scales of the adapters that the slot's request uses; NULL: none.
void engine_tell_adapters(struct engine *e, uint32_t slot, const float *scales);

// Plays a batch through the stages; its results stay on the last one's device. `stepping` is held, as for
// the rest of this part, and nothing is in flight.
bool engine_play(struct engine *e, struct batch *b, struct err *err);
// The parts of it, for steps in flight: the step of a batch; stages from `first` on, which has its
// activations; results, which are copied while the device goes on, or come from another rank.
const struct step *engine_lay_out(const struct engine *e, struct batch *b);
bool engine_play_from(struct engine *e, const struct batch *b, uint32_t first, struct err *err);
bool engine_fetch(struct engine *e, struct batch *b, struct err *err);
bool engine_collect(struct engine *e, struct batch *b, struct err *err);
// Runs one step. *busy: requests remain.
bool engine_step(struct engine *e, bool *busy, struct err *err);
