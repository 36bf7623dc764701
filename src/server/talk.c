// talk.c - see talk.h. Prompts are made into tokens here, so that the engine only ever gets tokens.
#include "server/talk.h"
#include <time.h>
#include "base/clock.h"
#include "base/mem.h"
#include "engine/verify.h"
#include "server/logprobs.h"
#include "server/state.h"
#include "text/chat.h"

static const struct dialect_voice *voice_of(enum dialect dialect)
{
    return dialect == DIALECT_CHAT ? &voice_chat : dialect == DIALECT_TEXT ? &voice_text : &voice_messages;
}

// ---- prompts

static bool check_messages(const struct ask *ask, struct err *err)
{
    static const char *const roles[] = { "system", "developer", "user", "assistant", "tool" };
    json_t *message;
    size_t i;

    if (!json_is_array(ask->messages) || json_array_size(ask->messages) == 0)
        return err_set(err, ERR_INPUT, "messages: want a list with at least one message");
    json_array_foreach(ask->messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        bool known = false;
        for (size_t r = 0; role && r < sizeof roles / sizeof *roles; r++)
            known |= !strcmp(role, roles[r]);
        if (!known)
            return err_set(err, ERR_INPUT, "messages[%zu].role is %s%.40s; want system, developer, user, assistant or tool", i,
                           role ? "" : "missing", role ? role : "");
    }
    return true;
}

// What templates know: the developer role is called system there, and Anthropic's system field is the first message.
static json_t *messages_for_template(const struct ask *ask)
{
    json_t *messages = json_array(), *message;
    size_t i;

    if (ask->system)
        json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "system", "content", ask->system));
    json_array_foreach(ask->messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        json_t *copy = json_copy(message);
        if (!strcmp(role, "developer"))
            json_object_set_new(copy, "role", json_string("system"));
        json_array_append_new(messages, copy);
    }
    return messages;
}

static bool render(struct server *s, struct ask *ask, struct template_output *out, struct err *err)
{
    struct chat_options options = { .extra = ask->kwargs, .add_generation_prompt = !ask->no_generation_prompt };

    if (!check_messages(ask, err))
        return false;
    const struct engine *e = engine_of(s->engine);
    if (!e->chat)
        return err_set(err, ERR_UNSUPPORTED, "%s", e->tokenizer ? e->no_chat.message : e->no_tokenizer.message);
    json_t *messages = messages_for_template(ask);
    bool ok = chat_render(e->chat, messages, &options, out, err);
    json_decref(messages);
    return ok;
}

bool talk_render(struct server *s, struct ask *ask, struct buf *text, struct err *err)
{
    struct template_output out;

    if (!render(s, ask, &out, err))
        return false;
    bool ok = buf_str(text, out.text) || out.text.n == 0;
    template_output_free(&out);
    return ok || err_memory(err, "the rendered text");
}

static bool messages_prompt(struct server *s, struct ask *ask, struct token_ids *ids, struct err *err)
{
    struct template_output out;

    if (!render(s, ask, &out, err))
        return false;
    bool ok = tokenizer_encode_spans(s->tokenizer, out.spans, out.n_spans, (struct tokenize_flags){ 0 }, ids, err);
    template_output_free(&out);
    return ok;
}

static bool ids_prompt(const struct server *s, json_t *list, struct token_ids *ids, struct err *err)
{
    json_t *item;
    size_t i;

    if (json_array_size(list) >= s->info.n_context)
        return err_set(err, ERR_LIMIT, "the prompt has %zu tokens and the context holds %u, the answer included",
                       json_array_size(list), s->info.n_context);
    json_array_foreach(list, i, item)
    {
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || id >= (json_int_t)s->info.n_vocab)
            return err_set(err, ERR_INPUT, "prompt[%zu]: want a token, an integer from 0 to %u", i, s->info.n_vocab - 1);
        if (!token_ids_push(ids, (uint32_t)id))
            return err_memory(err, "the prompt");
    }
    return true;
}

static bool text_prompt(const struct server *s, json_t *prompt, struct token_ids *ids, struct err *err)
{
    if (json_is_array(prompt))
        return ids_prompt(s, prompt, ids, err);
    if (!json_is_string(prompt))
        return err_set(err, ERR_INPUT, "prompt: want a string, a list of strings, or tokens");
    if (!s->tokenizer)
        return err_set(err, ERR_UNSUPPORTED, "this model has no tokenizer; give the prompt as tokens");
    struct str text = { json_string_value(prompt), json_string_length(prompt) };
    return tokenizer_encode(s->tokenizer, text, (struct tokenize_flags){ .add_special = true }, ids, err);
}

