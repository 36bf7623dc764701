// reply.c - see reply.h.
//
// Reasoning is separated from the answer when it is displayed differently: dimmed on a terminal, or hidden.
// Then its marks are dropped too. The text kept for the next turn is always what the model wrote: the
// template leaves out the reasoning.
#include "main/chat/reply.h"
#include <unistd.h>
#include "base/random.h"
#include "main/replay/record.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/out_json.h"
#include "main/terminal/signals.h"
#include "main/terminal/terminal.h"

uint64_t reply_random_seed(void)
{
    return (uint32_t)random_u64(); // short enough to be typed again
}

static void print_json(json_t *line)
{
    out_json(line, JSON_COMPACT);
    out_text("\n");
}

// ---- thinking

static bool thinking_is(const struct reply *r, const char *how)
{
    return !strcmp(r->settings->think, how);
}

// True if the rendered prompt ends inside the reasoning.
static bool prompt_ends_thinking(const struct reply *r, const struct ingot_request_options *options)
{
    struct ingot_prompt *prompt = ingot_prompt_render(r->engine, options, NULL);
    struct ingot_prompt_info info = { 0 };

    if (prompt)
        ingot_prompt_info(prompt, &info);
    ingot_prompt_free(prompt);
    return info.reasoning == INGOT_REASONING_OPEN;
}

static bool dims(const struct reply *r)
{
    return thinking_is(r, "dim") && *terminal_dim(STDOUT_FILENO);
}

// The marks of this model's thoughts, and whether it writes messages with headers.
static const struct reasoning_marks *marks_of(const struct reply *r, bool *channels)
{
    struct ingot_template_info info;

    ingot_template_info(r->engine, &info);
    struct str text = { info.text, info.n_bytes };
    *channels = tool_call_style_of(text) == CALLS_CHANNELS;
    return reasoning_marks_of(text, NULL);
}

static void parts_begin(struct reply *r, const struct ingot_request_options *options)
{
    bool channels;
    const struct reasoning_marks *marks = marks_of(r, &channels);

    r->channels = options->messages && (channels || marks->special);
    r->parts =
        r->channels || (options->messages && !r->settings->json && (dims(r) || thinking_is(r, "hide")));
    r->thinks = false;
    if (r->parts)
        output_parser_init(&r->parser, &(struct output_parser_options){
                                           .style = channels ? CALLS_CHANNELS : CALLS_NONE,
                                           .marks = marks,
                                           .reasoning_open = prompt_ends_thinking(r, options) });
}

static void set_dim(struct reply *r, bool dim)
{
    if (dim != r->is_dim)
        out_text(dim ? terminal_dim(STDOUT_FILENO) : terminal_plain(STDOUT_FILENO));
    r->is_dim = dim;
}

static void parts_print(struct reply *r)
{
    struct output_piece piece;

    while (output_parser_next(&r->parser, &piece)) {
        bool thinks = piece.kind == PIECE_REASONING;
        if (r->channels && !thinks)
            buf_str(&r->text, piece.text);
        if (r->settings->json || (thinks && thinking_is(r, "hide")))
            continue;
        if (!thinks && r->thinks)
            out_text("\n\n");
        r->thinks = thinks;
        set_dim(r, thinks && dims(r));
        out_model_text(piece.text.at, piece.text.n);
    }
}

static void parts_end(struct reply *r)
{
    if (!r->parts)
        return;
    output_parser_finish(&r->parser);
    parts_print(r);
    set_dim(r, false);
    output_parser_release(&r->parser);
}

// ---- one answer

static void print_text(struct reply *r, const struct ingot_event *event)
{
    if (!r->parts)
        out_model_text(event->text, event->n_bytes);
    else if (output_parser_push(&r->parser, (struct str){ event->text, event->n_bytes }))
        parts_print(r);
}

static bool has_all(const struct reply *r)
{
    return !r->text.failed && !r->tokens.failed;
}

