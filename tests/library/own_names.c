// own_names.c - a program whose functions have the names of functions inside the library. The library's calls
// must not meet them.
#include <ingot.h>
#include <stdio.h>
#include <stdlib.h>

#define OWN(name)                                                            \
    void name(void);                                                         \
    void name(void)                                                          \
    {                                                                        \
        fprintf(stderr, "the library called " #name "() of %s\n", __FILE__); \
        abort();                                                             \
    }

OWN(file_read)
OWN(file_exists)
OWN(arena_create)
OWN(arena_alloc)
OWN(log_line)
OWN(err_set)
OWN(mem_alloc)
OWN(buf_append)
OWN(str_find)
OWN(check_failed)
OWN(tape_seal)
OWN(model_bind)
OWN(engine_step)
OWN(request_create)
OWN(tokenizer_encode)

static bool count_bytes(void *arg, const struct ingot_event *event)
{
    *(size_t *)arg += event->n_bytes;
    return true;
}

int main(void)
{
    struct ingot_engine_options options = ingot_engine_defaults();
    struct ingot_request_options request = ingot_request_defaults();
    struct ingot_message message = { .role = "user", .content = "What is 12 + 30?" };
    struct ingot_error error = { 0 };
    size_t n_bytes = 0;

    request.messages = &message;
    request.n_messages = 1;
    request.max_tokens = 8;
    struct ingot_engine *engine = ingot_engine_open(&options, &error);
    bool ok = engine && ingot_generate(engine, &request, count_bytes, &n_bytes, NULL, &error) && n_bytes > 0;
    if (!ok)
        fprintf(stderr, "%s\n", error.message);
    ingot_engine_close(engine);
    return ok ? 0 : 1;
}
