// api_request.h - an API request, parsed from its JSON by one table of fields for all dialects.
//
// A field of the wrong type or out of range is an error before anything is allocated for it. An unsupported
// or unknown field gives a warning in the response, or an error when the request or the server is strict.
// Only fields that cannot change an answer are ignored silently (user, metadata).
#pragma once
#include <jansson.h>
#include "base/str.h"
#include "ingot.h"
#include "server/api/pictures.h"
#include "server/http/limits.h"

enum dialect {
    DIALECT_CHAT = 1,       // POST /v1/chat/completions
    DIALECT_TEXT = 2,       // POST /v1/completions
    DIALECT_MESSAGES = 4,   // POST /v1/messages, Anthropic's
    DIALECT_COUNT = 8,      // POST /v1/messages/count_tokens
    DIALECT_TEMPLATE = 16,  // POST /apply-template
    DIALECT_RESPONSES = 32, // POST /v1/responses
    DIALECT_EMBED = 64,     // POST /v1/embeddings
    // llama.cpp's server
    DIALECT_NATIVE = 128, // POST /completion
    DIALECT_INFILL = 256, // POST /infill
    // Ollama's
    DIALECT_OLLAMA_CHAT = 512,   // POST /api/chat
    DIALECT_OLLAMA_TEXT = 1024,  // POST /api/generate
    DIALECT_OLLAMA_EMBED = 2048, // POST /api/embed
    DIALECT_OPTIONS = 4096,      // the map "options" of these three
    DIALECT_RERANK = 8192,       // POST /v1/rerank, as Jina and Cohere write it

    DIALECTS_LLAMACPP = DIALECT_NATIVE | DIALECT_INFILL,
    DIALECTS_OLLAMA = DIALECT_OLLAMA_CHAT | DIALECT_OLLAMA_TEXT,
    DIALECTS_EMBED = DIALECT_EMBED | DIALECT_OLLAMA_EMBED | DIALECT_RERANK
};

enum { API_REQUEST_MAX_TOP_LOGPROBS = 20, API_REQUEST_MAX_TOOLS = 128, API_REQUEST_PARAM_BYTES = 64 };

enum api_request_choice { CHOICE_AUTO, CHOICE_NONE, CHOICE_REQUIRED, CHOICE_NAMED };
enum api_request_continue {
    CONTINUE_IF_LAST,
    CONTINUE_ALWAYS,
    CONTINUE_NEVER
}; // the assistant's last message
enum api_request_thinking { THINKING_AS_TEMPLATE, THINKING_ON, THINKING_OFF };

struct api_request {
    enum dialect dialect;
    const struct server_limits *limits;
    json_t *body;              // owned
    json_t *messages, *prompt; // within body
    json_t *kwargs, *system;   // within body; NULL: none
    json_t *input,
        *reasoning; // within body, of the Responses API: the conversation, and the reasoning effort
    json_t *tools;  // as chat completions write them, owned; NULL: none
    enum api_request_choice choice;
    const char *prefix, *suffix;    // of infill, within body; NULL: not given
    json_t *files;                  // of the same project, for infill; within body; NULL: none
    json_t *images;                 // of Ollama's prompt, within body; NULL: none
    struct pictures pictures;       // owned; read with the messages
    json_t *allowed;                // the only tools that the model sees, within body; NULL: all
    const char *tool;               // the tool to call, with CHOICE_NAMED; within body
    json_t *schema;                 // of the answer, within body; NULL: none
    bool strict_tools;              // a tool has "strict": its schema must be kept
    bool json_object, one_call;     // the answer must be an object; at most one call
    const char *grammar, *effort;   // within body; NULL: not given
    const char *encoding, *pooling; // of embeddings, within body; NULL: not given
    const char *cache_salt;         // within body; NULL: not given
    uint32_t priority, deadline_ms; // above 0: after others; 0: none
    enum api_request_thinking thinking;
    enum api_request_continue continues;
    struct ingot_bias *bias; // [n_bias], owned
    uint32_t n_bias, dimensions;
    const char *query;       // of a reranker, within body; NULL: not given
    const char *instruction; // of a reranker, or before each text that is embedded
    json_t *documents;       // that are returned with their scores, owned; NULL: they are not
    uint32_t top_n;          // 0: all
    bool return_documents;
    json_t *warnings;  // array of strings, owned
    json_t *stop_list; // a string or a list of them, owned; NULL: none
    json_t *repeated;  // fields that a response's reply has too, an object, owned; NULL: none
    const char *model; // within body; NULL: not given
    struct ingot_sampling sampling;
    const char *stops[64]; // within body
    uint32_t n_stops, max_tokens, n, best_of, top_logprobs, penalty_window;
    uint32_t n_per_prompt; // answers generated for each prompt, of which n are returned
    int64_t seed;
    bool has_seed;
    bool reasoning_open;   // the rendered prompt ends within the model's reasoning
    bool reasoning_closed; // or right after it
    bool stream, include_usage, logprobs, echo, ignore_eos, strict, no_generation_prompt;
    bool echo_only; // max_tokens is 0: the response is the prompt alone
    bool raw;       // the prompt is used without the template
    bool return_tokens, loads_only;
};

