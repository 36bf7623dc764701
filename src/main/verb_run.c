// verb_run.c - ingot run: one answer, or a chat when stdin is a terminal. The chat itself is in chat_loop.c.
#include "base/file.h"
#include "engine/api/verify.h"
#include "engine/embedded.h"
#include "main/chat/chat_loop.h"
#include "main/chat/reply.h"
#include "main/following.h"
#include "main/loading.h"
#include "main/terminal/fail.h"
#include "main/terminal/signals.h"
#include "main/terminal/terminal.h"

enum { MAX_TEXT_BYTES = 16 << 20 };

static int answer_once(struct chat_loop *loop, const char *prompt)
{
    struct reply *r = loop->reply;
    const struct settings *s = r->settings;
    struct ingot_message messages[2];
    size_t n = 0;

    r->pictures = (const struct ingot_picture *const *)loop->pictures.at;
    r->n_pictures = loop->pictures.n;
    if (s->no_chat)
        return reply_print(r, NULL, 0, prompt);
    if (s->system)
        messages[n++] = (struct ingot_message){ .role = "system", .content = s->system };
    messages[n++] = (struct ingot_message){ .role = "user", .content = prompt };
    return reply_print(r, messages, n, NULL);
}

// A grammar, a schema or a system prompt, from an option or from the file that an option names.
static bool read_option(const char *text, const char *file, struct buf *to)
{
    struct err err;

    if (text)
        return buf_text(to, text);
    return !file || file_read(to, file, MAX_TEXT_BYTES, &err) || (fail(err.message), false);
}

// Names the model before it answers, so that the toy is not taken for a model of the user's.
static void tell_model(const struct reply *r)
{
    struct ingot_engine_info info;

    if (r->settings->quiet)
        return;
    ingot_engine_info(r->engine, &info);
    terminal_clean(info.model_name);
    if (!embedded_of(r->settings->model))
        fprintf(stderr, "%s, %s, on %s, context %u", info.model_name, info.format, info.device,
                info.n_context);
    else
        fprintf(stderr, "%s, the toy inside ingot ('ingot run MODEL' takes a real one), context %u",
                info.model_name, info.n_context);
    if (r->settings->temperature > 0)
        fprintf(stderr, ", seed %llu", (unsigned long long)r->settings->seed);
    fputs("\n", stderr);
}

static int answer(struct chat_loop *loop, const struct buf *prompt, bool given)
{
    struct reply *r = loop->reply;
    const struct settings *s = r->settings;
    struct buf grammar = { 0 }, schema = { 0 };
    int status = STATUS_ERROR;

    if (read_option(s->grammar, s->grammar_file, &grammar) &&
        read_option(s->json_schema, s->json_schema_file, &schema)) {
        r->grammar = grammar.n ? grammar.at : NULL;
        r->json_schema = schema.n ? schema.at : NULL;
        tell_model(r);
        status = given && !s->chat ? answer_once(loop, prompt->at)
                                   : chat_loop_run(loop, given ? prompt->at : NULL);
    }
    buf_free(&r->text);
    buf_free(&r->tokens);
    buf_free(&grammar);
    buf_free(&schema);
    return status;
}

// The pictures of --image, for the first answer.
static bool open_pictures(const struct option_list *files, struct chat_pictures *pictures)
{
    for (size_t i = 0; i < files->n; i++)
        if (!chat_pictures_add(pictures, files->at[i]))
            return false;
    return true;
}

static int run_engine(struct chat_loop *loop, struct buf *prompt)
{
    struct settings *s = loop->settings;
    struct ingot_engine_options options = loading_options(s);
    int status;
    bool given;

    options.n_sequences = 1;
    if ((status = following(&options)) >= 0)
        return status;
    if (!loading_prompt(s, NULL, prompt, &given))
        return STATUS_ERROR;
    if (given && prompt->n == 0)
        return fail_usage("the prompt is empty: give a text with -p, a file with -f, or a pipe");
    struct ingot_engine *engine = loading_engine(s, 1);
    if (!engine)
        return signals_interrupts() ? STATUS_INTERRUPTED : following_status(STATUS_ERROR);
    loop->reply->engine = engine;
    loop->reply->n_adapters = model_adapters_all(engine, loop->reply->adapters);
    ingot_time_stages(engine, s->verbose);
    status = answer(loop, prompt, given);
    if (s->trace)
        engine_trace(engine, stderr);
    ingot_engine_close(engine);
    return following_status(status);
}

static int run(struct settings *s, struct arena *arena, struct buf *prompt)
{
    struct reply r = { .settings = s };
    struct chat_loop loop = { .reply = &r, .settings = s, .arena = arena };
    bool ok = open_pictures(&s->images, &loop.pictures);
    int status = ok ? run_engine(&loop, prompt) : STATUS_ERROR;

    chat_pictures_free(&loop.pictures);
    return status;
}

int verb_run(const struct verb_call *call)
{
    struct settings s = *call->settings;
    struct buf prompt = { 0 }, system = { 0 };

    if (s.system && s.system_file)
        return fail_usage(
            "--system and --system-prompt-file both give the system prompt; expected one of them");
    if (!read_option(s.system, s.system_file, &system))
        return STATUS_ERROR;
    s.system = system.n ? system.at : NULL;
    if (s.images.n && !s.model && embedded_find(INGOT_BUILTIN_EYES))
        s.model = INGOT_BUILTIN_EYES;
    if (s.record && s.images.n)
        return fail_usage("--record keeps no pictures; leave out --image or --record");
    if (s.seed == UINT64_MAX)
        s.seed = reply_random_seed();
    int status =
        s.no_chat && s.system
            ? fail_usage(
                  "--system has no place in a text without chat template: leave out --no-chat or --system")
            : run(&s, call->arena, &prompt);
    buf_free(&prompt);
    buf_free(&system);
    return status;
}
