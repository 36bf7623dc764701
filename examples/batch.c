// batch.c - several questions in one go: ingot_generate_batch. Their rows share every step, so this is faster
// than one by one.
#include <ingot.h>
#include <stdio.h>

enum { N = 3 };

int main(int argc, char **argv)
{
    static const char *const questions[N] = { "What is 12 + 30?", "What is 7 + 8?", "Hello, who are you?" };
    struct ingot_engine_options engine_options = ingot_engine_defaults();
    struct ingot_request_options options[N];
    struct ingot_message messages[N];
    struct ingot_result results[N];
    struct ingot_error error;
    char *texts[N];
    int status = 0;

    engine_options.model = argc > 1 ? argv[1] : NULL;
    engine_options.n_sequences = N; // fewer would work too: the others wait
    struct ingot_engine *engine = ingot_engine_open(&engine_options, &error);
    if (!engine) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    for (int i = 0; i < N; i++) {
        messages[i] = (struct ingot_message){ .role = "user", .content = questions[i] };
        options[i] = ingot_request_defaults();
        options[i].messages = &messages[i];
        options[i].n_messages = 1;
        options[i].max_tokens = 60;
        options[i].sampling.temperature = 0;
    }
    if (ingot_generate_batch(engine, options, N, results, texts, &error)) {
        for (int i = 0; i < N; i++) {
            bool ok = results[i].finish != INGOT_FINISH_ERROR;
            printf("%s\n  %s\n", questions[i], ok ? texts[i] : results[i].error.message);
            status |= !ok;
            ingot_free(texts[i]);
        }
    } else {
        fprintf(stderr, "%s\n", error.message);
        status = 1;
    }
    ingot_engine_close(engine);
    return status;
}
