// api_response.c - see api_response.h. Prompts are tokenized here; the engine gets messages only when they
// have pictures.
#include "server/api/api_response.h"
#include <time.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "server/api/constrain.h"
#include "server/api/prompts.h"
#include "server/generation/page_question.h"

static const struct dialect_entry {
    enum dialect dialect;
    const struct api_format *format;
    const char *id_prefix;
} dialects[] = {
    { DIALECT_CHAT, &api_format_chat, "chatcmpl-" },
    { DIALECT_TEXT, &api_format_text, "cmpl-" },
    { DIALECT_RESPONSES, &api_format_responses, "resp_" },
    { DIALECT_EMBED, &api_format_embeddings, "embd_" },
    { DIALECT_RERANK, &api_format_rerank, "rerank_" },
    { DIALECT_MESSAGES, &api_format_messages, "msg_" },
    { DIALECT_NATIVE, &api_format_llamacpp, "" },
    { DIALECT_INFILL, &api_format_llamacpp, "" },
    { DIALECT_OLLAMA_CHAT, &api_format_ollama, "" },
    { DIALECT_OLLAMA_TEXT, &api_format_ollama, "" },
    { DIALECT_OLLAMA_EMBED, &api_format_ollama_embed, "" },
};

static const struct dialect_entry *entry_of(enum dialect dialect)
{
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++)
        if (dialects[i].dialect == dialect)
            return &dialects[i];
    return NULL;
}

// ---- begin and end

static bool write_grammar(struct api_response *t, struct buf *grammar, struct err *err)
{
    struct constrain_options options = { t->style, t->thinks, t->reasoning_open, t->marks, t->model->engine };
    return constrain_answer(&t->request, &options, grammar, err);
}

// The salt of the prefix cache: prompts are shared only between requests with the same key, so that the time
// to the first token reveals nothing about other clients. After '\r' comes a random number, which shares with
// no request; no key or salt can contain it. A prefill server gets a digest of all that.
static bool write_salt(const struct api_response *t, struct api_response_client client, struct buf *salt)
{
    const char *own = t->request.cache_salt ? t->request.cache_salt : "";

    buf_text(salt, client.key ? client.key : "");
    if (t->model->no_shared_prefix && !*own)
        buf_printf(salt, "\r%016llx", (unsigned long long)random_u64());
    else
        buf_printf(salt, "\n%s", own);
    if (salt->failed || !t->model->prefetch.options)
        return !salt->failed;
    char digest[PAGE_SALT_BYTES];
    bool ok = page_question_salt(salt->at, digest);
    salt->n = 0;
    return ok && buf_text(salt, digest);
}

// A row of logits may be half a megabyte, so rows are taken as they arrive.
static bool keeps_rows(const struct api_request *request)
{
    return request->logprobs || request->n_per_prompt > request->n;
}

static enum ingot_embed embed_of(const struct api_request *request)
{
    const char *pooling = request->pooling ? request->pooling : "";

    return request->dialect == DIALECT_RERANK ? INGOT_EMBED_RANK
           : !strcmp(pooling, "last")         ? INGOT_EMBED_LAST
           : !strcmp(pooling, "cls")          ? INGOT_EMBED_CLS
           : !strcmp(pooling, "mean")         ? INGOT_EMBED_MEAN
                                              : INGOT_EMBED_MODEL;
}

// The options of one choice, without those that all choices share.
static struct ingot_request_options request_of(const struct api_response *t, uint32_t choice)
{
    const struct api_request *request = &t->request;
    const struct token_ids *prompt = &t->prompts.at[choice / request->n_per_prompt];
    struct ingot_request_options r = ingot_request_defaults();

