// test_program.c - the program as a user meets it: streams, exit statuses, messages, pipes, Ctrl-C, JSON.
#include "program.h"
#include <jansson.h>

// An answer that does not end by itself.
#define ENDLESS "run -m @ -p x --ignore-eos -c 100000 -dev cpu:plain --no-repack --log error"
static const struct streams pipes = { -1, -1, -1 };

static void expect(struct outcome o, int status, const char *out_part, const char *err_part)
{
    if (o.status != status)
        fail_msg("status %d, expected %d; stderr: %s", o.status, status, o.err.at);
    if (!strstr(o.out.at, out_part))
        fail_msg("stdout '%s' lacks '%s'", o.out.at, out_part);
    if (!strstr(o.err.at, err_part))
        fail_msg("stderr '%s' lacks '%s'", o.err.at, err_part);
    outcome_free(&o);
}

// One line on stderr, nothing on stdout.
static void expect_error(const char *words, int status, const char *part)
{
    struct outcome o = run_with(words, "");

    assert_int_equal(o.out.n, 0);
    if (o.err.n == 0 || strchr(o.err.at, '\n') != o.err.at + o.err.n - 1)
        fail_msg("'%s' is not one line", o.err.at);
    expect(o, status, "", part);
}

static void version_and_help_are_results(void **state)
{
    (void)state;
    expect(run_with("--version", ""), 0, "commit ", "");
    expect(run_with("help", ""), 0, "  run ", "");
    expect(run_with("help run", ""), 0, "--repeat-penalty X", "");
    expect(run_with("help chat", ""), 0, "usage: ingot run", "");
    expect(run_with("version", ""), 0, "commit ", "");
    expect(run_with("run --help", ""), 0, "--repeat-penalty X", "");
    expect(run_with("", ""), 0, "usage: ingot VERB", "");
}

static void wrong_usage_is_status_2(void **state)
{
    (void)state;
    expect_error("rnu", 2, "is 'run' meant?");
    expect_error("rmm", 2, "'ingot help' lists them"); // not towards rm
    expect_error("ps", 2, "'ingot serve' is a process");
    expect_error("run --tmep 1", 2, "is --temp meant?");
    expect_error("run --temp hot", 2, "--temp: found 'hot', expected a number from 0 to 1000");
    expect_error("run -p", 2, "-p: a value is missing");
    expect_error("run -m @ -p x --no-chat --system y", 2, "--system");
    expect_error("run -m @", 2, "the prompt is empty");
    expect_error("quantize a b", 2, "found 2 operands, expected three");
    expect_error("quantize @ b Q4_X", 2, "unknown type 'Q4_X'; known are F32 F16");
    expect_error("quantize @ b Q4_0 --tensor-type ffn=Q4_X", 2, "'Q4_X' is no format that is written");
    expect_error("synth a", 2, "expected two");
    expect_error("synth a b", 2, "unknown shape 'a'; known are toy");
    expect_error("synth toy b --type Q4_X", 2, "unknown type 'Q4_X'");
    expect_error("bench -p 0 -n 0", 2, "no test is left");
    expect_error("run @ -p x --record=", 2, "--record: found '', expected FILE");
    expect_error("run @ -p x --lora=", 2, "--lora: found '', expected FILE[:SCALE]");
    expect_error("run @ -p x --cache-dir=", 2, "--cache-dir: found '', expected DIR");
    expect_error("bench -pg 5", 2, "expected two numbers");
    expect_error("bench --peer true", 2, "-m");
    expect_error("completion tcsh", 2, "bash, zsh or fish");
    expect_error("help nothing", 2, "not a verb");
    expect_error("inspect a b", 2, "more than one");
}

