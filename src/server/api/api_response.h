// api_response.h - one API response: the request, its generation, and the format in which the answer goes to
// the client.
#pragma once
#include "server/api/served_model.h"
#include "server/api/prompts.h"
#include "server/generation/generation.h"
#include "text/parsers/output_parser.h"
#include "text/tokenizer/tokenizer.h"

struct api_response;

enum { API_RESPONSE_MAX_CALLS = 64 };

struct api_response_call { // of a tool
    char id[40];
    struct buf name, arguments;
};

struct api_response_choice {
    struct output_parser parser;
    struct buf text, reasoning; // of the whole answer; empty while streaming, except in the Responses API
    struct api_response_call *calls; // [n_calls]
    uint32_t n_calls;
    struct token_ids tokens; // with return_tokens: not sent yet
    json_t *logprobs;        // array of entries, see logprobs.h
    size_t text_offset;      // characters so far
    double score;            // best_of: the sum of the log-probabilities of n_scored tokens
    uint32_t n_scored;
    bool returned;
    bool opened;
    struct buf frame; // openai.c: an event around its text, which is the same for every piece of a kind
    size_t frame_at;  // where the text goes
    enum piece_kind frame_kind;
    int block;         // of a stream in blocks: the kind of piece that is open, or -1
    uint32_t n_blocks; // and the number of blocks so far
};

// How a dialect writes a response. A stream's functions append events to out.
struct api_format {
    const char *stream_type;                               // NULL: text/event-stream
    void (*open)(struct api_response *t, struct buf *out); // NULL: a stream begins with its first piece
    void (*piece)(struct api_response *t, uint32_t choice, const struct output_piece *piece, struct buf *out);
    void (*finish)(struct api_response *t, uint32_t choice, struct buf *out); // the choice is complete
    void (*close)(struct api_response *t, struct buf *out);      // NULL: it ends with the last one
    void (*keep_alive)(struct api_response *t, struct buf *out); // NULL: a comment of an event stream
    void (*fail)(struct api_response *t, const struct err *err, struct buf *out);
    json_t *(*whole)(struct api_response *t); // without streaming
};

struct api_response {
    struct served_model *model;
    const struct api_format *format;
    struct api_request request;
    struct generation *generation;
    struct api_response_choice *choices; // [n_choices]
    uint32_t n_choices;
    struct prompts prompts;                   // choice i belongs to prompt i / request.n_per_prompt
    uint32_t n_prompt, n_reused, n_generated; // of all choices that are done; prompts count once
    char id[48];
    char name[SERVED_NAME_BYTES]; // of the model, with the adapter that the request names
    uint32_t adapter;             // of the engine; UINT32_MAX: none
    int64_t created;
    enum tool_call_style style; // how this model writes calls
    const struct reasoning_marks *marks;
    bool parses; // the answer is parsed into reasoning, content and calls: output_parser.h
    bool thinks, reasoning_open, opened, failed, closed;
    uint64_t n_events; // of a stream whose events are numbered
    json_t *items;     // of a stream of the Responses API: the complete items
    bool base64;       // of embeddings
};

// Parses an answer as it arrives.
bool api_response_parse_begin(struct api_response *t); // before the first event; false without memory
void api_response_parse_event(struct api_response *t, uint32_t choice, const struct ingot_event *event,
                              struct buf *out);
void api_response_parse_release(struct api_response *t); // frees what the choices hold

struct api_response_client {
    void (*wake)(void *arg); // with the engine thread's lock held
    void *arg;
    const char *key; // its API key; NULL: none is needed
};

// Takes the request and starts the generation. NULL: see err; ERR_LIMIT with an empty message is a full
// queue.
struct api_response *api_response_begin(struct served_model *model, struct api_request *request,
                                        struct api_response_client client, struct err *err);
void api_response_end(struct api_response *t); // cancels what still runs; NULL is allowed

// Takes all available events; when streaming, appends them to out. *done: there will be no more.
void api_response_pull(struct api_response *t, struct buf *out, bool *done);
// For a stream that was silent for long.
void api_response_keep_alive(struct api_response *t, struct buf *out);
// Whether memory was there for all parts of its choices.
bool api_response_is_whole(const struct api_response *t);
// The first error among the choices; NULL: none.
const struct ingot_result *api_response_error(const struct api_response *t);
extern const struct api_format api_format_chat, api_format_text, api_format_messages, api_format_responses,
    api_format_embeddings, api_format_rerank, api_format_llamacpp, api_format_ollama, api_format_ollama_embed;

// Shared by the dialects.
const char *api_response_finish_name(const struct api_response *t, uint32_t choice); // OpenAI's words
json_t *api_response_text(const struct buf *text);
// The arguments as an object; arguments that are no object become {"text": arguments}.
json_t *api_response_call_input(const struct api_response_call *call);
json_t *embeddings_numbers(const struct buf *vector);
json_t *api_response_timings(const struct api_response *t);
void api_response_add_warnings(struct api_response *t, json_t *to);
