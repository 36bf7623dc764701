// main.c - the program: picks the verb, reads its options, calls it. The verbs are in verb_*.c, the options in settings.c.
#include "ingot.h"
#include "base/log.h"
#include "main/by_name.h"
#include "main/settings.h"
#include "main/terminal.h"
#include "main/version.h"

static int (*const verb_functions[])(const struct call *) = {
    verb_run,    verb_bench,  verb_inspect, verb_tokenize, verb_quantize, verb_synth,
    verb_verify, verb_doctor, verb_serve,   verb_pull,     verb_ls,       verb_rm,
};
enum { N_VERBS = sizeof verb_functions / sizeof *verb_functions }; // the first ones of ingot_program.verbs, in its order

static int print_version(void)
{
    out_printf("ingot %s\ncommit %s\nbuilt for %s\n", ingot_version(), version_commit, version_build);
    return out_finish();
}

static int print(struct buf *text)
{
    out_write(text->at, text->n);
    buf_free(text);
    return out_finish();
}

static int print_help(const char *verb_name)
{
    const struct option_verb *verb = verb_name ? option_verb_find(&ingot_program, verb_name) : NULL;
    struct buf text = { 0 };

    if (verb_name && !verb)
        return fail_usage("'%.40s' is not a verb; 'ingot help' lists them", verb_name);
    if (verb)
        options_help_verb(&ingot_program, verb, &text);
    else
        options_help_program(&ingot_program, &text);
    return print(&text);
}

static int unknown_verb(const char *name)
{
    struct buf names = { 0 };

    for (size_t i = 0; i < ingot_program.n_verbs; i++)
        buf_printf(&names, "%s ", ingot_program.verbs[i].name);
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
    return print(&text);
}

static void set_log(const char *name)
{
    static const char *const names[] = { "error", "warn", "info", "debug" };

    for (int i = 0; i < 4; i++) {
        if (!strcmp(names[i], name))
            log_level_set((enum log_level)i);
    }
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
    set_log(settings.log);
    if (settings.help)
        return print_help(verb->name);
    size_t index = (size_t)(verb - ingot_program.verbs);
    int status = model_by_name(verb, &settings, &operands, arena);
    if (status != STATUS_OK)
        return status;
    if (index < N_VERBS)
        return verb_functions[index](&(struct call){ verb, &settings, &operands, arena });
    if (!strcmp(verb->name, "help"))
        return print_help(operands.n ? operands.at[0] : NULL);
    return !strcmp(verb->name, "man") ? print_man() : print_completion(&operands);
}

int main(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : "help";

    signals_install();
    if (!strcmp(first, "--version") || !strcmp(first, "-V"))
        return print_version();
    if (!strcmp(first, "--help") || !strcmp(first, "-h"))
        return print_help(NULL);
    const struct option_verb *verb = option_verb_find(&ingot_program, first);
    if (!verb)
        return unknown_verb(first);
    struct arena *arena = arena_create((size_t)1 << 24);
    if (!arena) {
        fputs("ingot: out of memory\n", stderr);
        return STATUS_ERROR;
    }
    int status = call_verb(verb, argc > 2 ? argc - 2 : 0, argv + 2, arena);
    arena_destroy(arena);
    return status;
}
