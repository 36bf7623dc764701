// test_options.c - the option table: every type, every source and its rank, and messages that help.
#include "testing.h"
#include <stdlib.h>
#include <unistd.h>
#include "base/file.h"
#include "base/options.h"

struct option_values {
    bool exact;
    const char *model, *kv;
    uint32_t threads, limit;
    uint64_t seed;
    float temp;
    struct option_list stop;
    struct option_numbers prompts;
};
#define AT(field) offsetof(struct option_values, field)

static const struct option all[] = {
    { "--exact", OPTION_FLAG, AT(exact), NULL, NULL, 0, 0, NULL, "full precision" },
    { "-m --model", OPTION_STRING, AT(model), "FILE", NULL, 0, 0, NULL, "the model" },
    { "--kv", OPTION_CHOICE, AT(kv), "TYPE", "auto", 0, 0, "auto f16 f32", "type of the pages" },
    { "-t --threads", OPTION_U32, AT(threads), "N", "0", 0, 1024, NULL, "threads" },
    { "-s --seed", OPTION_U64, AT(seed), "N", "7", 0, 0, NULL, "seed's value" },
    { "--temp --temperature", OPTION_FLOAT, AT(temp), "X", "0.8", 0, 100, NULL, "temperature" },
    { "-r --stop", OPTION_LIST, AT(stop), "TEXT", NULL, 0, 0, NULL, "stop here" },
    { "-p --n-prompt", OPTION_NUMBERS, AT(prompts), "N", "512", 1, 4096, NULL, "tokens" },
    { "-n --limit", OPTION_U32, AT(limit), "N", "0", 0, 0, "-1", "tokens of an answer" },
    { 0 },
};
static const struct option foreign[] = {
    { "-fa --flash", OPTION_FOREIGN, 0, "[MODE]", NULL, 0, 0, "on off", "no choice of it" },
    { "--lock", OPTION_FOREIGN, 0, NULL, NULL, 0, 0, NULL, "nothing to lock" },
    { "-sm --split", OPTION_FOREIGN, 0, "MODE", "rows yet", 0, 0, "none layer", "that is so" },
    { "--lora", OPTION_FOREIGN, 0, "FILE", "adapters yet", 0, 0, NULL, "" },
    { 0 },
};
static const struct option others[] = { { "--host", OPTION_STRING, 0, "NAME", NULL, 0, 0, NULL, "address" },
                                        { 0 } };
static const struct option_group group = { "All", all }, foreign_group = { NULL, foreign },
                                 other_group = { "Others", others };
static const struct option_verb verbs[] = {
    { "run", "[TEXT]", "Runs a model", "More.\n\n  ingot run", { &group, &foreign_group } },
    { "serve", NULL, "Serves", NULL, { &other_group } },
};
static const struct option_program program = { "ingot", "0.0", "an engine", "Text.", verbs, 2 };

struct options_state {
    struct arena *arena;
    struct option_values values;
    struct option_operands operands;
    struct err err;
};

static bool reads_as(struct options_state *s, const struct option_verb *verb, const char *line)
{
    static char copy[512];
    char *argv[32];
    int argc = 0;

    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    s->values = (struct option_values){ 0 };
    struct option_input input = { &program, verb, argc, argv };
    return options_read(&input, &s->values, &s->operands, s->arena, &s->err);
}

static bool reads(struct options_state *s, const char *line)
{
    return reads_as(s, &verbs[0], line);
}

static char folder[] = "/tmp/ingot-options-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return !mkdtemp(folder) || setenv("XDG_CONFIG_HOME", folder, 1) || setenv("XDG_STATE_HOME", folder, 1);
}