    r.tokens = prompt->ids;
    r.n_tokens = prompt->n;
    prompts_show_pictures(request, &r);
    r.sampling = request->sampling;
    r.max_tokens = request->max_tokens;
    r.stop = request->stops;
    r.n_stop = request->n_stops;
    r.ignore_eos = request->ignore_eos;
    r.priority = (int32_t)request->priority;
    r.deadline_ms = request->deadline_ms;
    r.n_logprobs = request->logprobs && request->echo ? (uint32_t)prompt->n : keeps_rows(request);
    r.n_top_logprobs = request->logprobs ? request->top_logprobs : 0;
    r.bias = request->bias;
    r.n_bias = request->n_bias;
    // the marks of tool calls may be control tokens, and those of reasoning
    r.keep_special = t->style != CALLS_NONE || (t->parses && t->marks->special);
    if (request->dialect & DIALECTS_EMBED) {
        r.embed = embed_of(request);
        r.n_dimensions = request->dimensions;
        // Choices that cannot run at once wait behind the requests of other clients.
        r.priority += choice >= t->model->info.n_sequences;
    }
    return r;
}

// The prompt of whose pages a prefill server knows what they are: tokens alone, for all choices.
static struct prefetch_prompt prompt_to_fetch(const struct api_response *t, const struct buf *salt)
{
    const struct api_request *request = &t->request;
    bool plain = t->prompts.n == 1 && request->pictures.n == 0 && t->adapter == UINT32_MAX &&
                 !(request->dialect & DIALECTS_EMBED) && !(request->logprobs && request->echo);

    return plain ? (struct prefetch_prompt){ t->prompts.at[0].ids, t->prompts.at[0].n, salt->at,
                                             request->deadline_ms }
                 : (struct prefetch_prompt){ 0 };
}

static bool submit(struct api_response *t, struct api_response_client client, struct err *err)
{
    struct api_request *request = &t->request;
    struct ingot_request_options *requests = mem_alloc_array(t->n_choices, sizeof *requests);
    uint64_t seed = request->has_seed ? (uint64_t)request->seed : random_u64();
    struct buf grammar = { 0 }, salt = { 0 };

    if (!requests || !write_salt(t, client, &salt) || !write_grammar(t, &grammar, err)) {
        bool memory = !requests || salt.failed;
        mem_free(requests);
        buf_free(&salt);
        buf_free(&grammar);
        return memory ? err_memory(err, "requests") : false;
    }
    struct ingot_adapter_info adapter = { 0 };
    bool adapted = ingot_adapter_info(t->model->engine, t->adapter, &adapter);
    const struct ingot_adapter_use use = { adapter.name, 1 };
    const struct prefetch_prompt prompt = prompt_to_fetch(t, &salt);
    bool fetches = prefetch_wants(&t->model->prefetch, &prompt);
    for (uint32_t i = 0; i < t->n_choices; i++) {
        requests[i] = request_of(t, i);
        requests[i].adapters = &use;
        requests[i].n_adapters = adapted;
        requests[i].sampling.seed = seed + i % request->n_per_prompt;
        requests[i].cache_salt = salt.at;
        requests[i].grammar = grammar.n ? grammar.at : NULL;
        requests[i].deferred = fetches;
    }
    struct generation_options options = { .requests = requests,
                                          .n = t->n_choices,
                                          .most_places = request->dialect & DIALECTS_EMBED
                                                             ? t->model->info.n_sequences
                                                             : 0,
                                          .at_end_only = !request->stream && !keeps_rows(request),
                                          .wake = client.wake,
                                          .arg = client.arg };
    t->generation = generation_submit(&t->model->thread, &options, err);
    if (t->generation && fetches)
        prefetch_begin(&t->model->prefetch, t->generation, &prompt);
    mem_free(requests);
    buf_free(&salt);
    buf_free(&grammar);
    return t->generation != NULL;
}

// An adapter that is not here is an error: the answer would be another one's.
static bool check_adapter(const struct api_response *t, const char *asked, struct err *err)
{
    struct str name = str_from(asked), model = str_from(t->model->name);
    bool tagged = str_starts(name, model) && name.n > model.n && name.at[model.n] == ':';

    return t->model->info.n_adapters == 0 || !tagged ||
           err_set(err, ERR_INPUT, "model: adapter '%.80s' is not here; GET /v1/models lists what is",
                   asked + model.n + 1);
}