static void what_follows_run_is_a_model(void **state)
{
    char words[256];
    (void)state;

    snprintf(words, sizeof words, "run %s -p hello -n 4 --temp 0 --ignore-eos", model);
    struct outcome by_flag = run_with("run -m @ -p hello -n 4 --temp 0 --ignore-eos", ""),
                   o = run_with(words, "");
    assert_string_equal(o.out.at, by_flag.out.at);
    expect(o, 0, "", ", on cpu: ");
    outcome_free(&by_flag);
    expect(run_with("-m @ -p hello -n 4", ""), 0, "", ", on cpu: ");
    expect(run_with("chat @ -p hello -n 4", ""), 0, "", ", on cpu: ");
    expect(run_with("run -p hello -n 4", ""), 0, "", "the toy inside ingot");
    expect(run_with("tokenize hello", ""), 0, "", "the toy inside ingot");
    expect(run_with("run --temp 0 --image " SOURCE_DIR "/examples/shapes.png -p Describe", ""), 0,
           "a red circle", "Ingot Eyes, the toy inside ingot");
    expect(run_with("run -m ingot-7m -p hello -n 4", ""), 0, "", "Ingot 7M, the toy inside ingot");
    expect_error("run ./nope.gguf -p x", 1, "./nope.gguf: no such file or folder");
    expect_error("run nope.gguf -p x", 1, "nope.gguf: no such file or folder");
    expect_error("run llama3.2 -p x", 1, "'llama3.2' is no file here and no model's name");
    expect_error("run qwen3:8b -p x", 1, "user/repo[:QUANT]");
    expect_error("run @ hello", 2, "found 'hello' after the model; the text of a prompt goes with -p");
    expect_error("run -m @ hello", 2, "name two models");
    expect(run_with("verify @", ""), 0, " 0 beyond their limit", "");
    expect_error("serve @ --port 0 --api-key=", 2, "--api-key: it is empty");
    expect_error("serve @ --port 0 --cors-origin *", 2,
                 "--cors-origin: found '*', expected an origin such as");
    expect_error("serve @ --port 0 --cors-origin http://a.test/", 2, "expected an origin such as");
    expect_error("serve @ --port 0 --role decode", 2, "--role decode needs --prefill");
    expect_error("imatrix @", 2, "imatrix: there is no text");
    expect_error("embed -m @ a b --dimensions 9999", 1, "text 1 of 2: dimensions is 9999");
    expect_error("synth toy /tmp", 1, "/tmp: is a directory");
    expect_error("serve ./nope.gguf", 1, "./nope.gguf: no such file");
    expect_error("bench @ @", 2, "bench: found");
}

// The library's messages name its fields (tests/engine).
static void messages_name_flags(void **state)
{
    (void)state;
    expect(run_with("serve @ --port 0 --kv-tokens 5", ""), 1, "", "ingot: --kv-tokens is 5; want at least");
    expect_error("run @ -p x -dev y", 1, "ingot: --device \"y\"; want auto, cpu");
    expect_error("run @ -p x --stages y", 1, "ingot: --stages \"y\": want up to");
    expect_error("run @ -p x --limits y", 1, "ingot: --limits: \"y\"; want conservative");
    expect_error("run @ -p x --experts y", 1, "ingot: --experts \"y\": want cpu");
    expect(run_with("run @ -p hello -c 4", ""), 1, "", "shorten it or raise -c");
}

// The name comes from a file that a stranger made.
static void a_models_name_does_not_drive_the_terminal(void **state)
{
    char path[128], words[256];
    (void)state;

    snprintf(path, sizeof path, "%s/a\033[31m\302\233b\nc", home);
    assert_int_equal(symlink(model, path), 0);
    snprintf(words, sizeof words, "run %s -p hello -n 1", path);
    struct outcome o = run_with(words, "");
    assert_null(strchr(o.err.at, '\033'));
    expect(o, 0, "", "a[31mbc, ");
    unlink(path);
}

