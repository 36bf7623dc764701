// talk.h - one answer on its way to a client: what was asked for, the generation behind it, and the dialect it is told in.
#pragma once
#include "server/ask.h"
#include "server/runner.h"
#include "text/tokenizer.h"

struct server;
struct talk;

struct talk_choice {
    struct buf text;    // of the whole answer; when streaming, only as long as it is needed
    json_t *logprobs;   // array of entries, see logprobs.h
    size_t text_offset; // characters so far
    bool opened, ended;
};

// What a dialect says. The functions of a stream append events to out.
struct dialect_voice {
    void (*open)(struct talk *t, struct buf *out);
    void (*piece)(struct talk *t, uint32_t choice, const struct ingot_event *event, struct buf *out);
    void (*close)(struct talk *t, struct buf *out);
    void (*quiet)(struct talk *t, struct buf *out); // nothing was said for a while
    void (*fail)(struct talk *t, const struct err *err, struct buf *out);
    json_t *(*whole)(struct talk *t); // without streaming
};

struct talk {
    struct server *server;
    const struct dialect_voice *voice;
    struct ask ask;
    struct generation *generation;
    struct talk_choice *choices; // [n_choices]
    uint32_t n_choices;
    uint32_t n_prompts;                       // choice i belongs to prompt i / ask.n
    struct token_ids *prompts;                // [n_prompts]
    uint32_t n_prompt, n_reused, n_generated; // of all choices that are done; prompts count once
    char id[48];
    int64_t created;
    bool opened, failed, closed;
};

struct talk_waker {
    void (*wake)(void *arg); // with the runner's lock held
    void *arg;
};

// Reads the body and starts the generation. NULL: err says why; ERR_LIMIT with an empty message is a full queue.
struct talk *talk_begin(struct server *server, enum dialect dialect, struct str body, struct talk_waker waker, struct err *err);
void talk_end(struct talk *t); // cancels what still runs; NULL is allowed

// Takes all events there are. Streaming: as text in out. *done: nothing more will come.
void talk_pull(struct talk *t, struct buf *out, bool *done);
// The first error among the choices; NULL: none.
const struct ingot_result *talk_error(const struct talk *t);
// The prompt of an ask with messages, or its prompts. Free each, then the array by mem_free.
bool talk_prompts(struct server *server, struct ask *ask, struct token_ids **prompts, uint32_t *n, struct err *err);
// The rendered text of messages; free with buf_free.
bool talk_render(struct server *server, struct ask *ask, struct buf *text, struct err *err);

extern const struct dialect_voice voice_chat, voice_text, voice_messages;

// Shared by the dialects.
const char *talk_finish_name(enum ingot_finish finish); // OpenAI's words
json_t *talk_timings(const struct talk *t);
void talk_add_warnings(struct talk *t, json_t *to);