// The prompt is a text or tokens, not a conversation.
static inline bool api_request_is_plain(const struct api_request *request)
{
    return request->dialect & (DIALECT_TEXT | DIALECTS_LLAMACPP | DIALECTS_EMBED) || request->raw;
}

// Fields with files of their own: api_request_ollama.c, api_request_tools.c.
bool api_request_take_images(struct api_request *request, const char *name, json_t *value, struct err *err);
bool api_request_take_ollama_format(struct api_request *request, const char *name, json_t *value,
                                    struct err *err);
bool api_request_take_options(struct api_request *request, const char *name, json_t *value, struct err *err);
bool api_request_finish_ollama(struct api_request *request, struct err *err); // after all fields
bool api_request_take_think(struct api_request *request, const char *name, json_t *value, struct err *err);
bool api_request_take_tools(struct api_request *request, const char *name, json_t *value, struct err *err);
bool api_request_take_choice(struct api_request *request, const char *name, json_t *value, struct err *err);
bool api_request_take_format(struct api_request *request, const char *name, json_t *value, struct err *err);
bool api_request_take_bias(struct api_request *request, const char *name, json_t *value, struct err *err);
bool api_request_take_reasoning(struct api_request *request, const char *name, json_t *value,
                                struct err *err);
bool api_request_take_thinking(struct api_request *request, const char *name, json_t *value, struct err *err);
bool api_request_check_tools(struct api_request *request, struct err *err);

// Parses one field of these dialects.
bool api_request_read_field(struct api_request *request, unsigned dialects, const char *name, json_t *value,
                            struct err *err);
// Takes the body. On failure the request is released.
bool api_request_read(struct api_request *request, enum dialect dialect, json_t *body,
                      const struct server_limits *limits, struct err *err);
// Reports something that is not supported: a warning, or with strict an error.
bool api_request_warn(struct api_request *request, struct err *err, const char *format, ...)
    PRINTF_LIKE(3, 4);
// The field that an error message begins with, such as "messages[0].role". False: it begins with none.
bool api_request_param(const char *message, char param[API_REQUEST_PARAM_BYTES]);
// The same for the text of a body.
bool api_request_read_text(struct api_request *request, enum dialect dialect, struct str body,
                           const struct server_limits *limits, struct err *err);
void api_request_release(struct api_request *request);
// Frees the body; the pointers into it are NULL then.
void api_request_forget_body(struct api_request *request);

// A setting as it was written: 0.8, where (double)0.8f has more digits.
double api_request_number(float setting);
// Parses the JSON text of a request: one object, no duplicate keys, nothing after it. The error says where it
// is malformed.
json_t *api_request_parse(struct str body, struct err *err);
bool api_request_knows(unsigned dialect, struct str name); // some table has a field of this name
