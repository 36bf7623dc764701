// generate.c - one question, answered piece by piece: ingot_generate.
//
//   cc generate.c $(pkg-config --cflags --libs ingot) && ./a.out "Tell me a story about a fox." [MODEL]
#include <ingot.h>
#include <stdio.h>

static bool on_event(void *arg, const struct ingot_event *event)
{
    (void)arg;
    fwrite(event->text, 1, event->n_bytes, stdout);
    fflush(stdout);
    return true; // false would stop the answer
}

int main(int argc, char **argv)
{
    struct ingot_engine_options engine_options = ingot_engine_defaults();
    struct ingot_request_options options = ingot_request_defaults();
    struct ingot_message message = { .role = "user",
                                     .content = argc > 1 ? argv[1] : "Tell me a story about a fox." };
    struct ingot_result result;
    struct ingot_error error;

    engine_options.model = argc > 2 ? argv[2] : NULL; // NULL: the model inside the library
    struct ingot_engine *engine = ingot_engine_open(&engine_options, &error);
    if (!engine) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    options.messages = &message;
    options.n_messages = 1;
    options.max_tokens = 200;
    options.sampling.seed = 1;
    bool ok = ingot_generate(engine, &options, on_event, NULL, &result, &error);
    if (ok)
        printf("\n(%u tokens)\n", result.n_generated);
    else
        fprintf(stderr, "%s\n", error.message);
    ingot_engine_close(engine);
    return ok ? 0 : 1;
}
