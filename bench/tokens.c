// tokens.c - how the time to tokenise grows with the text: one character repeated, 1 MiB against 10 MiB.
//
// Usage: bench_tokens [MODEL | KIND...]. A KIND is a file of tests/text/vectors, as in kind_llama2; without
// an argument, one tokeniser of each algorithm. Processor time of the calling thread, the least of five runs
// each. Linear work gives 10, sorting a little more; a quadratic step would give 100.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "format/model_file.h"
#include "text/tokenizer/tokenizer.h"
#include "text/vector_files.h"

enum { RUNS = 5 };

static double processor_ms(void)
{
    return (double)clock_thread_ns() / 1e6;
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

static void measure(const char *name, const struct tokenizer *t)
{
    static const char *const texts[] = {
        "A", "z", "7", ".", " ", "\n", "\xe4\xb8\xad", "\xcc\x81", "\xf0\x9f\x91\xa9\xe2\x80\x8d"
    };
    static const char *const names[] = {
        "A", "z", "7", ".", "space", "newline", "CJK", "combining mark", "emoji and joiner"
    };
    static char text[10 << 20];

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t n = strlen(texts[i]);
        for (size_t at = 0; at + n <= sizeof text; at += n)
            memcpy(text + at, texts[i], n);
        double one = least_ms(t, (struct str){ text, sizeof text / 10 / n * n }),
               ten = least_ms(t, (struct str){ text, sizeof text / n * n });
        printf("%-12s %-16s 1 MiB %7.1f ms, 10 MiB %7.1f ms, ratio %.1f\n", name, names[i], one, ten,
               ten / one);
    }
}

static bool load_kind(struct tokenizer **t, const char *name, struct err *err)
{
    json_t *kind = vector_file(name);
    char *json = vector_tokenizer_json(kind);
    bool ok = tokenizer_load_json(t, str_from(json), err);
    free(json);
    json_decref(kind);
    return ok;
}

static bool load(struct tokenizer **t, const char *name, struct err *err)
{
    struct model_file *file = NULL;
    if (strncmp(name, "kind_", 5) == 0)
        return load_kind(t, name, err);
    bool ok = model_file_open(&file, name, err) && tokenizer_load(t, file, err);
    model_file_close(file);
    return ok;
}

int main(int argc, char **argv)
{
    static char byte_level[] = "kind_gpt-2", sentencepiece[] = "kind_llama2", unigram[] = "kind_t5";
    char *const all[] = { byte_level, sentencepiece, unigram };
    char *const *names = argc > 1 ? argv + 1 : all;
    int n_names = argc > 1 ? argc - 1 : 3;

    for (int i = 0; i < n_names; i++) {
        struct tokenizer *t = NULL;
        struct err err = { 0 };
        if (!load(&t, names[i], &err)) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        }
        measure(names[i], t);
        tokenizer_free(t);
    }
    return 0;
}
