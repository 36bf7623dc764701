// buf_json.c - see buf_json.h.
#include "base/buf_json.h"

static int append(const char *bytes, size_t n, void *b)
{
    return buf_append(b, bytes, n) ? 0 : -1;
}

bool buf_json(struct buf *b, const json_t *value, size_t flags)
{
    return json_dump_callback(value, append, b, flags) == 0;
}
