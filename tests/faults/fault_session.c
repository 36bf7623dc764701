// fault_session.c - a session goes to a file and comes back in another engine: a program for tools/faults,
// since no verb of ingot's saves one. Prints what follows, or a clear error.
#include <inttypes.h>
#include <stdio.h>
#include "ingot.h"

enum { N_PROMPT = 40, N_NEW = 5 };

static int fail_with(const struct ingot_error *error)
{
    fprintf(stderr, "ingot: %s\n", error->message);
    return 1;
}

static bool print_token(void *arg, const struct ingot_event *e)
{
    (void)arg;
    if (e->token != UINT32_MAX)
        printf("%" PRIu32 " ", e->token);
    return true;
}

static bool go_on(struct ingot_engine *engine, struct ingot_session *session, struct ingot_error *error)
{
    struct ingot_request_options o = ingot_request_defaults();
    uint32_t prompt[N_PROMPT];

    for (uint32_t i = 0; i < N_PROMPT; i++)
        prompt[i] = 3 + i * 7 % 100;
    o.session = session;
    o.tokens = prompt;
    o.n_tokens = N_PROMPT;
    o.max_tokens = N_NEW;
    o.sampling.temperature = 0;
    return ingot_generate(engine, &o, print_token, NULL, NULL, error);
}

// Opens the engine, and then saves a new session or goes on with the one in the file.
static int trip(const struct ingot_engine_options *o, const char *path, bool saves)
{
    struct ingot_error error = { 0 };
    struct ingot_engine *engine = ingot_engine_open(o, &error);

    if (!engine)
        return fail_with(&error);
    struct ingot_session *s =
        saves ? ingot_session_create(engine, &error) : ingot_session_load(engine, path, &error);
    bool ok = s && go_on(engine, s, &error) && (!saves || ingot_session_save(s, path, &error));
    ingot_session_free(s);
    ingot_engine_close(engine);
    return ok ? 0 : fail_with(&error);
}

int main(int argc, char **argv)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    if (argc != 3)
        return 2;
    o.model = argv[1];
    o.device = "cpu";
    o.n_threads = 2;
    int status = trip(&o, argv[2], true);
    status = status ? status : trip(&o, argv[2], false);
    return fflush(stdout) == 0 ? status : 1;
}