static void a_pasted_command_line_runs(void **state)
{
    (void)state;
    expect(run_with("-m @ -ngl 99 -fa on -fa -ub 64 -b 128 --jinja --mlock --no-mmap --no-warmup -sm none -n "
                    "4 --seed -1 -t -1 "
                    "-c 512 --color -p hello -no-cnv --keep -1 --top-nsigma -1 -v",
                    ""),
           0, "", "--mlock changes nothing: ");
    expect(run_with("run @ -ngl 0 -n 4 -p x", ""), 0, "", ", on cpu: ");
    expect(run_with("bench -m @ -p 4 -n 0 -r 1 -ngl 99 -fa 1 -mmp 0 -nkvo 0 --progress", ""), 0, "pp4", "");
    expect_error("run @ --lora x.gguf -p y", 1, "x.gguf: ");
    expect_error("run @ --lora x.gguf:half -p y", 2,
                 "--lora: found 'half' behind the colon, expected a scale");
    expect_error("bench --image 0x5", 2, "--image: found '0x5', expected a picture's file, or two numbers");
    expect_error("run @ -sm row -p y", 2, "-sm row: ingot has no such split; --device cuda:0,cuda:1");
    expect_error("run @ --draft-min 2 -p y", 2, "--draft-min: ingot has no such setting of drafts");
    expect_error("run -m @ -md x.gguf -p y", 1, "x.gguf: no such file");
    expect_error("serve -m @ --ssl-key-file x", 2, "ingot has no TLS");
}

static void too_many_threads_are_not_taken(void **state)
{
    struct outcome o = run_with("run @ -p hello -n 4 -t 1000000", "");
    (void)state;

    expect(o, 0, "", "found 1000000, but this process may use ");
    expect(run_with("bench -m @ -p 4 -n 0 -r 1 -t 1000", ""), 0, "pp4", "but this process may use ");
    expect_error("run @ -p x -t -2", 2, "-t: found '-2', expected a whole number from 0 to 4294967295");
    expect_error("run @ -p x -t 99999999999999999999", 2, "-t: found '99999999999999999999'");
}

static void a_seed_is_random_and_printed(void **state)
{
    static const char same[] = "run @ -p hello -n 24 --temp 5 --top-k 0 --top-p 1 --min-p 0 --ignore-eos";
    struct outcome first = run_with(same, ""), second = run_with(same, "");
    char words[256];
    (void)state;

    assert_string_not_equal(first.out.at, second.out.at);
    const char *seed = strstr(first.err.at, ", seed ");
    assert_non_null(seed);
    snprintf(words, sizeof words, "%s -s %.*s", same, (int)strspn(seed + 7, "0123456789"), seed + 7);
    struct outcome third = run_with(words, "");
    assert_string_equal(third.out.at, first.out.at);
    outcome_free(&first);
    outcome_free(&second);
    outcome_free(&third);
}

