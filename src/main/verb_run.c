// verb_run.c - ingot run: one answer, or a chat when a terminal is on the other side. The chat itself is in conversation.c.
#include "base/file.h"
#include "engine/verify.h"
#include "main/conversation.h"
#include "main/loading.h"
#include "main/reply.h"
#include "main/terminal.h"

enum { MAX_RULES_BYTES = 16 << 20 };

static int answer_once(struct reply *r, const char *prompt)
{
    const struct settings *s = r->settings;
    struct ingot_message messages[2];
    size_t n = 0;

    if (s->no_chat)
        return reply_print(r, NULL, 0, prompt);
    if (s->system)
        messages[n++] = (struct ingot_message){ "system", s->system };
    messages[n++] = (struct ingot_message){ "user", prompt };
    return reply_print(r, messages, n, NULL);
}

// The grammar or schema, from an option or the file that one names.
static bool read_rules(const char *text, const char *file, struct buf *rules)
{
    struct err err;

    if (text)
        return buf_text(rules, text);
    return !file || file_read(rules, file, MAX_RULES_BYTES, &err) || (fail(err.message), false);
}

static int run(const struct call *call, struct buf *prompt)
{
    const struct settings *s = call->settings;
    bool given;

    if (!prompt_from_settings(s, call->operands, prompt, &given))
        return STATUS_ERROR;
    if (given && prompt->n == 0)
        return fail_usage("the prompt is empty: give a text with -p, a file with -f, or a pipe");
    struct ingot_engine *engine = engine_from_settings(s, 1);
    if (!engine)
        return interrupts() ? STATUS_INTERRUPTED : STATUS_ERROR;
    struct buf grammar = { 0 }, schema = { 0 };
    bool ok = read_rules(s->grammar, s->grammar_file, &grammar) && read_rules(s->json_schema, s->json_schema_file, &schema);
    struct reply r = {
        .engine = engine, .settings = s, .grammar = grammar.n ? grammar.at : NULL, .json_schema = schema.n ? schema.at : NULL
    };
    int status = !ok ? STATUS_ERROR : given ? answer_once(&r, prompt->at) : talk(&r);
    if (s->trace)
        engine_trace(engine_of(engine), stderr);
    buf_free(&r.text);
    buf_free(&grammar);
    buf_free(&schema);
    ingot_engine_close(engine);
    return status;
}

int verb_run(const struct call *call)
{
    const struct settings *s = call->settings;
    struct buf prompt = { 0 };

    if (s->no_chat && s->system)
        return fail_usage("--system has no place in a text without chat template: leave out --no-chat or --system");
    int status = run(call, &prompt);
    buf_free(&prompt);
    return status;
}