static bool on_event(void *arg, const struct ingot_event *event)
{
    struct reply *r = arg;

    if (event->token != UINT32_MAX && r->settings->record)
        buf_append(&r->tokens, &event->token, sizeof event->token);
    if (event->n_bytes && !r->channels)
        buf_append(&r->text, event->text, event->n_bytes);
    if (r->settings->json && event->token != UINT32_MAX)
        print_json(
            json_pack("{s:s%, s:I}", "text", event->text, event->n_bytes, "token", (json_int_t)event->token));
    else if (r->settings->json && event->n_bytes)
        print_json(json_pack("{s:s%}", "text", event->text, event->n_bytes));
    if (!r->settings->json || r->channels)
        print_text(r, event);
    out_flush();
    return signals_interrupts() == 0 && out_state() == OUT_OPEN && has_all(r);
}

static void set_pictures(json_t *line, const struct reply *r)
{
    json_object_set_new(line, "n_tiles", json_integer(r->result.n_tiles));
    json_object_set_new(line, "n_tiles_cached", json_integer(r->result.n_tiles_cached));
    json_object_set_new(line, "image_read_ms", json_real(r->result.read_ms));
    json_object_set_new(line, "image_split_ms", json_real(r->result.split_ms));
    json_object_set_new(line, "encode_ms", json_real(r->result.encode_ms));
    json_object_set_new(line, "patch_ms", json_real(r->result.patch_ms));
    json_object_set_new(line, "connect_ms", json_real(r->result.connect_ms));
}

static void set_drafts(json_t *line, const struct ingot_result *result)
{
    json_object_set_new(line, "n_drafted", json_integer(result->n_drafted));
    json_object_set_new(line, "n_accepted", json_integer(result->n_accepted));
    json_object_set_new(line, "draft_gain", json_real(result->draft_gain));
}

static void print_json_end(const struct reply *r)
{
    const struct ingot_result *result = &r->result;
    json_t *line =
        json_pack("{s:b, s:s%, s:s, s:i, s:i, s:i}", "done", 1, "answer", r->text.at ? r->text.at : "",
                  r->text.n, "finish", record_finish_name(result->finish), "n_prompt", (int)result->n_prompt,
                  "n_reused", (int)result->n_reused, "n_generated", (int)result->n_generated);

    if (!line)
        return;
    json_object_set_new(line, "seed", json_integer((json_int_t)r->settings->seed));
    json_object_set_new(line, "first_token_ms", json_real(result->first_token_ms));
    json_object_set_new(line, "prefill_ms", json_real(result->prefill_ms));
    json_object_set_new(line, "decode_ms", json_real(result->decode_ms));
    if (result->n_tiles)
        set_pictures(line, r);
    if (result->n_drafted)
        set_drafts(line, result);
    if (result->miss.reason == INGOT_MISS_DIFFERS)
        json_object_set_new(line, "differs_at", json_integer(result->miss.position));
    if (result->finish == INGOT_FINISH_ERROR)
        json_object_set_new(line, "error", json_string(result->error.message));
    print_json(line);
}

// Of speculative decoding; the gain is unknown where no step without drafts was timed.
static void print_drafts(const struct ingot_result *r)
{
    fprintf(stderr, "%sdrafts: %u of %u token%s accepted", terminal_dim(STDERR_FILENO), r->n_accepted,
            r->n_drafted, str_plural(r->n_drafted));
    if (r->draft_gain > 0)
        fprintf(stderr, ", their steps %.2f times as fast", r->draft_gain);
    fprintf(stderr, "%s\n", terminal_plain(STDERR_FILENO));
}

static double rate(double n, double ms)
{
    return ms > 0 ? n * 1000.0 / ms : 0;
}

static void print_pictures(const struct reply *r)
{
    const struct ingot_result *t = &r->result;

    fprintf(stderr,
            "%spictures %zu, %u tile%s (%u kept); decoding files %.1f ms, resizing %.1f ms, patch embedding "
            "%.1f ms, "
            "encoder %.1f ms, connector %.1f ms, prefill %.1f ms%s\n",
            terminal_dim(STDERR_FILENO), r->n_pictures, t->n_tiles, str_plural(t->n_tiles), t->n_tiles_cached,
            t->read_ms, t->split_ms, t->patch_ms, t->encode_ms - t->patch_ms - t->connect_ms, t->connect_ms,
            t->prefill_ms - t->encode_ms, terminal_plain(STDERR_FILENO));
}

