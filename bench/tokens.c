// tokens.c - how the time to tokenise grows with the text: one character repeated, 1 MiB against 10 MiB.
//
// Usage: bench_tokens MODEL. Processor time of the calling thread, the least of five runs each. Linear work gives 10, sorting a little
// more; a quadratic step would give 100.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "format/model_file.h"
#include "text/tokenizer.h"

enum { RUNS = 5 };

static double processor_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double least_ms(const struct tokenizer *t, struct str text)
{
    double least = 1e300;

    for (int i = 0; i < RUNS; i++) {
        struct token_ids ids = { 0 };
        struct err err = { 0 };
        double start = processor_ms();
        if (!tokenizer_encode(t, text, (struct tokenize_flags){ 0 }, &ids, &err)) {
            fprintf(stderr, "%s\n", err.message);
            exit(1);
        }
        double ms = processor_ms() - start;
        least = ms < least ? ms : least;
        token_ids_free(&ids);
    }
    return least;
}

int main(int argc, char **argv)
{
    static const char *const texts[] = {
        "A", "z", "7", ".", " ", "\n", "\xe4\xb8\xad", "\xcc\x81", "\xf0\x9f\x91\xa9\xe2\x80\x8d"
    };
    static const char *const names[] = { "A", "z", "7", ".", "space", "newline", "CJK", "combining mark", "emoji and joiner" };
    struct model_file *file = NULL;
    struct tokenizer *t = NULL;
    struct err err = { 0 };
    size_t bytes = (size_t)10 << 20;
    char *text = malloc(bytes);

    if (argc != 2 || !text || !model_file_open(&file, argv[1], &err) || !tokenizer_load(&t, file, &err)) {
        fprintf(stderr, "usage: bench_tokens MODEL\n%s\n", err.message);
        return 1;
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t n = strlen(texts[i]);
        for (size_t at = 0; at + n <= bytes; at += n)
            memcpy(text + at, texts[i], n);
        double one = least_ms(t, (struct str){ text, bytes / 10 / n * n }),
               ten = least_ms(t, (struct str){ text, bytes / n * n });
        printf("%-16s 1 MiB %7.1f ms, 10 MiB %7.1f ms, ratio %.1f\n", names[i], one, ten, ten / one);
    }
    tokenizer_free(t);
    model_file_close(file);
    free(text);
    return 0;
}
