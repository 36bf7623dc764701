// api_response_parse.c - turns an answer's events into pieces: reasoning, content, tool calls. A stream
// writes them at once; a whole answer keeps them.
#include "base/mem.h"
#include "base/random.h"
#include "server/api/api_response.h"
#include "server/api/logprobs.h"
#include "server/api/served_model.h"

static void note_logprobs(struct api_response *t, uint32_t choice, struct logprobs_row row)
{
    struct api_response_choice *c = &t->choices[choice];

    row.with_id = t->request.dialect & DIALECTS_LLAMACPP;
    row.offset = t->request.dialect == DIALECT_TEXT ? &c->text_offset : NULL;
    if (t->request.logprobs)
        json_array_append_new(c->logprobs, logprobs_entry(t->model->engine, &row));
    if (t->request.n_per_prompt > t->request.n && !row.of_prompt) {
        c->score += row.at[0].logprob;
        c->n_scored++;
    }
}

bool api_response_parse_begin(struct api_response *t)
{
    uint32_t most = t->request.one_call ? 1 : API_RESPONSE_MAX_CALLS;
    struct output_parser_options options = { t->style, t->reasoning_open, most,
                                             t->request.choice == CHOICE_NONE ? NULL : t->request.tools,
                                             t->marks };
    bool ok = true;

    t->parses = !api_request_is_plain(&t->request);
    for (uint32_t i = 0; i < t->n_choices; i++) {
        t->choices[i].logprobs = json_array();
        t->choices[i].block = -1;
        ok = ok && t->choices[i].logprobs;
        output_parser_init(&t->choices[i].parser, &options);
        if (ok && t->request.echo && t->request.logprobs)
            note_logprobs(t, i,
                          (struct logprobs_row){ .token = t->prompts.at[i / t->request.n_per_prompt].ids[0],
                                                 .of_prompt = true });
    }
    return ok;
}

void api_response_parse_release(struct api_response *t)
{
    for (uint32_t i = 0; t->choices && i < t->n_choices; i++) {
        struct api_response_choice *c = &t->choices[i];
        for (uint32_t k = 0; k < c->n_calls; k++) {
            buf_free(&c->calls[k].name);
            buf_free(&c->calls[k].arguments);
        }
        mem_free(c->calls);
        token_ids_free(&c->tokens);
        json_decref(c->logprobs);
        output_parser_release(&c->parser);
        buf_free(&c->text);
        buf_free(&c->reasoning);
        buf_free(&c->frame);
    }
    mem_free(t->choices);
    json_decref(t->items);
    t->choices = NULL;
    t->items = NULL;
}

static void add_call(struct api_response *t, struct api_response_choice *c, struct str name)
{
    if (!c->calls)
        c->calls = mem_alloc_array(API_RESPONSE_MAX_CALLS, sizeof *c->calls);
    if (!c->calls || c->n_calls == API_RESPONSE_MAX_CALLS)
        return;
    struct api_response_call *call = &c->calls[c->n_calls++];
    const char *prefix = t->request.dialect == DIALECT_MESSAGES ? "toolu_" : "call_";
    snprintf(call->id, sizeof call->id, "%s%016llx%08x", prefix, (unsigned long long)random_u64(),
             c->n_calls);
    buf_str(&call->name, name);
}

// Keeps what a whole answer needs, and the last events of the Responses API.
static void keep(struct api_response *t, struct api_response_choice *c, const struct output_piece *piece)
{
    bool kept = !t->request.stream || t->request.dialect & (DIALECT_RESPONSES | DIALECT_OLLAMA_CHAT);

    if (piece->kind == PIECE_CALL)
        add_call(t, c, piece->text);
    if (!kept)
        return;
    if (piece->kind == PIECE_CONTENT)
        buf_str(&c->text, piece->text);
    if (piece->kind == PIECE_REASONING)
        buf_str(&c->reasoning, piece->text);
    if (piece->kind == PIECE_ARGUMENTS && c->n_calls > 0)
        buf_str(&c->calls[c->n_calls - 1].arguments, piece->text);
}

static void take_piece(struct api_response *t, uint32_t choice, const struct output_piece *piece,
                       struct buf *out)
{
    keep(t, &t->choices[choice], piece);
    if (t->request.stream && !t->failed)
        t->format->piece(t, choice, piece, out);
}

static void take_text(struct api_response *t, uint32_t choice, const struct ingot_event *event,
                      struct buf *out)
{
    struct api_response_choice *c = &t->choices[choice];
    struct str text = { event->text, event->n_bytes };
    struct output_piece piece = { PIECE_CONTENT, 0, text };

    if (!t->parses) {
        if (text.n > 0 || json_array_size(c->logprobs) > 0)
            take_piece(t, choice, &piece, out);
        return;
    }
    output_parser_push(&c->parser, text);
    if (event->done)
        output_parser_finish(&c->parser);
    while (output_parser_next(&c->parser, &piece))
        take_piece(t, choice, &piece, out);
}

static struct logprobs_row row_of(const struct ingot_event *event, bool of_prompt)
{
    return (struct logprobs_row){ event->logprobs, event->n_logprobs, event->logprobs[0].token,
                                  .of_prompt = of_prompt };
}

void api_response_parse_event(struct api_response *t, uint32_t choice, const struct ingot_event *event,
                              struct buf *out)
{
    struct api_response_choice *c = &t->choices[choice];
    struct ingot_event echo_end = {
        .token = UINT32_MAX, .text = "", .done = event->done, .result = event->result
    };

    if (event->n_logprobs && event->token == UINT32_MAX) {
        note_logprobs(t, choice, row_of(event, true));
        return;
    }
    if (t->request.echo_only)
        event = &echo_end;
    if (t->request.return_tokens && event->token != UINT32_MAX)
        token_ids_push(&c->tokens, event->token);
    if (event->n_logprobs && event->token != UINT32_MAX)
        note_logprobs(t, choice, row_of(event, false));
    if (event->embedding)
        buf_append(&c->text, event->embedding, event->n_numbers * sizeof *event->embedding);
    else
        take_text(t, choice, event, out);
    if (event->done && t->request.stream && !t->failed && event->result->finish < INGOT_FINISH_CANCELLED)
        t->format->finish(t, choice, out);
}