// The tokens after the first are what decode_ms measures.
static void print_figures(const struct ingot_result *result)
{
    uint32_t n_read = result->n_prompt - result->n_reused;

    fprintf(stderr, "%sprompt %u token%s", terminal_dim(STDERR_FILENO), result->n_prompt,
            str_plural(result->n_prompt));
    if (result->finish == INGOT_FINISH_CANCELLED && result->n_generated == 0) {
        fprintf(stderr, "; stopped before the first token%s\n", terminal_plain(STDERR_FILENO));
        return;
    }
    if (result->n_reused)
        fprintf(stderr, " (%u reused)", result->n_reused);
    fprintf(stderr, ", %.1f tok/s; first token after %.1f ms; answer %u token%s",
            rate(n_read, result->prefill_ms), result->first_token_ms, result->n_generated,
            str_plural(result->n_generated));
    if (result->n_generated > 1)
        fprintf(stderr, ", %.1f tok/s", rate(result->n_generated - 1, result->decode_ms));
    fprintf(stderr, "%s%s\n",
            result->finish == INGOT_FINISH_LENGTH      ? "; cut at the limit"
            : result->finish == INGOT_FINISH_CANCELLED ? "; stopped"
                                                       : "",
            terminal_plain(STDERR_FILENO));
}

static struct ingot_request_options request_options(const struct reply *r)
{
    const struct settings *s = r->settings;
    struct ingot_request_options options = ingot_request_defaults();

    options.session = r->session;
    options.sampling = (struct ingot_sampling){
        .temperature = s->temperature,
        .top_k = s->top_k,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .repeat_penalty = s->repeat_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .penalty_window = s->repeat_last_n,
        .seed = s->seed,
    };
    options.max_tokens = s->n_predict == UINT32_MAX ? 0 : s->n_predict;
    options.stop = s->stop.at;
    options.n_stop = s->stop.n;
    options.ignore_eos = s->ignore_eos;
    options.grammar = r->grammar;
    options.json_schema = r->json_schema;
    options.parse_special = s->special;
    options.pictures = r->pictures;
    options.n_pictures = r->n_pictures;
    options.no_split = s->no_split;
    options.adapters = r->adapters;
    options.n_adapters = r->n_adapters;
    options.on_step = signals_go_on;
    return options;
}

static bool write_record(const struct reply *r, const struct ingot_request_options *options, struct err *err)
{
    const struct record_answer what = { .engine = r->engine,
                                        .options = options,
                                        .answer = (const uint32_t *)(const void *)r->tokens.at,
                                        .n_answer = r->tokens.n / sizeof(uint32_t),
                                        .finish = r->result.finish };

    if (options->n_pictures)
        return err_set(err, ERR_UNSUPPORTED, "--record keeps no pictures; ask without them");
    return record_write(r->settings, &what, err);
}

int reply_print(struct reply *r, const struct ingot_message *messages, size_t n_messages, const char *text)
{
    struct ingot_request_options options = request_options(r);
    struct ingot_error error = { 0 };

    options.messages = messages;
    options.n_messages = n_messages;
    options.text = n_messages ? NULL : text;
    r->text.n = r->tokens.n = 0;
    r->text.failed = r->tokens.failed = false;
    r->result = (struct ingot_result){ 0 };
    signals_clear_interrupts();
    parts_begin(r, &options);
    options.keep_special = r->channels; // the marks of headers are control tokens
    bool ok = ingot_generate(r->engine, &options, on_event, r, &r->result, &error);
    ok = ok && (has_all(r) || err_memory((struct err *)&error, "the answer"));
    if (!ok && r->result.finish == INGOT_FINISH_NONE)
        r->result = (struct ingot_result){ .finish = INGOT_FINISH_ERROR, .error = error };
    parts_end(r);
    if (r->settings->json)
        print_json_end(r);
    else if (r->text.n && r->text.at[r->text.n - 1] != '\n')
        out_text("\n");
    out_flush();
    if (out_state() != OUT_OPEN)
        return out_finish();
    if (!ok)
        return fail(error.message);
    if (r->settings->record && !write_record(r, &options, (struct err *)&error))
        return fail(error.message);
    if (r->settings->verbose && r->n_pictures)
        print_pictures(r);
    if (r->settings->verbose && r->result.n_drafted)
        print_drafts(&r->result);
    if (!r->settings->quiet)
        print_figures(&r->result);
    return out_finish();
}
