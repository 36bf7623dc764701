// prefill.c - see prefill.h.
//
// The exchange sleeps while the engine reads the prompt. Then a worker copies some pages between two steps,
// and while the I/O thread sends them the next ones, which wait until the client has room. A client that
// takes nothing is cut off as any other.
#include "server/prefill.h"
#include "base/mem.h"
#include "server/answer.h"
#include "server/api/api_request.h"
#include "server/generation/generation.h"
#include "server/generation/page_question.h"
#include "server/state.h"

enum { MOST_GIVING = 16 }; // at once: each holds some MiB

struct prefill_answer {
    struct page_question question;
    struct generation *generation;
    struct ingot_pages *pages; // NULL: the prompt is being read
    const void *bytes;         // [n_bytes] of `pages`, to be sent next
    size_t n_bytes;
    size_t n_known; // tokens whose pages need not be sent
    bool is_over;
};

// ---- by a worker

static bool submit(struct http_exchange *x, struct prefill_answer *p, struct err *err)
{
    struct ingot_request_options r = ingot_request_defaults();
    struct generation_options options = {
        .requests = &r, .n = 1, .at_end_only = true, .wake = exchange_wake, .arg = x
    };

    r.tokens = p->question.tokens;
    r.n_tokens = p->question.n_tokens;
    r.max_tokens = 1;
    r.ignore_eos = true;
    r.cache_salt = p->question.cache_salt;
    p->generation = generation_submit(&x->server->model.thread, &options, err);
    return p->generation != NULL;
}

static bool begin(struct http_exchange *x, struct err *err)
{
    struct prefill_answer *p = mem_alloc(sizeof *p);

    if (!p)
        return err_memory(err, "an answer with pages");
    x->pages = p;
    atomic_fetch_add(&x->server->n_giving, 1);
    json_t *body = api_request_parse(buf_as_str(&x->body), err);
    bool ok = body && page_question_read(&p->question, body, err) &&
              page_question_fits(&p->question, &x->server->pages, err) && submit(x, p, err);
    json_decref(body);
    return ok;
}

bool prefill_answer(struct http_exchange *x)
{
    const struct server *s = x->server;
    struct err err = { 0 };

    if (x->pages) { // again: there is room for more
        x->pages->bytes = ingot_pages_give(x->pages->pages, &x->pages->n_bytes);
        x->pages->is_over = x->pages->bytes == NULL;
        return true;
    }
    if (!s->options->gives_pages)
        return exchange_reply_error(x, 404, "this server gives no pages; start it with --role prefill");
    if (server_phase(s) != PHASE_READY)
        return exchange_reply_error(x, 503, "the server is stopping");
    if (atomic_load(&s->n_giving) >= MOST_GIVING)
        return exchange_reply_error(x, 429, "%d decode servers' prompts are answered; try again",
                                    MOST_GIVING);
    return begin(x, &err) || answer_error(x, &err);
}

// ---- by the I/O thread

static bool open_pages(struct http_exchange *x, struct err *err)
{
    struct prefill_answer *p = x->pages;
    struct ingot_event event = { 0 };
    uint32_t choice;

    while (generation_take(p->generation, &choice, &event))
        ;
    const struct ingot_result *r = &p->generation->choices[0].result;
    metrics_result(&x->server->model.metrics, r);
    if (r->finish == INGOT_FINISH_CANCELLED)
        return err_set(err, ERR_CANCELLED, "the server is stopping");
    if (r->finish == INGOT_FINISH_ERROR)
        return err_set(err, (enum err_code)r->error.code, "%s", r->error.message);
    p->pages = ingot_pages_offer(x->server->model.engine, p->question.tokens, p->question.n_tokens,
                                 p->question.n_known, p->question.cache_salt, (struct ingot_error *)err);
    p->n_known = p->pages ? ingot_pages_n_tokens(p->pages) : 0;
    return p->pages != NULL;
}

// Sends what a worker has brought, and lets one bring more meanwhile. The end of the stream is the last
// chunk.
static enum exchange_step send_bytes(struct http_exchange *x, bool last)
{
    struct prefill_answer *p = x->pages;

    x->text.n = 0;
    if (p->n_bytes > 0 && !buf_append(&x->text, p->bytes, p->n_bytes))
        return EXCHANGE_BROKEN;
    p->n_bytes = 0;
    if (!exchange_add_chunk(x, last))
        return EXCHANGE_BROKEN;
    if (last)
        return EXCHANGE_DONE;
    return workers_add(x->http, x) ? EXCHANGE_SLEEPS : EXCHANGE_MORE;
}

enum exchange_step prefill_go_on(struct http_exchange *x)
{
    struct prefill_answer *p = x->pages;
    struct err err = { 0 };

    if (x->busy) // a worker has it, and posts it
        return EXCHANGE_SLEEPS;
    if (!p->pages && answer_sleeps(x, p->generation))
        return EXCHANGE_SLEEPS;
    if (!p->pages && !open_pages(x, &err))
        return answer_error(x, &err) ? EXCHANGE_DONE : EXCHANGE_BROKEN;
    if (!x->streams && !exchange_reply_stream(x, "application/octet-stream"))
        return EXCHANGE_BROKEN;
    if (p->n_bytes > 0 || p->is_over)
        return send_bytes(x, p->is_over);
    if (workers_add(x->http, x))
        return EXCHANGE_SLEEPS;
    return send_bytes(x, true);
}

void prefill_end(struct http_exchange *x)
{
    struct prefill_answer *p = x->pages;

    if (!p)
        return;
    if (p->pages)
        metrics_given(&x->server->model.metrics, ingot_pages_n_tokens(p->pages) - p->n_known);
    if (p->generation)
        generation_release(p->generation);
    ingot_pages_close(p->pages);
    page_question_free(&p->question);
    mem_free(p);
    atomic_fetch_sub(&x->server->n_giving, 1);
}