static bool check_model(struct api_response *t, struct err *err)
{
    const char *model = t->request.model;
    struct served_choice choice =
        model ? served_model_find(t->model, model) : (struct served_choice){ true, UINT32_MAX };

    t->adapter = choice.adapter;
    if (!served_model_adapter(t->model, t->adapter, t->name))
        snprintf(t->name, sizeof t->name, "%s", t->model->name);
    if (choice.is_here)
        return true;
    return check_adapter(t, model, err) &&
           api_request_warn(&t->request, err, "model '%.80s' is not here; '%.80s' answered", model,
                            t->model->name);
}

static bool check_embeddings(struct api_response *t, struct err *err)
{
    const char *encoding = t->request.encoding, *pooling = t->request.pooling;
    size_t n = t->model->info.n_vector;

    t->base64 = encoding && !strcmp(encoding, "base64");
    if (encoding && !t->base64 && strcmp(encoding, "float") != 0)
        return err_set(err, ERR_INPUT, "encoding_format is \"%.40s\"; want float or base64", encoding);
    if (pooling && strcmp(pooling, "mean") != 0 && strcmp(pooling, "last") != 0 &&
        strcmp(pooling, "cls") != 0)
        return err_set(err, ERR_INPUT, "pooling is \"%.40s\"; want mean, cls or last", pooling);
    return t->request.dimensions <= n ||
           err_set(err, ERR_INPUT, "dimensions is %u; this model's embeddings have %zu",
                   t->request.dimensions, n);
}

static bool check_logits(const struct api_response *t, struct err *err)
{
    uint64_t row = t->model->info.n_vocab * sizeof(float), most = t->model->limits->logits_bytes / row;
    uint64_t n = (uint64_t)t->n_prompt * t->request.n_per_prompt;

    return !t->request.echo || !t->request.logprobs || n <= most ||
           err_set(err, ERR_INPUT,
                   "logprobs of %llu tokens of echoed prompts; at most %llu with this model's vocabulary",
                   (unsigned long long)n, (unsigned long long)most);
}

static bool check_biases(const struct api_response *t, struct err *err)
{
    for (size_t i = 0; i < t->request.n_bias; i++)
        if (t->request.bias[i].token >= t->model->info.n_vocab)
            return err_set(err, ERR_INPUT, "logit_bias: token %u; the model has %u", t->request.bias[i].token,
                           t->model->info.n_vocab);
    return true;
}

static bool begin(struct api_response *t, struct api_response_client client, struct err *err)
{
    struct served_model *m = t->model;

    if (t->request.logprobs && !m->info.has_tokenizer)
        return err_set(err, ERR_UNSUPPORTED, "logprobs need a tokenizer, which this model lacks");
    if (t->request.dialect & DIALECTS_EMBED && !check_embeddings(t, err))
        return false;
    t->marks = prompts_style(m, &t->request, &t->style, &t->thinks);
    if (!check_model(t, err) || !check_biases(t, err) || !prompts_make(m, &t->request, &t->prompts, err))
        return false;
    t->reasoning_open = t->request.reasoning_open;
    t->thinks = t->thinks && !t->request.reasoning_closed;
    t->n_choices = t->prompts.n * t->request.n_per_prompt;
    t->choices = mem_alloc_array(t->n_choices, sizeof *t->choices);
    if (!t->choices)
        return err_memory(err, "answers");
    if (!api_response_parse_begin(t))
        return err_memory(err, "answers");
    for (uint32_t i = 0; i < t->prompts.n; i++)
        t->n_prompt += (uint32_t)t->prompts.at[i].n;
    return check_logits(t, err) && submit(t, client, err);
}

struct api_response *api_response_begin(struct served_model *model, struct api_request *request,
                                        struct api_response_client client, struct err *err)
{
    const struct dialect_entry *entry = entry_of(request->dialect);
    struct api_response *t = mem_alloc(sizeof *t);

