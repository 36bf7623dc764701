// verb_embed.c - ingot embed: a vector for each text, or with --query a score for each.
//
// Some texts are under way at the same time, so that short ones share a step; lines come out in the order of
// the texts all the same.
#include "base/mem.h"
#include "main/loading.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/out_json.h"
#include "main/terminal/signals.h"

enum { AT_ONCE = 4 };

struct embed_work {
    const struct settings *settings;
    struct ingot_engine *engine;
    struct buf input; // of -f or stdin
    struct str *texts;
    size_t n, n_submitted, n_done;
    struct ingot_request *running[AT_ONCE]; // of text i at i % AT_ONCE
};

// ---- the texts

static bool embed_add(struct embed_work *w, struct str text)
{
    struct str *texts = mem_realloc(w->texts, (w->n + 1) * sizeof *texts);

    if (!texts)
        return false;
    w->texts = texts;
    w->texts[w->n++] = text;
    return true;
}

// Lines that are not empty; a line may end with a carriage return.
static bool embed_split(struct embed_work *w, struct str text)
{
    bool ok = true;

    while (ok && text.n) {
        size_t end = str_find(text, STR("\n")), n = end == SIZE_MAX ? text.n : end;
        struct str line = str_from_to(text, 0, n);
        text = str_from_to(text, end == SIZE_MAX ? n : n + 1, text.n);
        line.n -= line.n && line.at[line.n - 1] == '\r';
        ok = line.n == 0 || embed_add(w, line);
    }
    return ok;
}

// The exit status; with a line on stderr where it is an error's.
static int embed_collect(struct embed_work *w, const struct option_operands *operands)
{
    bool given = false, ok = true;

    for (size_t i = 0; ok && i < operands->n; i++)
        ok = embed_add(w, str_from(operands->at[i]));
    if (ok && (operands->n == 0 || w->settings->file)) {
        if (!loading_prompt(w->settings, NULL, &w->input, &given))
            return STATUS_ERROR;
        struct str text = buf_as_str(&w->input);
        ok = w->settings->whole ? text.n == 0 || embed_add(w, text) : embed_split(w, text);
    }
    if (!ok)
        return fail("out of memory for the texts");
    for (size_t i = 0; i < operands->n; i++)
        if (!*operands->at[i])
            return fail_usage("embed: text %zu is empty", i + 1);
    return w->n ? STATUS_OK : fail_usage("embed: give texts, or -f FILE, or a pipe with a text in each line");
}

// ---- requests

static enum ingot_embed pooling_of(const struct settings *s)
{
    return s->query                      ? INGOT_EMBED_RANK
           : !strcmp(s->pooling, "mean") ? INGOT_EMBED_MEAN
           : !strcmp(s->pooling, "cls")  ? INGOT_EMBED_CLS
           : !strcmp(s->pooling, "last") ? INGOT_EMBED_LAST
                                         : INGOT_EMBED_MODEL;
}

// The request's tokens are those of the pair; free them.
static bool embed_pair(struct embed_work *w, struct str document, struct ingot_request_options *r,
                       struct ingot_error *error)
{
    const char *query = w->settings->query, *instruction = w->settings->prefix;
    const struct ingot_pair pair = { query,         document.at, instruction,
                                     strlen(query), document.n,  instruction ? strlen(instruction) : 0 };
    int64_t n = ingot_rank_tokens(w->engine, &pair, NULL, 0, error);
    uint32_t *tokens = n > 0 ? mem_alloc_array((size_t)n, sizeof *tokens) : NULL;

    if (n > 0 && !tokens)
        return err_memory((struct err *)error, "a pair of texts");
    r->tokens = tokens;
    r->n_tokens = (size_t)n;
    return n > 0 && ingot_rank_tokens(w->engine, &pair, tokens, (size_t)n, error) == n;
}