static void errors_name_the_file_and_are_status_1(void **state)
{
    char path[128], words[256];
    (void)state;

    expect_error("run -m /nowhere/model.gguf -p x", 1, "/nowhere/model.gguf");
    expect_error("inspect /nowhere/model.gguf", 1, "/nowhere/model.gguf");
    expect_error("run -m @ -f /nowhere/prompt.txt", 1, "/nowhere/prompt.txt");
    expect_error("embed -m @ -f /nowhere/texts.txt", 1, "/nowhere/texts.txt");
    expect_error("run -m @ -p x -dev cuda:9", 1, "cuda:9");
    expect_error("run --config /nowhere/config -p x", 1, "/nowhere/config");
    snprintf(path, sizeof path, "%s/broken.gguf", home);
    write_file(path, "GGUF\3");
    snprintf(words, sizeof words, "run -m %s -p x", path);
    expect_error(words, 1, path);
    snprintf(words, sizeof words, "quantize %s %s/out.gguf Q8_0", path, home);
    expect_error(words, 1, path);
    snprintf(path, sizeof path, "%s/out.gguf", home);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void the_answer_goes_to_stdout_and_figures_to_stderr(void **state)
{
    struct outcome o = run_with("run -m @ -p hello -n 8 --temp 0 --ignore-eos", "");
    (void)state;

    assert_int_equal(o.out.at[o.out.n - 1], '\n');
    assert_null(strstr(o.out.at, "tok/s"));
    assert_null(strstr(o.err.at, "\r"));
    expect(o, 0, "", "answer 8 tokens");
    o = run_with("run -m @ -p hello -n 1 --temp 0 --ignore-eos", "");
    expect(o, 0, "", "answer 1 token;");
    o = run_with("run -m @ -p hello -n 8 --temp 0 --ignore-eos -q", "");
    assert_int_equal(o.err.n, 0);
    expect(o, 0, "\n", "");
}

static void same_seed_same_answer_from_every_source(void **state)
{
    struct outcome first, o;
    char path[128], words[256];
    (void)state;

    first = run_with("run -m @ -p hello -n 12 -s 5 -q", "");
    snprintf(path, sizeof path, "%s/prompt.txt", home);
    write_file(path, "hello\n");
    snprintf(words, sizeof words, "run -m @ -f %s -n 12 -s 5 -q", path);
    const char *const same[] = { "run @ -n 12 -s 5 -q -p hello", "run -m @ -f - -n 12 -s 5 -q",
                                 "run -m @ -n 12 -s 5 -q", words };
    for (int i = 0; i < 4; i++) {
        o = run_with(same[i], "hello");
        assert_string_equal(o.out.at, first.out.at);
        expect(o, 0, "", "");
    }
    setenv("INGOT_SEED", "6", 1);
    o = run_with("run -m @ -p hello -n 12 -q", "");
    unsetenv("INGOT_SEED");
    assert_string_not_equal(o.out.at, first.out.at);
    outcome_free(&o);
    outcome_free(&first);
}

static void a_processor_can_be_taken_for_a_smaller_one(void **state)
{
    (void)state;
    setenv("INGOT_CPU_ISA", "none", 1);
    expect(run_with("doctor", ""), 0, ", no SIMD\n", "");
    expect(run_with("run -m @ -p hello -n 3 -s 5 -q", ""), 0, "", "");
    setenv("INGOT_CPU_ISA", "avx1024", 1);
    expect(run_with("run -m @ -p hello -n 3 -s 5 -q", ""), 1, "",
           "INGOT_CPU_ISA is 'avx1024'; expected none, avx2");
    unsetenv("INGOT_CPU_ISA");
}

static void json_lines_parse_and_add_up(void **state)
{
    struct outcome o = run_with("run -m @ -p hello -n 12 --json --ignore-eos", "");
    struct buf text = { 0 };
    int n_tokens = 0;
    (void)state;

    for (char *line = strtok(o.out.at, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *event = json_loads(line, 0, NULL);
        assert_non_null(event);
        if (!json_is_true(json_object_get(event, "done"))) {
            buf_text(&text, json_string_value(json_object_get(event, "text")));
            n_tokens += json_object_get(event, "token") != NULL;
        } else {
            assert_string_equal(json_string_value(json_object_get(event, "answer")), text.at);
            assert_string_equal(json_string_value(json_object_get(event, "finish")), "length");
            assert_int_equal(json_integer_value(json_object_get(event, "n_generated")), n_tokens);
            assert_true(json_real_value(json_object_get(event, "first_token_ms")) > 0);
            n_tokens = -1;
        }
        json_decref(event);
    }
    assert_int_equal(n_tokens, -1);
    buf_free(&text);
    outcome_free(&o);
}

static void an_answer_follows_its_grammar(void **state)
{
    (void)state;
    expect(run_with("run -p hello -q --grammar root::=\"yes\\u0021\"", ""), 0, "yes!\n", "");
    expect(run_with("run -p hello -q -n 200 -s 3 --json-schema "
                    "{\"type\":\"array\",\"items\":{\"const\":7},\"minItems\":2,\"maxItems\":2}",
                    ""),
           0, "7", "");
    expect_error("run -q -p hello --grammar root::=root", 1, "left recursive");
    expect_error("run -q -p hello --json-schema {\"not\":{}}", 1, "'not'");
    expect_error("run -q -p hello --grammar-file /no/such/file", 1, "/no/such/file");
    struct outcome hidden =
        run_with("run -p hello -q --think hide --grammar root::=\"<think>hm</think>yes\"", "");
    assert_string_equal(hidden.out.at, "yes\n");
    outcome_free(&hidden);
    expect(run_with("run -p hello -q --grammar root::=\"<think>hm</think>yes\"", ""), 0,
           "<think>hm</think>yes\n", "");
}

static void a_closed_pipe_ends_quietly(void **state)
{
    struct running r = start(ENDLESS, pipes);
    struct outcome o = { 0 };
    char piece[8];
    (void)state;

    assert_true(read(r.out, piece, sizeof piece) > 0);
    close(r.out);
    r.out = -1;
    collect(&r, &o);
    assert_ptr_equal(strchr(o.err.at, '\n'), o.err.at + o.err.n - 1); // the model's name alone
    expect(o, 0, "", "");
}

static void a_full_disk_is_an_error(void **state)
{
    int full = open("/dev/full", O_WRONLY);
    struct outcome o = { 0 };
    (void)state;

    if (full < 0) // only Linux has it
        return;
    struct running r = start("help run", (struct streams){ -1, full, -1 });
    collect(&r, &o);
    expect(o, 1, "", "cannot write to stdout: No space left on device");
    close(full);
}

static void ctrl_c_stops_the_answer(void **state)
{
    struct running r = start(ENDLESS, pipes);
    struct outcome o = { 0 };
    char piece[1];
    (void)state;

    assert_true(read(r.out, piece, sizeof piece) > 0);
    kill(r.pid, SIGINT);
    collect(&r, &o);
    assert_int_equal(o.out.at[o.out.n - 1], '\n'); // a random model may say NUL bytes before it
    expect(o, 0, "", "; stopped");
}

static void sigterm_leaves_no_half_file(void **state)
{
    char path[128], part[136], words[256];
    struct outcome o = { 0 };
    (void)state;

    snprintf(path, sizeof path, "%s/half.gguf", home);
    snprintf(part, sizeof part, "%s.part", path);
    snprintf(words, sizeof words, "synth tinyllama-1.1b %s", path);
    struct running r = start(words, pipes);
    for (int i = 0; i < 3000 && access(part, F_OK) != 0; i++)
        usleep(10000);
    assert_int_equal(access(part, F_OK), 0);
    kill(r.pid, SIGTERM);
    collect(&r, &o);
    expect(o, 130, "", "stopped");
    assert_int_not_equal(access(part, F_OK), 0);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void a_file_that_is_cut_short_is_told(void **state)
{
    struct running r = start(ENDLESS, pipes);
    struct outcome o = { 0 };
    char path[128], piece[1];
    (void)state;

    assert_true(read(r.out, piece, sizeof piece) > 0);
    snprintf(path, sizeof path, "%s/model.safetensors", model);
    assert_int_equal(truncate(path, 0), 0);
    collect(&r, &o);
    expect(o, 1, "", "was cut short, or its disk failed, while it was in use");
    copy_golden("model.safetensors");
}

static void completions_and_man_page_parse(void **state)
{
    static const char *const commands[] = {
        PROGRAM " completion bash | bash -n",
        "! command -v zsh >/dev/null || " PROGRAM " completion zsh | zsh -n",
        "! command -v fish >/dev/null || " PROGRAM " completion fish | fish --no-execute",
        "! command -v groff >/dev/null || test -z \"$(" PROGRAM
        " man | groff -man -ww -Tutf8 2>&1 >/dev/null)\"",
        "bash -c 'eval \"$(" PROGRAM
        " completion bash)\"; COMP_WORDS=(ingot run --temp); COMP_CWORD=2; _ingot; "
        "[ \"${COMPREPLY[0]}\" = --temp ]'",
        "bash -c 'eval \"$(" PROGRAM
        " completion bash)\"; COMP_WORDS=(ingot run --cache-type-k f); COMP_CWORD=3; _ingot; "
        "[ \"${COMPREPLY[*]}\" = \"f32 f16\" ]'",
    };
    (void)state;

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (system(commands[i]) != 0)
            fail_msg("failed: %s", commands[i]);
    }
    expect(run_with("man", ""), 0, "\\-\\-repeat\\-penalty", "");
}

static json_t *parsed(struct outcome o)
{
    json_t *value = json_loads(o.out.at, 0, NULL);

    if (o.status != 0 || !value)
        fail_msg("status %d, stdout '%s', stderr '%s'", o.status, o.out.at, o.err.at);
    outcome_free(&o);
    return value;
}

static void json_outputs_parse(void **state)
{
    json_t *o;
    (void)state;

    o = parsed(run_with("inspect @ --json", ""));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "model"), "n_layers")), 3);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "model"), "n_draft_parameters")),
                     0);
    json_decref(o);
    o = parsed(run_with("inspect " SOURCE_DIR "/tests/golden/mtp-deepseek3 --json", ""));
    assert_true(json_integer_value(json_object_get(json_object_get(o, "model"), "n_draft_parameters")) >
                5000);
    json_decref(o);
    o = parsed(run_with("tokenize -m @ --json ab", ""));
    assert_int_equal(json_integer_value(json_array_get(json_object_get(o, "ids"), 1)), 'b');
    json_decref(o);
    o = parsed(run_with("tokenize -m @ --ids --special <|im_end|>", ""));
    assert_int_equal(json_integer_value(json_array_get(o, 0)), 258);
    json_decref(o);
    o = parsed(run_with("doctor --json", ""));
    assert_non_null(json_object_get(o, "processor"));
    assert_non_null(json_object_get(o, "libpng"));
    assert_non_null(json_object_get(o, "libjpeg-turbo"));
    assert_non_null(json_object_get(o, "libwebp"));
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) == 0)
        assert_string_not_equal(json_string_value(json_object_get(o, "huge pages")),
                                "the system does not say");
    json_decref(o);
}

