// sizes.c - see sizes.h.
#include "engine/api/sizes.h"
#include <string.h>

struct sizes_rule {
    const char *what, *start; // the member or struct, and the function that sets its size
    size_t known;
};

static bool size_check(const struct sizes_rule *rule, size_t size, struct err *err)
{
    if (size == 0)
        return err_set(err, ERR_INPUT, "the size of %s is 0; start from %s()", rule->what, rule->start);
    if (size > rule->known)
        return err_set(err, ERR_INPUT,
                       "the program was built with an ingot.h where %s has %zu bytes, and this library, %s, "
                       "knows %zu; use a newer "
                       "library",
                       rule->what, size, INGOT_VERSION, rule->known);
    return true;
}

bool sizes_take_engine(struct ingot_engine_options *to, const struct ingot_engine_options *from,
                       struct err *err)
{
    static const struct sizes_rule rule = { "ingot_engine_options", "ingot_engine_defaults", sizeof *to };

    if (!size_check(&rule, from->size, err))
        return false;
    *to = ingot_engine_defaults();
    memcpy(to, from, from->size);
    return true;
}

bool sizes_take_request(struct ingot_request_options *to, const struct ingot_request_options *from,
                        struct err *err)
{
    static const char start[] = "ingot_request_defaults";
    static const struct sizes_rule own = { "ingot_request_options", start, sizeof *to };
    const struct sizes_rule others[] = { { "ingot_message", start, sizeof(struct ingot_message) },
                                         { "ingot_event", start, sizeof(struct ingot_event) },
                                         { "ingot_result", start, sizeof(struct ingot_result) } };

    if (!size_check(&own, from->size, err))
        return false;
    *to = ingot_request_defaults();
    memcpy(to, from, from->size);
    return size_check(&others[0], to->message_size, err) && size_check(&others[1], to->event_size, err) &&
           size_check(&others[2], to->result_size, err);
}

void sizes_give(void *to, size_t size, const void *from, size_t known)
{
    memset(to, 0, size);
    memcpy(to, from, size < known ? size : known);
}