static int remove_folder(void **state)
{
    char path[256];
    (void)state;

    snprintf(path, sizeof path, "%s/ingot/config", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/ingot", folder);
    return rmdir(path) || rmdir(folder);
}

static int setup(void **state)
{
    static struct options_state s;

    s.arena = arena_create(1 << 20);
    *state = &s;
    return 0;
}

static int teardown(void **state)
{
    struct options_state *s = *state;
    arena_destroy(s->arena);
    return 0;
}

static void presets_fill_what_nobody_set(void **state)
{
    struct options_state *s = *state;

    assert_ok(reads(s, ""), &s->err);
    assert_false(s->values.exact);
    assert_null(s->values.model);
    assert_string_equal(s->values.kv, "auto");
    assert_int_equal(s->values.seed, 7);
    assert_float_equal(s->values.temp, 0.8f, 0);
    assert_int_equal(s->values.prompts.n, 1);
    assert_int_equal(s->values.prompts.at[0], 512);
}

static void every_type_is_read(void **state)
{
    struct options_state *s = *state;

    assert_ok(reads(s, "-m a.gguf --exact --kv=f16 -t 3 --seed 18446744073709551615 --temp 0 -r x -r y -p "
                       "1,2 -p 3 hello -- -t"),
              &s->err);
    assert_true(s->values.exact);
    assert_string_equal(s->values.model, "a.gguf");
    assert_string_equal(s->values.kv, "f16");
    assert_int_equal(s->values.threads, 3);
    assert_true(s->values.seed == UINT64_MAX);
    assert_float_equal(s->values.temp, 0, 0);
    assert_int_equal(s->values.stop.n, 2);
    assert_string_equal(s->values.stop.at[1], "y");
    assert_int_equal(s->values.prompts.n, 3);
    assert_int_equal(s->values.prompts.at[2], 3);
    assert_int_equal(s->operands.n, 2);
    assert_string_equal(s->operands.at[1], "-t");
    assert_ok(reads(s, "--exact=false"), &s->err);
    assert_false(s->values.exact);
}

static void wrong_input_is_told_in_one_line(void **state)
{
    struct options_state *s = *state;

    assert_fails(reads(s, "--thraeds 3"), &s->err, "unknown flag --thraeds; is --threads meant?");
    assert_fails(reads(s, "--zzzzzzzz"), &s->err, "'ingot help run' lists what there is");
    assert_fails(reads(s, "-t"), &s->err, "-t: a value is missing: -t N");
    assert_fails(reads(s, "-t x"), &s->err, "-t: found 'x', expected a whole number from 0 to 1024");
    assert_fails(reads(s, "-t 1025"), &s->err, "from 0 to 1024");
    assert_fails(reads(s, "-t -1"), &s->err, "found '-1'");
    assert_fails(reads(s, "--seed 18446744073709551616"), &s->err,
                 "expected a whole number from 0 to 18446744073709551615");
    assert_fails(reads(s, "--temp nan"), &s->err, "expected a number from 0 to 100");
    assert_fails(reads(s, "--temp 1e3"), &s->err, "from 0 to 100");
    assert_fails(reads(s, "--kv f8"), &s->err, "--kv: found 'f8', expected one of: auto f16 f32");
    assert_fails(reads(s, "--exact=maybe"), &s->err, "expected true or false");
    assert_fails(reads(s, "-p 1,,2"), &s->err, "found '1,,2'");
    assert_fails(reads(s, "-p 5000"), &s->err, "from 1 to 4096");
    assert_fails(reads_as(s, &verbs[1], "word"), &s->err, "expected flags only");
}

static void a_hint_is_never_a_guess_among_letters(void **state)
{
    struct options_state *s = *state;

    assert_fails(reads(s, "-k 3"), &s->err, "unknown flag -k; 'ingot help run'");
    assert_fails(reads(s, "-tt 3"), &s->err, "unknown flag -tt; 'ingot help run'");
    assert_fails(reads(s, "-temp 3"), &s->err, "is --temp meant?");
    // never towards a flag that changes nothing
    assert_fails(reads(s, "--flas"), &s->err, "'ingot help run'");
}

static void foreign_flags_change_nothing_or_say_what_is_missing(void **state)
{
    struct options_state *s = *state;

    assert_ok(reads(s, "-fa --lock -fa off -sm layer a"), &s->err);
    assert_int_equal(s->operands.n, 1);
    assert_int_equal(s->operands.n_foreign, 4);
    assert_string_equal(s->operands.foreign[1].why, "nothing to lock");
    assert_string_equal(s->operands.foreign[2].flag, "-fa");
    assert_ok(reads(s, "-fa word"), &s->err);
    assert_string_equal(s->operands.at[0], "word");
    assert_fails(reads(s, "-sm row"), &s->err, "-sm row: ingot has no rows yet");
    assert_fails(reads(s, "--lora=x"), &s->err, "--lora: ingot has no adapters yet");
    assert_fails(reads(s, "--lora"), &s->err, "a value is missing");
    setenv("INGOT_LORA", "x", 1);
    assert_ok(reads(s, ""), &s->err);
    unsetenv("INGOT_LORA");
}

static void a_word_may_stand_for_the_greatest_number(void **state)
{
    struct options_state *s = *state;

    assert_ok(reads(s, "-n -1"), &s->err);
    assert_true(s->values.limit == UINT32_MAX);
    assert_fails(reads(s, "-n -2"), &s->err,
                 "found '-2', expected a whole number from 0 to 4294967295, or -1");
}

static void help_keeps_to_the_width(void **state)
{
    struct buf text = { 0 };
    (void)state;

    for (size_t width = 40; width <= 120; width += 40) {
        text.n = 0;
        options_help_verb(&program, &verbs[0], width, &text);
        for (const char *line = text.at; *line; line += strcspn(line, "\n") + 1) {
            size_t n = strcspn(line, "\n");
            if (n > width || (n && line[n - 1] == ' '))
                fail_msg("at %zu columns: '%.*s'", width, (int)n, line);
        }
    }
    assert_null(strstr(text.at, "--lora"));
    buf_free(&text);
}

static void write_config(const char *text)
{
    char path[256], expected[256];
    struct err err;

    assert_true(options_state_path("config", path, sizeof path)); // makes the folder
    snprintf(expected, sizeof expected, "%s/ingot/config", folder);
    assert_string_equal(path, expected);
    struct file_writer *w = calloc(1, sizeof *w);
    assert_ok(file_create(w, path, &err), &err);
    file_write(w, text, strlen(text));
    assert_ok(file_commit(w, &err), &err);
    free(w);
}

static void flag_beats_environment_beats_file(void **state)
{
    struct options_state *s = *state;

    write_config("# mine\n\nthreads = 2\ntemp=0.5\n  seed =  9 \nstop = a b\nhost = there\n");
    setenv("INGOT_THREADS", "3", 1);
    setenv("INGOT_STOP", "env", 1);
    assert_ok(reads(s, "-t 4"), &s->err);
    assert_int_equal(s->values.threads, 4);
    assert_ok(reads(s, ""), &s->err);
    assert_int_equal(s->values.threads, 3);
    assert_int_equal(s->values.seed, 9);
    assert_float_equal(s->values.temp, 0.5f, 0);
    assert_int_equal(s->values.stop.n, 1);
    assert_string_equal(s->values.stop.at[0], "env");
    setenv("INGOT_THREADS", "many", 1);
    assert_fails(reads(s, ""), &s->err, "INGOT_THREADS: found 'many'");
    unsetenv("INGOT_THREADS");
    unsetenv("INGOT_STOP");
    assert_ok(reads(s, ""), &s->err);
    assert_int_equal(s->values.threads, 2);
    assert_string_equal(s->values.stop.at[0], "a b");
}

static void a_wrong_config_file_names_its_line(void **state)
{
    struct options_state *s = *state;

    write_config("temp = 1\nthread = 2\n");
    assert_fails(reads(s, ""), &s->err, "'thread' is not an option; is 'threads' meant?");
    write_config("temp = 1\nthreads\n");
    assert_fails(reads(s, ""), &s->err, "line 2: found 'threads', expected key = value");
    write_config("\nthreads = x");
    assert_fails(reads(s, ""), &s->err, "line 2: threads: found 'x'");
    write_config("");
    assert_ok(reads(s, ""), &s->err);
}

static void an_oversized_list_is_refused(void **state)
{
    struct options_state *s = *state;
    char line[512] = "-p 1";

    for (int i = 0; i < OPTION_MAX_LISTED; i++)
        strncat(line, ",1", sizeof line - strlen(line) - 1);
    assert_fails(reads(s, line), &s->err, "at most 64 values");
}

static void every_text_names_every_flag(void **state)
{
    static const char *const shells[] = { "bash", "zsh", "fish" };
    struct buf texts[5] = { 0 };
    struct err err;
    (void)state;

    options_help_verb(&program, &verbs[0], 80, &texts[0]);
    options_man(&program, &texts[1]);
    for (int i = 0; i < 3; i++)
        assert_ok(options_completion(&program, shells[i], &texts[2 + i], &err), &err);
    for (const struct option *o = all; o->flags; o++) {
        struct str key = option_key(o);
        char word[64], roff[64];
        snprintf(word, sizeof word, "%.*s", STR_ARG(key));
        size_t n = 0;
        for (const char *c = word; *c && n < sizeof roff - 2; c++) {
            if (*c == '-')
                roff[n++] = '\\';
            roff[n++] = *c;
        }
        roff[n] = 0;
        for (int i = 0; i < 5; i++) {
            if (!strstr(texts[i].at, i == 1 ? roff : word))
                fail_msg("text %d lacks %s", i, word);
        }
        assert_non_null(strstr(texts[0].at, o->help));
    }
    assert_fails(options_completion(&program, "tcsh", &texts[0], &err), &err, "expected bash, zsh or fish");
    for (int i = 0; i < 5; i++)
        buf_free(&texts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(presets_fill_what_nobody_set, setup, teardown),
        cmocka_unit_test_setup_teardown(every_type_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_input_is_told_in_one_line, setup, teardown),
        cmocka_unit_test_setup_teardown(a_hint_is_never_a_guess_among_letters, setup, teardown),
        cmocka_unit_test_setup_teardown(foreign_flags_change_nothing_or_say_what_is_missing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_word_may_stand_for_the_greatest_number, setup, teardown),
        cmocka_unit_test_setup_teardown(help_keeps_to_the_width, setup, teardown),
        cmocka_unit_test_setup_teardown(flag_beats_environment_beats_file, setup, teardown),
        cmocka_unit_test_setup_teardown(a_wrong_config_file_names_its_line, setup, teardown),
        cmocka_unit_test_setup_teardown(an_oversized_list_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(every_text_names_every_flag, setup, teardown),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