static void bench_speaks_llama_bench(void **state)
{
    static const char *const names[] = {
        "build_commit", "cpu_info",  "model_filename", "model_type", "model_size", "model_n_params",
        "n_batch",      "n_threads", "n_prompt",       "n_gen",      "n_depth",    "test_time",
        "avg_ns",       "stddev_ns", "avg_ts",         "stddev_ts",  "samples_ns", "samples_ts",
    };
    json_t *rows = parsed(run_with("bench -m @ -p 8 -n 4 -pg 4,2 -d 0,5 -r 2 -o json", ""));
    (void)state;

    assert_int_equal(json_array_size(rows), 6);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_non_null(json_object_get(json_array_get(rows, 5), names[i]));
    assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 5), "n_depth")), 5);
    assert_int_equal(json_array_size(json_object_get(json_array_get(rows, 0), "samples_ts")), 2);
    json_decref(rows);
    rows = parsed(run_with(
        "bench @ -p 8 -n 0 -r 1 -t 1,1 -b 16,32 -ctk f16,bf16 -ctk f32 -dev cpu,cpu:plain -o json", ""));
    assert_int_equal(json_array_size(rows), 2 * 2 * 3 * 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 1), "type_k")), "bf16");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 11), "n_batch")), 32);
    json_decref(rows);
    expect(run_with("bench @ -p 8 -n 0 -r 1 -t 1,1 -b 16,32", ""), 0, " pp8 t1 b32 |", "");
    expect_error("bench @ -ctk f16,q5", 2, "-ctk: found 'q5', expected one of: auto f32 f16 bf16 q8_0");
    expect_error("bench @ -b 1,2,3,4,5,6,7,8,9 -t 1,1,1,1,1,1,1,1,1 -d 0,1,2", 2, "at most 256 rows");
    expect(run_with("bench -m @ -p 8 -n 4 -r 1", ""), 0, " pp8 |", "");
    expect(run_with("bench -m @ -p 8 -n 4 -r 1 -o csv", ""), 0, "build_commit,build_number,", "");
    expect(run_with("bench -m @ -p 8 -n 4 -r 1 --invariant", ""), 0, "tg4: --invariant costs ", "");
}

