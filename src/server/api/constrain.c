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
    constrain_without("thinking", "</think>", gbnf);
    buf_text(gbnf, o->reasoning_open ? "root ::= thinking "
                   : o->thinks       ? "root ::= (\"<think>\" thinking "
                                     : "root ::= ");
    if (o->reasoning_open || o->thinks) {
        constrain_text(o->engine, "</think>", gbnf);
        buf_text(gbnf, o->reasoning_open ? "[\\n]{0,3} " : "[\\n]{0,3})? ");
    }
    buf_text(gbnf, !calls ? "answer\n" : format ? "(answer | calls)\n" : "calls\n");
    return !gbnf->failed || err_memory(err, "a grammar");
}