    CHECK(entry != NULL);
    if (!t) {
        err_memory(err, "an answer");
        api_request_release(request);
        return NULL;
    }
    *t = (struct api_response){
        .model = model, .format = entry->format, .request = *request, .created = (int64_t)time(NULL)
    };
    *request = (struct api_request){ 0 };
    snprintf(t->id, sizeof t->id, "%s%016llx", entry->id_prefix, (unsigned long long)random_u64());
    if (begin(t, client, err)) {
        api_request_forget_body(&t->request);
        return t;
    }
    api_response_end(t);
    return NULL;
}

// Counts the answers that were cancelled.
static void note_left(struct api_response *t)
{
    struct ingot_result left = { .finish = INGOT_FINISH_CANCELLED };

    for (uint32_t i = 0; i < t->n_choices; i++)
        if (!t->generation->choices[i].done)
            metrics_result(&t->model->metrics, &left);
}

void api_response_end(struct api_response *t)
{
    if (!t)
        return;
    if (t->generation) {
        note_left(t);
        generation_release(t->generation);
    }
    api_response_parse_release(t);
    prompts_free(&t->prompts);
    api_request_release(&t->request);
    mem_free(t);
}

// ---- events

// Goes to the log alone: it would reveal other clients' prompts.
static void log_miss(const struct api_response *t, const struct ingot_miss *miss)
{
    static const char *const reasons[] = { "none", "new", "differs", "evicted", "another salt" };

    if (miss->reason != INGOT_MISS_NONE)
        log_line(LOG_DEBUG, "cache", "%s: %s at token %u: asked %d, kept %d", t->id, reasons[miss->reason],
                 miss->position, (int)miss->token, (int)miss->kept_token);
}

static void note_result(struct api_response *t, uint32_t choice, const struct ingot_result *r)
{
    t->n_generated += t->request.echo_only ? 0 : r->n_generated;
    if (choice % t->request.n_per_prompt == 0)
        t->n_reused += r->n_reused;
    log_miss(t, &r->miss);
    metrics_result(&t->model->metrics, r);
}

static void end_stream(struct api_response *t, struct buf *out)
{
    const struct ingot_result *bad = api_response_error(t);

    if (t->closed || !t->request.stream)
        return;
    t->closed = true;
    if (!bad) {
        if (t->format->close)
            t->format->close(t, out);
        return;
    }
    struct err err = { .code = ERR_CANCELLED };
    if (bad->finish == INGOT_FINISH_ERROR)
        err.code = (enum err_code)bad->error.code;
    snprintf(err.message, sizeof err.message, "%s",
             bad->finish == INGOT_FINISH_ERROR ? bad->error.message
                                               : "the server is stopping; the answer is not complete");
    t->format->fail(t, &err, out);
}

void api_response_keep_alive(struct api_response *t, struct buf *out)
{
    if (t->format->keep_alive)
        t->format->keep_alive(t, out);
    else
        buf_text(out, ": keep-alive\n\n");
}

void api_response_pull(struct api_response *t, struct buf *out, bool *done)
{
    struct ingot_event event;
    uint32_t choice;

    if (t->request.stream && !t->opened) {
        t->opened = true;
        if (t->format->open)
            t->format->open(t, out);
    }
    while (generation_take(t->generation, &choice, &event)) {
        if (event.done)
            note_result(t, choice, event.result);
        api_response_parse_event(t, choice, &event, out);
    }
    *done = generation_is_done(t->generation);
    if (*done)
        end_stream(t, out);
}

bool api_response_is_whole(const struct api_response *t)
{
    bool failed = false;

    for (uint32_t i = 0; i < t->n_choices; i++) {
        const struct api_response_choice *c = &t->choices[i];
        const struct output_parser *p = &c->parser;
        failed |= c->text.failed | c->reasoning.failed;
        failed |= t->parses && (p->text.failed | p->raw.failed | p->name.failed);
        for (uint32_t j = 0; j < c->n_calls; j++)
            failed |= c->calls[j].name.failed | c->calls[j].arguments.failed;
    }
    return !failed;
}