// How many parameters there are, and how many of them a token uses.
static void mixtures_are_told_by_what_a_token_uses(void **state)
{
    (void)state;
    expect(run_with("inspect " SOURCE_DIR "/tests/golden/qwen3moe", ""), 0,
           "experts       7 in a layer, 3 for a token, which uses 0.07 M parameters", "");
    expect(run_with("bench -m " SOURCE_DIR "/tests/golden/qwen3moe/model.gguf -dev cpu -p 4 -n 0 -r 1", ""),
           0, "| qwen3moe 0.109M.A0.068M F32 ", "");
}

// The peer is a script that answers as llama-bench would.
static void bench_runs_peers_in_turn(void **state)
{
    char path[128], words[512];
    (void)state;

    snprintf(path, sizeof path, "%s/peer", home);
    write_file(path, "#!/bin/sh\n[ -e $0.1 ] && s=2.0 || s=4000.0\ntouch $0.1\n"
                     "echo '[{\"n_prompt\": 8, \"n_gen\": 0, \"n_depth\": 0, \"avg_ts\": '$s'}]'\n");
    assert_int_equal(chmod(path, 0700), 0);
    snprintf(words, sizeof words, "bench -m @ -p 8 -n 0 -r 3 -o json --peer %s --peer %s", path, path);
    json_t *rows = parsed(run_with(words, "")), *row = json_array_get(rows, 0);
    assert_int_equal(json_array_size(json_object_get(row, "peer_samples_ts")), 3);
    assert_true(json_real_value(json_object_get(row, "peer_ratio")) > 0);
    assert_non_null(json_object_get(row, "peer_restless"));
    assert_int_equal(json_array_size(json_object_get(row, "peer2_samples_ts")), 3);
    assert_true(json_real_value(json_object_get(row, "peer2_ratio")) > 0);
    json_decref(rows);
    shell("rm -f %s.1", path); // its first round is 2,000 times as fast, whatever our own rounds did
    snprintf(words, sizeof words, "bench @ -p 8 -n 0 -r 3 --peer %s", path);
    expect(run_with(words, ""), 0, "pp8: restless: ", "");
    snprintf(words, sizeof words, "bench -m @ -p 9 -n 0 -r 1 --peer %s", path);
    expect(run_with(words, ""), 1, "", "no row with n_prompt 9");
    expect(run_with("bench -m @ -p 8 -n 0 -r 1 --peer false", ""), 1, "", "false: exit status 1");
}

