// older.c - a program as if built with an ingot.h whose structs were shorter: it declares them itself. The
// library must give what is missing its default, and write nothing behind what there is.
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct ingot_engine;
struct ingot_request;
struct ingot_error {
    int code;
    char message[504];
};
struct ingot_engine_options {
    size_t size;
    const char *model, *device, *stages;
    uint32_t n_threads, n_context;
};
struct ingot_message {
    const char *role, *content;
};
struct ingot_sampling {
    float temperature;
    uint32_t top_k;
    float top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    uint32_t penalty_window;
    uint64_t seed;
    uint32_t reserved[16];
};
struct ingot_request_options {
    size_t size, message_size, event_size, result_size;
    void *session;
    const struct ingot_message *messages;
    size_t n_messages;
    const char *text;
    const uint32_t *tokens;
    size_t n_tokens;
    bool parse_special;
    struct ingot_sampling sampling;
    uint32_t max_tokens;
};
struct ingot_result {
    int finish;
    uint32_t stop;
    struct ingot_error error;
    uint32_t n_prompt, n_reused, n_generated;
};
struct ingot_event {
    const char *text;
    size_t n_bytes;
    uint32_t token;
    const float *logits;
    uint32_t position;
    const float *embedding;
    bool done;
};
void ingot_engine_options_init(struct ingot_engine_options *options, size_t size);
void ingot_request_options_init(struct ingot_request_options *options, size_t size);
struct ingot_engine *ingot_engine_open(const struct ingot_engine_options *options, struct ingot_error *error);
void ingot_engine_close(struct ingot_engine *engine);
bool ingot_generate_batch(struct ingot_engine *engine, const struct ingot_request_options *options, size_t n,
                          struct ingot_result *results, char **texts, struct ingot_error *error);
struct ingot_request *ingot_submit(struct ingot_engine *engine, const struct ingot_request_options *options,
                                   struct ingot_error *error);
bool ingot_step(struct ingot_engine *engine, bool *busy, struct ingot_error *error);
bool ingot_poll(struct ingot_request *request, struct ingot_event *event);
void ingot_request_free(struct ingot_request *request);
int64_t ingot_tokenize(const struct ingot_engine *engine, const char *text, size_t n_bytes,
                       bool parse_special, uint32_t *tokens, size_t capacity, struct ingot_error *error);
int64_t ingot_detokenize(const struct ingot_engine *engine, const uint32_t *tokens, size_t n_tokens,
                         char *text, size_t capacity, struct ingot_error *error);
void ingot_free(void *memory);

enum { N = 2, BEHIND = 256 };
static struct ingot_error error;

// Each of the program's structs with bytes behind it that must stay.
static struct {
    struct ingot_engine_options options;
    unsigned char behind[BEHIND];
} engine_options;
static struct {
    struct ingot_request_options options[N];
    unsigned char behind[BEHIND];
} requests;
static struct {
    struct ingot_result results[N];
    unsigned char behind[BEHIND];
} results;
static struct {
    struct ingot_event event;
    unsigned char behind[BEHIND];
} event;

static bool untouched(const unsigned char *behind)
{
    for (size_t i = 0; i < BEHIND; i++)
        if (behind[i] != 0xff)
            return false;
    return true;
}

static bool run_batch(struct ingot_engine *engine, char *texts[N])
{
    static const struct ingot_message message = { "user", "What is 12 + 30?" };

    for (int i = 0; i < N; i++) {
        struct ingot_request_options *r = &requests.options[i];
        ingot_request_options_init(r, sizeof *r);
        r->message_size = sizeof message;
        r->event_size = sizeof event.event;
        r->result_size = sizeof results.results[0];
        r->messages = &message;
        r->n_messages = 1;
        r->sampling.temperature = 0;
        r->max_tokens = 8;
    }
    return ingot_generate_batch(engine, requests.options, N, results.results, texts, &error);
}

static bool run_one(struct ingot_engine *engine, char *text, size_t capacity)
{
    struct ingot_request *request = ingot_submit(engine, &requests.options[0], &error);
    bool busy;

    text[0] = 0;
    while (request && !event.event.done && ingot_step(engine, &busy, &error))
        while (ingot_poll(request, &event.event))
            strncat(text, event.event.text, capacity - strlen(text) - 1);
    ingot_request_free(request);
    return request && event.event.done;
}

static bool run_tokens(struct ingot_engine *engine)
{
    static const char said[] = "Once upon a time";
    uint32_t tokens[40];
    char back[40];
    int64_t n = ingot_tokenize(engine, said, strlen(said), false, tokens, 40, &error);

    return n > 0 &&
           ingot_detokenize(engine, tokens, (size_t)n, back, sizeof back, &error) == (int64_t)strlen(said) &&
           !strcmp(back, said);
}

int main(void)
{
    char *texts[N] = { 0 }, text[200];

    memset(&engine_options, 0xff, sizeof engine_options);
    memset(&requests, 0xff, sizeof requests);
    memset(&results, 0xff, sizeof results);
    memset(&event, 0xff, sizeof event);
    ingot_engine_options_init(&engine_options.options, sizeof engine_options.options);
    struct ingot_engine *engine = ingot_engine_open(&engine_options.options, &error);
    bool ok = engine && run_batch(engine, texts);
    event.event.done = false;
    ok = ok && run_one(engine, text, sizeof text) && run_tokens(engine);
    if (!ok)
        fprintf(stderr, "%s\n", error.message);
    ok = ok && texts[0] && texts[0][0] && !strcmp(texts[0], text) && texts[1] && !strcmp(texts[1], text) &&
         results.results[0].n_generated > 0 &&
         results.results[1].n_generated == results.results[0].n_generated;
    ok = ok && untouched(engine_options.behind) && untouched(requests.behind) && untouched(results.behind) &&
         untouched(event.behind);
    for (int i = 0; i < N; i++)
        ingot_free(texts[i]);
    ingot_engine_close(engine);
    return ok ? 0 : 1;
}