const struct ingot_result *api_response_error(const struct api_response *t)
{
    for (uint32_t i = 0; i < t->n_choices; i++) {
        const struct generation_choice *c = &t->generation->choices[i];
        if (c->done && (c->result.finish == INGOT_FINISH_ERROR || c->result.finish == INGOT_FINISH_CANCELLED))
            return &c->result;
    }
    return NULL;
}

// ---- shared by the dialects

const char *api_response_finish_name(const struct api_response *t, uint32_t choice)
{
    enum ingot_finish finish = t->generation->choices[choice].result.finish;

    if (finish == INGOT_FINISH_LENGTH)
        return "length";
    if (finish != INGOT_FINISH_EOS && finish != INGOT_FINISH_STOP)
        return "error";
    return t->choices[choice].n_calls ? "tool_calls" : "stop";
}

json_t *api_response_text(const struct buf *text)
{
    struct str s = buf_as_str(text);
    json_t *value = json_stringn(s.at, s.n);
    return value ? value : json_string("");
}

json_t *api_response_call_input(const struct api_response_call *call)
{
    struct str text = buf_as_str(&call->arguments);
    json_t *input = json_loadb(text.at, text.n, 0, NULL);

    if (json_is_object(input))
        return input;
    json_decref(input);
    return text.n ? json_pack("{s:o}", "text", api_response_text(&call->arguments)) : json_object();
}

// The true cause and position of a cache miss would reveal other clients' prompts, so the response only says
// that a page was absent; see log_miss.
static json_t *cache_miss(const struct api_response *t, const struct ingot_result *r)
{
    uint32_t page = t->model->info.page_tokens, reusable = (r->n_prompt - 1) / page * page;
    return r->n_reused < reusable ? json_pack("{s:s}", "reason", "absent") : json_null();
}

json_t *api_response_timings(const struct api_response *t)
{
    const struct ingot_result *r = &t->generation->choices[0].result;
    double prefill = r->prefill_ms > 0 ? r->prefill_ms : 1e-3,
           decode = r->decode_ms > 0 ? r->decode_ms : 1e-3;
    uint32_t computed = r->n_prompt - r->n_reused, after_first = r->n_generated > 0 ? r->n_generated - 1 : 0;

    json_t *timings = json_pack("{s:i, s:o, s:i, s:f, s:f, s:f, s:f, s:i, s:f, s:f}", "cache_n",
                                (int)r->n_reused, "cache_miss", cache_miss(t, r), "prompt_n", (int)computed,
                                "prompt_ms", r->prefill_ms, "prompt_per_second", computed / prefill * 1e3,
                                "queue_ms", r->first_token_ms - r->prefill_ms, "first_token_ms",
                                r->first_token_ms, "predicted_n", (int)r->n_generated, "predicted_ms",
                                r->decode_ms, "predicted_per_second", after_first / decode * 1e3);
    if (t->generation->asked)
        json_object_update_new(timings, json_pack("{s:i, s:f}", "fetched_n", (int)t->generation->n_fetched,
                                                  "fetch_ms", t->generation->fetch_ms));
    if (r->n_tiles > 0)
        json_object_set_new(timings, "pictures",
                            json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f}", "tiles", (int)r->n_tiles,
                                      "tiles_cached", (int)r->n_tiles_cached, "read_ms", r->read_ms,
                                      "split_ms", r->split_ms, "encode_ms", r->encode_ms, "patch_ms",
                                      r->patch_ms, "connect_ms", r->connect_ms));
    if (r->n_drafted > 0) // the first two as llama.cpp names them
        json_object_update_new(timings,
                               json_pack("{s:i, s:i, s:f}", "draft_n", (int)r->n_drafted, "draft_n_accepted",
                                         (int)r->n_accepted, "draft_gain", r->draft_gain));
    return timings;
}

void api_response_add_warnings(struct api_response *t, json_t *to)
{
    if (json_array_size(t->request.warnings) > 0)
        json_object_set(to, "warnings", t->request.warnings);
}