// Two lines say what is served and within which limits; then the address.
static void serve_comes_to_the_point(void **state)
{
    struct running r = start("serve @ --port 0", pipes);
    struct outcome o = { 0 };
    char piece[512];
    (void)state;

    while (!o.err.at || !strstr(o.err.at, "listening on http")) {
        ssize_t n = read(r.err, piece, sizeof piece);
        assert_true(n > 0);
        buf_append(&o.err, piece, (size_t)n);
    }
    int n_lines = 0;
    for (const char *c = o.err.at; c < strstr(o.err.at, "listening on http"); c++)
        n_lines += *c == '\n';
    assert_int_equal(n_lines, 2);
    kill(r.pid, SIGTERM);
    collect(&r, &o);
    expect(o, 0, "", "loading ");
}

// Also of a free port, which nothing else tells.
static void the_address_is_told_at_every_level(void **state)
{
    struct running r = start("serve @ --port 0 --log error", pipes);
    struct outcome o = { 0 };
    char line[512];
    (void)state;

    ssize_t n = read(r.err, line, sizeof line);
    assert_true(n > 0);
    buf_append(&o.err, line, (size_t)n);
    kill(r.pid, SIGTERM);
    collect(&r, &o);
    expect(o, 0, "", "info server: listening on http://127.0.0.1:");
}

static void models_are_written_and_verified(void **state)
{
    char words[256];
    (void)state;

    snprintf(words, sizeof words, "quantize " SOURCE_DIR "/tests/golden/smollm2/model.gguf %s/q8.gguf Q8_0",
             home);
    expect(run_with(words, ""), 0, "", "quantised");
    snprintf(words, sizeof words, "verify -m %s/q8.gguf", home);
    expect(run_with(words, ""), 0, " 0 beyond their limit", "");
    snprintf(words, sizeof words, "inspect %s/q8.gguf --tensors", home);
    expect(run_with(words, ""), 0, "tensors\n", "");
    expect(run_with("synth --list", ""), 0, "tinyllama-1.1b\n", "");
    snprintf(words, sizeof words, "synth toy %s/three.gguf --layers 3", home);
    expect(run_with(words, ""), 0, "", "");
    snprintf(words, sizeof words, "inspect %s/three.gguf", home);
    expect(run_with(words, ""), 0, ", 3 layers, ", "");
}