bool talk_prompts(struct server *s, struct ask *ask, struct token_ids **prompts, uint32_t *n, struct err *err)
{
    json_t *first = json_array_get(ask->prompt, 0);
    bool many = json_is_string(first) || json_is_array(first);
    size_t n_prompts = many ? json_array_size(ask->prompt) : 1;
    bool ok = true;

    if (n_prompts * ask->n > s->options->limits.n_choices)
        return err_set(err, ERR_INPUT, "%zu prompts with n = %u are %zu answers; at most %u", n_prompts, ask->n,
                       n_prompts * ask->n, s->options->limits.n_choices);
    *prompts = mem_alloc_array(n_prompts, sizeof **prompts);
    if (!*prompts)
        return err_memory(err, "prompts");
    for (*n = 0; ok && *n < n_prompts;) {
        struct token_ids *ids = &(*prompts)[(*n)++];
        ok = ask->messages ? messages_prompt(s, ask, ids, err)
                           : text_prompt(s, many ? json_array_get(ask->prompt, *n - 1) : ask->prompt, ids, err);
        if (ok && ids->n == 0)
            ok = err_set(err, ERR_INPUT, "the prompt is empty; give at least one token");
        if (ok && ids->n >= s->info.n_context)
            ok = err_set(err, ERR_LIMIT, "the prompt has %zu tokens and the context holds %u, the answer included; shorten it",
                         ids->n, s->info.n_context);
    }
    return ok;
}

// ---- begin and end

