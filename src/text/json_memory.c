// json_memory.c - see json_memory.h.
#include "text/json_memory.h"
#include <stdio.h>
#include "base/mem.h"

static _Thread_local bool failed;

static void *give(size_t bytes)
{
    void *memory = mem_alloc(bytes ? bytes : 1);

    failed |= !memory;
    return memory;
}

void json_memory_watch(void)
{
    json_set_alloc_funcs(give, mem_free);
}

bool json_memory_failed(void)
{
    bool was = failed;

    failed = false;
    return was;
}

json_t *json_memory_read(struct str json, size_t flags, json_error_t *where)
{
    failed = false; // what failed before is another's
    json_t *value = json_loadb(json.at ? json.at : "", json.n, flags, where);

    if (!failed)
        return value;
    json_decref(value);
    snprintf(where->text, sizeof where->text, "out of memory");
    return NULL;
}
