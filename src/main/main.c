// main.c - the program: picks the verb, reads its options, calls it. The verbs are in verb_*.c, the options
// in settings.c.
#include <unistd.h>
#include "ingot.h"
#include "base/log.h"
#include "base/err.h"
#include "base/thread_pool.h"
#include "main/loading.h"
#include "main/model_lookup.h"
#include "main/settings.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/signals.h"
#include "main/terminal/terminal.h"
#include "main/version.h"
#include "text/json_memory.h"

static int (*const verb_functions[])(const struct verb_call *) = {
    verb_run,    verb_bench,  verb_inspect, verb_tokenize, verb_quantize, verb_synth,
    verb_verify, verb_doctor, verb_serve,   verb_pull,     verb_ls,       verb_rm,
    verb_eval,   verb_plan,   verb_imatrix, verb_embed,    verb_profile,
};
enum {
    N_VERBS = sizeof verb_functions / sizeof *verb_functions
}; // the first ones of ingot_program.verbs, in its order

static int print_version(void)
{
    out_printf("ingot %s\ncommit %s\nbuilt for %s\n", ingot_version(), version_commit, version_build);
    return out_finish();
}

static int print(struct buf *text)
{
    out_page(options_pager(), buf_as_str(text));
    buf_free(text);
    return out_finish();
}

// The names that similar programs use for the same verbs.
static const char *verb_alias(const char *name)
{
    static const char *const aliases[][2] = {
        { "list", "ls" }, { "show", "inspect" }, { "chat", "run" }, { "cli", "run" }, { "server", "serve" },
    };

    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        if (!strcmp(name, aliases[i][0]))
            return aliases[i][1];
    }
    return name;
}

static int print_help(const char *verb_name)
{
    const struct option_verb *verb =
        verb_name ? option_verb_find(&ingot_program, verb_alias(verb_name)) : NULL;
    struct buf text = { 0 };

    if (verb_name && !verb)
        return fail_usage("'%.40s' is not a verb; 'ingot help' lists them", verb_name);
    if (verb)
        options_help_verb(&ingot_program, verb, terminal_columns(STDOUT_FILENO), &text);
    else
        options_help_program(&ingot_program, terminal_columns(STDOUT_FILENO), &text);
    return print(&text);
}

// A mistyped word is never taken for a verb that deletes something.
static int unknown_verb(const char *name)
{
    struct buf names = { 0 };

    for (size_t i = 0; i < ingot_program.n_verbs; i++)
        buf_printf(&names, "%s ",
                   strcmp(ingot_program.verbs[i].name, "rm") ? ingot_program.verbs[i].name : "");
    struct str near = option_nearest(str_from(name), names.at);
    int status = near.n ? fail_usage("'%.40s' is not a verb; is '%.*s' meant?", name, STR_ARG(near))
                        : fail_usage("'%.40s' is not a verb; 'ingot help' lists them", name);
    buf_free(&names);
    return status;
}

static int print_completion(const struct option_operands *operands)
{
    struct buf text = { 0 };
    struct err err;

    if (operands->n != 1)
        return fail_usage("completion: expected one shell: bash, zsh or fish");
    if (!options_completion(&ingot_program, operands->at[0], &text, &err))
        return fail_usage("%s", err.message);
    return print(&text);
}

static int print_man(void)
{
    struct buf text = { 0 };
    options_man(&ingot_program, &text);
    out_page("man -l - 2>/dev/null", buf_as_str(&text));
    buf_free(&text);
    return out_finish();
}

static void set_log(const struct settings *s)
{
    static const char *const names[] = { "error", "warn", "info", "debug" };

    for (int i = 0; i < 4; i++) {
        if (!strcmp(names[i], s->log))
            log_level_set((enum log_level)i);
    }
    if (s->verbose && !log_enabled(LOG_INFO))
        log_level_set(LOG_INFO);
}

static void tell_foreign(const struct option_operands *operands)
{
    for (size_t i = 0; i < operands->n_foreign; i++)
        log_line(LOG_INFO, "options", "%s changes nothing: %s",
                 operands->foreign[i].flag ? operands->foreign[i].flag : "", operands->foreign[i].why);
}

static int call_verb(const struct option_verb *verb, int argc, char **argv, struct arena *arena)
{
    struct settings settings = { 0 };
    struct option_operands operands;
    struct option_input input = { &ingot_program, verb, argc, argv };
    struct err err;

    if (!options_read(&input, &settings, &operands, arena, &err)) {
        fail(err.message);
        return err.code == ERR_INPUT ? STATUS_USAGE : STATUS_ERROR;
    }
    set_log(&settings);
    if (settings.help)
        return print_help(verb->name);
    tell_foreign(&operands);
    if (settings.n_threads)
        settings.n_threads = settings.n_threads == UINT32_MAX ? 0 : thread_count_capped(settings.n_threads);
    for (size_t i = 0; i < settings.bench_threads.n; i++)
        settings.bench_threads.at[i] = thread_count_capped(settings.bench_threads.at[i]);
    if (!loading_scales_fit(&settings))
        return STATUS_USAGE;
    size_t index = (size_t)(verb - ingot_program.verbs);
    int status = model_lookup(verb, &settings, &operands, arena);
    if (status != STATUS_OK)
        return status;
    if (index < N_VERBS)
        return verb_functions[index](&(struct verb_call){ verb, &settings, &operands, arena });
    if (!strcmp(verb->name, "help"))
        return print_help(operands.n ? operands.at[0] : NULL);
    return !strcmp(verb->name, "man") ? print_man() : print_completion(&operands);
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return !strcmp(word, a) || !strcmp(word, b) || !strcmp(word, c);
}

static int start(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : "help";
    bool only_flags = first[0] == '-'; // as llama.cpp's programs are started
    const struct option_verb *verb = option_verb_find(&ingot_program, only_flags ? "run" : verb_alias(first));

    if (is_one_of(first, "--version", "-V", "version"))
        return print_version();
    if (is_one_of(first, "--help", "-h", "--usage"))
        return print_help(NULL);
    if (!strcmp(first, "ps"))
        return fail_usage("no models stay loaded by themselves; each 'ingot serve' is a process, and its "
                          "/health and /metrics "
                          "tell how it is");
    if (!verb)
        return unknown_verb(first);
    struct arena *arena = arena_create((size_t)1 << 24);
    if (!arena)
        return fail("out of memory");
    int skipped = argc < 2 ? argc : only_flags ? 1 : 2;
    int status = call_verb(verb, argc - skipped, argv + skipped, arena);
    arena_destroy(arena);
    return status;
}

int main(int argc, char **argv)
{
    signals_install();
    json_memory_watch();
    err_options_set(loading_flags);
    return start(argc, argv);
}