static uint64_t random_u64(void)
{
    static atomic_uint_fast64_t counter;
    uint64_t x = clock_ns() + atomic_fetch_add(&counter, 0x9e3779b97f4a7c15u);

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static bool submit(struct talk *t, struct talk_waker waker, struct err *err)
{
    struct ask *ask = &t->ask;
    struct ingot_request_options *requests = mem_alloc_array(t->n_choices, sizeof *requests);
    uint64_t seed = ask->has_seed ? (uint64_t)ask->seed : random_u64();

    if (!requests)
        return err_memory(err, "requests");
    for (uint32_t i = 0; i < t->n_choices; i++) {
        const struct token_ids *prompt = &t->prompts[i / ask->n];
        requests[i] = ingot_request_defaults();
        requests[i].tokens = prompt->ids;
        requests[i].n_tokens = prompt->n;
        requests[i].sampling = ask->sampling;
        requests[i].sampling.seed = seed + i % ask->n;
        requests[i].max_tokens = ask->max_tokens;
        requests[i].stop = ask->stops;
        requests[i].n_stop = ask->n_stops;
        requests[i].ignore_eos = ask->ignore_eos;
        requests[i].n_logits = ask->logprobs ? 1 : 0;
    }
    struct generation_options options = { requests, t->n_choices, !ask->stream, waker.wake, waker.arg };
    t->generation = runner_submit(&t->server->runner, &options, err);
    mem_free(requests);
    return t->generation != NULL;
}

static bool check_model(struct talk *t, struct err *err)
{
    const char *model = t->ask.model;

    if (!model || !*model || !strcmp(model, t->server->name) || !strcmp(model, "default"))
        return true;
    return ask_warn(&t->ask, err, "model '%.80s' is not here; '%.80s' answered", model, t->server->name);
}

static bool begin(struct talk *t, struct talk_waker waker, struct err *err)
{
    struct server *s = t->server;

    if (t->ask.logprobs && !s->tokenizer)
        return err_set(err, ERR_UNSUPPORTED, "logprobs need a tokenizer, which this model lacks");
    if (!check_model(t, err) || !talk_prompts(s, &t->ask, &t->prompts, &t->n_prompts, err))
        return false;
    t->n_choices = t->n_prompts * t->ask.n;
    t->choices = mem_alloc_array(t->n_choices, sizeof *t->choices);
    if (!t->choices)
        return err_memory(err, "answers");
    for (uint32_t i = 0; i < t->n_choices; i++)
        t->choices[i].logprobs = json_array();
    for (uint32_t i = 0; i < t->n_prompts; i++)
        t->n_prompt += (uint32_t)t->prompts[i].n;
    return submit(t, waker, err);
}

struct talk *talk_begin(struct server *s, enum dialect dialect, struct str body, struct talk_waker waker, struct err *err)
{
    struct talk *t = mem_alloc(sizeof *t);
    json_t *json = t ? ask_parse(body, err) : NULL;

    if (!t)
        err_memory(err, "an answer");
    if (!json) {
        mem_free(t);
        return NULL;
    }
    *t = (struct talk){ .server = s, .voice = voice_of(dialect), .created = (int64_t)time(NULL) };
    t->ask.strict = s->options->strict;
    snprintf(t->id, sizeof t->id, "%s%016llx",
             dialect == DIALECT_CHAT   ? "chatcmpl-"
             : dialect == DIALECT_TEXT ? "cmpl-"
                                       : "msg_",
             (unsigned long long)random_u64());
    if (ask_read(&t->ask, dialect, json, &s->options->limits, err) && begin(t, waker, err)) {
        ask_forget_body(&t->ask);
        return t;
    }
    talk_end(t);
    return NULL;
}

// Answers whose end nobody waited for.
static void note_left(struct talk *t)
{
    struct ingot_result left = { .finish = INGOT_FINISH_CANCELLED };

    for (uint32_t i = 0; i < t->n_choices; i++)
        if (!t->generation->choices[i].done)
            metrics_result(&t->server->metrics, &left);
}

void talk_end(struct talk *t)
{
    if (!t)
        return;
    if (t->generation) {
        note_left(t);
        generation_release(t->generation);
    }
    for (uint32_t i = 0; t->choices && i < t->n_choices; i++) {
        json_decref(t->choices[i].logprobs);
        buf_free(&t->choices[i].text);
    }
    mem_free(t->choices);
    for (uint32_t i = 0; i < t->n_prompts; i++)
        token_ids_free(&t->prompts[i]);
    mem_free(t->prompts);
    ask_release(&t->ask);
    mem_free(t);
}

// ---- events

static void note_result(struct talk *t, const struct ingot_result *r)
{
    t->n_generated += r->n_generated;
    t->n_reused += r->n_reused;
    metrics_result(&t->server->metrics, r);
}

static void take_event(struct talk *t, uint32_t choice, const struct ingot_event *event, struct buf *out)
{
    struct talk_choice *c = &t->choices[choice];

    if (t->ask.logprobs && event->logits && event->token != UINT32_MAX) {
        struct logprobs_row row = { event->logits, t->server->info.n_vocab, event->token, t->ask.top_logprobs };
        json_array_append_new(c->logprobs, logprobs_entry(t->server->tokenizer, &row));
    }
    buf_append(&c->text, event->text, event->n_bytes);
    if (event->done)
        note_result(t, event->result);
    if (t->ask.stream && !t->failed)
        t->voice->piece(t, choice, event, out);
}

static void end_stream(struct talk *t, struct buf *out)
{
    const struct ingot_result *bad = talk_error(t);

    if (t->closed || !t->ask.stream)
        return;
    t->closed = true;
    if (!bad) {
        t->voice->close(t, out);
        return;
    }
    struct err err = { .code = ERR_CANCELLED };
    if (bad->finish == INGOT_FINISH_ERROR)
        err.code = (enum err_code)bad->error.code;
    snprintf(err.message, sizeof err.message, "%s",
             bad->finish == INGOT_FINISH_ERROR ? bad->error.message : "the server is stopping; the answer is not complete");
    t->voice->fail(t, &err, out);
}

void talk_pull(struct talk *t, struct buf *out, bool *done)
{
    struct ingot_event event;
    uint32_t choice;

    if (t->ask.stream && !t->opened) {
        t->opened = true;
        t->voice->open(t, out);
    }
    while (generation_take(t->generation, &choice, &event))
        take_event(t, choice, &event, out);
    *done = generation_is_done(t->generation);
    if (*done)
        end_stream(t, out);
}

const struct ingot_result *talk_error(const struct talk *t)
{
    for (uint32_t i = 0; i < t->n_choices; i++) {
        const struct choice *c = &t->generation->choices[i];
        if (c->done && (c->result.finish == INGOT_FINISH_ERROR || c->result.finish == INGOT_FINISH_CANCELLED))
            return &c->result;
    }
    return NULL;
}

// ---- shared by the dialects

const char *talk_finish_name(enum ingot_finish finish)
{
    return finish == INGOT_FINISH_LENGTH                               ? "length"
           : finish == INGOT_FINISH_EOS || finish == INGOT_FINISH_STOP ? "stop"
                                                                       : "error";
}

json_t *talk_timings(const struct talk *t)
{
    const struct ingot_result *r = &t->generation->choices[0].result;
    double prefill = r->prefill_ms > 0 ? r->prefill_ms : 1e-3, decode = r->decode_ms > 0 ? r->decode_ms : 1e-3;
    uint32_t computed = r->n_prompt - r->n_reused, after_first = r->n_generated > 0 ? r->n_generated - 1 : 0;

    return json_pack("{s:i, s:i, s:f, s:f, s:f, s:i, s:f, s:f}", "cache_n", (int)r->n_reused, "prompt_n", (int)computed,
                     "prompt_ms", r->prefill_ms, "prompt_per_second", computed / prefill * 1e3, "queue_ms",
                     r->first_token_ms - r->prefill_ms, "predicted_n", (int)r->n_generated, "predicted_ms", r->decode_ms,
                     "predicted_per_second", after_first / decode * 1e3);
}

void talk_add_warnings(struct talk *t, json_t *to)
{
    if (json_array_size(t->ask.warnings) > 0)
        json_object_set(to, "warnings", t->ask.warnings);
}