static bool embed_submit(struct embed_work *w, struct ingot_error *error)
{
    const struct settings *s = w->settings;
    struct ingot_request_options r = ingot_request_defaults();
    struct str text = w->texts[w->n_submitted];
    struct buf prompt = { 0 };
    bool ok = true;

    r.embed = pooling_of(s);
    r.n_dimensions = s->dimensions;
    r.no_normalize = !strcmp(s->normalize, "none");
    if (s->query) {
        ok = embed_pair(w, text, &r, error);
    } else {
        buf_text(&prompt, s->prefix ? s->prefix : "");
        buf_str(&prompt, text);
        ok = !prompt.failed || err_memory((struct err *)error, "a text");
        r.text = buf_as_str(&prompt).at;
    }
    struct ingot_request *request = ok ? ingot_submit(w->engine, &r, error) : NULL;
    mem_free((void *)(uintptr_t)r.tokens);
    buf_free(&prompt);
    w->running[w->n_submitted++ % AT_ONCE] = request;
    return request != NULL;
}

// ---- results

static void print_json(size_t index, const struct ingot_event *e, bool is_score)
{
    json_t *numbers = json_array();

    for (size_t i = 0; i < e->n_numbers && !is_score; i++)
        json_array_append_new(numbers, json_real((double)e->embedding[i]));
    json_t *line = json_pack("{s:I, s:i}", "index", (json_int_t)index, "n_tokens", (int)e->result->n_prompt);
    if (is_score)
        json_object_set_new(line, "score", json_real((double)e->embedding[0]));
    else
        json_object_set(line, "embedding", numbers);
    json_decref(numbers);
    out_json(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
    out_text("\n");
}

static void print_plain(const struct ingot_event *e)
{
    for (size_t i = 0; i < e->n_numbers; i++)
        out_printf("%s%.9g", i ? " " : "", (double)e->embedding[i]);
    out_text("\n");
}

// Waits for the oldest request and prints its line.
static bool embed_finish(struct embed_work *w, struct ingot_error *error)
{
    struct ingot_request *request = w->running[w->n_done % AT_ONCE];
    struct ingot_event event = { 0 };

    while (!event.done) {
        if (signals_interrupts() > 0)
            return err_set((struct err *)error, ERR_CANCELLED, "stopped after %zu of %zu texts", w->n_done,
                           w->n);
        if (!ingot_wait(w->engine, request, 200) || !ingot_poll(request, &event))
            continue;
    }
    if (event.result->finish == INGOT_FINISH_ERROR)
        *error = event.result->error;
    else if (w->settings->json)
        print_json(w->n_done, &event, w->settings->query);
    else
        print_plain(&event);
    bool ok = event.result->finish != INGOT_FINISH_ERROR;
    ingot_request_free(request);
    w->n_done++;
    return ok;
}

static bool embed_run(struct embed_work *w, struct ingot_error *error)
{
    bool ok = true;

    while (ok && w->n_done < w->n && out_state() == OUT_OPEN) {
        bool starts = w->n_submitted < w->n && w->n_submitted - w->n_done < AT_ONCE;
        size_t i = starts ? w->n_submitted : w->n_done;
        ok = starts ? embed_submit(w, error) : embed_finish(w, error);
        if (!ok && w->n > 1 && error->code != INGOT_CANCELLED)
            err_prefix((struct err *)error, "text %zu of %zu", i + 1, w->n);
    }
    for (; w->n_done < w->n_submitted; w->n_done++)
        ingot_request_free(w->running[w->n_done % AT_ONCE]);
    return ok;
}

static void embed_free(struct embed_work *w)
{
    ingot_engine_close(w->engine);
    mem_free(w->texts);
    buf_free(&w->input);
}

int verb_embed(const struct verb_call *call)
{
    struct embed_work w = { .settings = call->settings };
    struct ingot_error error = { 0 };
    int status = embed_collect(&w, call->operands);

    if (status == STATUS_OK) {
        status = STATUS_ERROR;
        w.engine = loading_engine(call->settings, w.n < AT_ONCE ? (uint32_t)w.n : AT_ONCE);
        if (w.engine)
            status = embed_run(&w, &error)           ? out_finish()
                     : error.code == INGOT_CANCELLED ? STATUS_INTERRUPTED
                                                     : fail(error.message);
    }
    embed_free(&w);
    return status;
}
