// out_json.c - see out_json.h. Nine digits restore every float; doubles are measurements, for which nine
// digits are enough.
#include "main/terminal/out_json.h"
#include "main/terminal/out.h"

static int to_stdout(const char *bytes, size_t n, void *arg)
{
    (void)arg;
    out_write(bytes, n);
    return 0;
}

void out_json(json_t *value, size_t flags)
{
    if (value)
        json_dump_callback(value, to_stdout, NULL, flags | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    json_decref(value);
}