// What was recorded is answered the same again; a record that says otherwise is contradicted, with the place.
static void a_record_is_replayed(void **state)
{
    char path[] = "/tmp/ingot-record-XXXXXX", words[300], text[1 << 14] = "";
    int fd = mkstemp(path);
    (void)state;

    assert_true(fd >= 0);
    snprintf(words, sizeof words, "run -m @ -p fox -n 12 --temp 0.9 -s 5 --ignore-eos -dev cpu --record %s",
             path);
    expect(run_with(words, ""), 0, "", "");
    snprintf(words, sizeof words, "verify -m @ --replay %s -dev cpu --speculate always -b 3", path);
    expect(run_with(words, ""), 0, "12 tokens, the same as in the record", "");
    close(fd); // of the file that the record has replaced
    fd = open(path, O_RDWR);
    assert_true(pread(fd, text, sizeof text - 1, 0) > 0);
    char *answer = strstr(text, "\"answer\": [");
    assert_non_null(answer);
    answer = strchr(answer, ',') + 2; // token 1
    answer[0] = answer[0] == '1' ? '2' : '1';
    assert_int_equal(pwrite(fd, text, strlen(text), 0), (long)strlen(text));
    expect(run_with(words, ""), 1, "token 1 of the answer, at position ", "");
    char *hash = strstr(text, "\"model_hash\": \"") + strlen("\"model_hash\": \"");
    hash[0] = hash[0] == '1' ? '2' : '1';
    assert_int_equal(pwrite(fd, text, strlen(text), 0), (long)strlen(text));
    expect(run_with(words, ""), 1, "", "the record is of other weights");
    assert_int_equal(ftruncate(fd, 30), 0);
    expect(run_with(words, ""), 1, "", "want a record as ingot run --record writes it");
    assert_int_equal(pwrite(fd, "{}", 3, 0), 3);
    assert_int_equal(ftruncate(fd, 2), 0);
    expect(run_with(words, ""), 1, "", "not a record as ingot run --record writes it");
    close(fd);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_and_help_are_results),
        cmocka_unit_test(wrong_usage_is_status_2),
        cmocka_unit_test(a_record_is_replayed),
        cmocka_unit_test(what_follows_run_is_a_model),
        cmocka_unit_test(messages_name_flags),
        cmocka_unit_test(a_models_name_does_not_drive_the_terminal),
        cmocka_unit_test(a_pasted_command_line_runs),
        cmocka_unit_test(too_many_threads_are_not_taken),
        cmocka_unit_test(a_seed_is_random_and_printed),
        cmocka_unit_test(errors_name_the_file_and_are_status_1),
        cmocka_unit_test(the_answer_goes_to_stdout_and_figures_to_stderr),
        cmocka_unit_test(same_seed_same_answer_from_every_source),
        cmocka_unit_test(a_processor_can_be_taken_for_a_smaller_one),
        cmocka_unit_test(json_lines_parse_and_add_up),
        cmocka_unit_test(an_answer_follows_its_grammar),
        cmocka_unit_test(a_closed_pipe_ends_quietly),
        cmocka_unit_test(a_full_disk_is_an_error),
        cmocka_unit_test(ctrl_c_stops_the_answer),
        cmocka_unit_test(sigterm_leaves_no_half_file),
        cmocka_unit_test(a_file_that_is_cut_short_is_told),
        cmocka_unit_test(completions_and_man_page_parse),
        cmocka_unit_test(json_outputs_parse),
        cmocka_unit_test(bench_speaks_llama_bench),
        cmocka_unit_test(mixtures_are_told_by_what_a_token_uses),
        cmocka_unit_test(bench_runs_peers_in_turn),
        cmocka_unit_test(serve_comes_to_the_point),
        cmocka_unit_test(the_address_is_told_at_every_level),
        cmocka_unit_test(models_are_written_and_verified),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
