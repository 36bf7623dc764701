// json_memory.c - see json_memory.h.
#include "text/json_memory.h"
#include <jansson.h>
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
