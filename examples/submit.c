// submit.c - streams that come and go: ingot_submit, ingot_step, ingot_poll. What a server does: one thread
// steps, and after each step hears what happened to every request. Here the second question is asked while
// the first is being answered.
#include <ingot.h>
#include <stdio.h>

static struct ingot_request *ask(struct ingot_engine *engine, const char *question)
{
    struct ingot_request_options options = ingot_request_defaults();
    struct ingot_message message = { .role = "user", .content = question };
    struct ingot_error error;

    options.messages = &message;
    options.n_messages = 1;
    options.max_tokens = 60;
    options.sampling.temperature = 0;
    struct ingot_request *request = ingot_submit(engine, &options, &error);
    if (!request)
        fprintf(stderr, "%s\n", error.message);
    return request;
}

// Prints what came for a request; false when it is done.
static bool listen(struct ingot_request *request, int number)
{
    struct ingot_event event;

    while (request && ingot_poll(request, &event)) {
        if (event.n_bytes)
            printf("%d: %s\n", number, event.text);
        if (event.done)
            return false;
    }
    return request != NULL;
}

int main(int argc, char **argv)
{
    struct ingot_engine_options engine_options = ingot_engine_defaults();
    struct ingot_request *first, *second = NULL;
    struct ingot_error error;
    bool busy = true, more[2] = { true, true };

    engine_options.model = argc > 1 ? argv[1] : NULL;
    engine_options.n_sequences = 2;
    struct ingot_engine *engine = ingot_engine_open(&engine_options, &error);
    if (!engine) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    first = ask(engine, "Name three colours.");
    for (int step = 0; first && (more[0] || more[1]); step++) {
        if (!ingot_step(engine, &busy, &error)) {
            fprintf(stderr, "%s\n", error.message);
            break;
        }
        if (step == 4)
            second = ask(engine, "What is 20 + 22?");
        more[0] = more[0] && listen(first, 1);
        more[1] = step < 4 || (more[1] && listen(second, 2));
    }
    ingot_request_free(first);
    ingot_request_free(second);
    ingot_engine_close(engine);
    return first && second && !more[0] && !more[1] ? 0 : 1;
}
