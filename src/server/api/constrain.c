// constrain.c - see constrain.h.
//
// The root rule is an answer, tool calls, or both as alternatives; if the model reasons, reasoning comes
// before it.
#include "server/api/constrain.h"
#include "text/grammar/schema.h"

static bool calls_are_forced(const struct api_request *request)
{
    return request->tools && request->choice >= CHOICE_REQUIRED;
}

// Before the answer the reasoning, between its marks; where the prompt opened it, it must end.
static void write_root(const struct constrain_options *o, struct buf *gbnf)
{
    bool channels = o->style == CALLS_CHANNELS;
    const struct reasoning_marks *marks = o->marks ? o->marks : reasoning_marks_of(STR(""), NULL);
    const char *open = channels ? "<|channel|>analysis<|message|>" : marks->open;
    const char *close = channels ? "<|end|>" : marks->close;

    constrain_without("thinking", close, gbnf);
    buf_text(gbnf, "root ::= ");
    if (!o->reasoning_open && !o->thinks)
        return;
    if (!o->reasoning_open) {
        buf_text(gbnf, "(");
        constrain_text(o->engine, open, gbnf);
    }
    buf_text(gbnf, "thinking ");
    constrain_text(o->engine, close, gbnf);
    if (channels)
        constrain_text(o->engine, "<|start|>assistant", gbnf);
    else
        buf_text(gbnf, "[\\n]{0,3}");
    buf_text(gbnf, o->reasoning_open ? " " : ")? ");
}

// Behind a prompt that ended within the answer's message no header comes.
static void write_answer_rule(const struct constrain_options *o, struct buf *gbnf)
{
    buf_text(gbnf, "said ::= ");
    if (o->style == CALLS_CHANNELS && (o->thinks || o->reasoning_open))
        constrain_text(o->engine, "<|channel|>final<|message|>", gbnf);
    buf_text(gbnf, " answer\n");
}

bool constrain_answer(const struct api_request *request, const struct constrain_options *o, struct buf *gbnf,
                      struct err *err)
{
    bool format = request->schema || request->json_object, forced = calls_are_forced(request);
    bool calls = forced || (format && request->tools && request->choice == CHOICE_AUTO);

    if (request->grammar)
        return buf_text(gbnf, request->grammar) || err_memory(err, "a grammar");
    if (!format && !forced)
        return true;
    schema_write_common(gbnf);
    if (calls && !constrain_calls(request, o, gbnf, err))
        return false;
    if (request->schema && !schema_write(request->schema, "answer", gbnf, err))
        return false;
    if (request->json_object)
        buf_text(gbnf, "answer ::= object\n");
    if (format)
        write_answer_rule(o, gbnf);
    write_root(o, gbnf);
    buf_text(gbnf, !calls ? "said\n" : format ? "(said | calls)\n" : "calls\n");
    return !gbnf->failed || err_memory(err, "a grammar");
}
