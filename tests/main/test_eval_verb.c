// test_eval_verb.c - ingot eval as a user calls it: tables, files that are kept and compared, what is
// refused, and nothing left behind.
#include <dirent.h>
#include "program.h"
#include "base/file.h"
#include "model_tools/logits_file.h"

static char text_path[128], logits_path[128], scratch[128];

static int make_files(void **state)
{
    make_home(state);
    snprintf(text_path, sizeof text_path, "%s/text", home);
    snprintf(logits_path, sizeof logits_path, "%s/logits", home);
    snprintf(scratch, sizeof scratch, "%s/scratch", home);
    write_file(
        text_path,
        "The fox and the owl went to the old oak, and there they dug. Inside there was a golden key.\n");
    return mkdir(scratch, 0700);
}

static bool is_empty(const char *path)
{
    DIR *d = opendir(path);
    uint32_t n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n == 2; // . and ..
}

// words: up to two %s, which are the text's and the logits' paths.
static void expect(const char *words, int status, const char *out_part, const char *err_part)
{
    char line[1024];

    snprintf(line, sizeof line, words, text_path, logits_path);
    struct outcome o = run_with(line, "");
    if (o.status != status || !strstr(o.out.at, out_part) || !strstr(o.err.at, err_part))
        fail_msg("%s: status %d, stdout '%s', stderr '%s'; expected %d, '%s', '%s'", line, o.status, o.out.at,
                 o.err.at, status, out_part, err_part);
    if (status == 1 && strchr(o.err.at, '\n') != o.err.at + o.err.n - 1)
        fail_msg("%s: '%s' is not one line", line, o.err.at);
    outcome_free(&o);
}

static void a_text_is_scored(void **state)
{
    (void)state;
    expect("eval @ -c 16 -f %s", 0, "5 chunks of 16 tokens, of which 7 each are scored", "");
    expect("eval @ -c 16 -f %s -o json --chunks 2", 0, "\"n_chunks\": 2", "");
    expect("eval @ -c 16 -f %s -o csv", 0, "kl_mean,", "");
}

static void what_cannot_be_scored_is_refused(void **state)
{
    (void)state;
    expect("eval @ -f /nowhere/text", 1, "", "/nowhere/text: ");
    expect("eval /nowhere/model.gguf -f %s", 1, "", "/nowhere/model.gguf: no such file");
    expect("eval @ -c 200 -f %s", 1, "",
           "the text has 91 tokens and a chunk 200; take a longer text, or -c 91");
    expect("eval @ -c 16", 2, "", "eval: there is no text; give one with -f, or through a pipe\n");
    expect("eval @ -f %s --types Q9", 2, "", "--types: found 'Q9'");
    expect("eval @ -f %s --kl %s", 2, "", "leave out -f");
    expect("eval @ --kl %s", 1, "", "text: these are no logits of ingot's");
    expect("eval @ -c 16 -f %s --svg /dev/null", 2, "", "--svg draws divergences");
    expect("eval @ -c 16 -f %s --types Q8_0 --scratch /nowhere", 1, "",
           "/nowhere: no folder can be made there");
    expect("eval @ -c 16 -f %s --save-logits /nowhere/logits", 1, "", "/nowhere/logits.part: cannot create");
}

// The same model in another process loses nothing.
static void logits_are_kept_and_compared(void **state)
{
    struct outcome o;
    (void)state;

    expect("eval @ -c 16 -f %s --save-logits %s", 0, "5 chunks", "");
    expect("eval @ --kl %2$s", 0, "100.00 %", "");
    expect("eval --kl %2$s", 1, "", "logits of a vocabulary of ");
    char line[256];
    snprintf(line, sizeof line, "eval @ --kl %s -o jsonl", logits_path);
    o = run_with(line, "");
    const char *kl = strstr(o.out.at, "\"kl_max\":"), *ratio = strstr(o.out.at, "\"perplexity_ratio\":");
    assert_true(kl && ratio && atof(kl + 9) < 1e-6 && atof(ratio + 19) > 0.999 && atof(ratio + 19) < 1.001);
    outcome_free(&o);
}

static void formats_are_compared_and_nothing_is_left(void **state)
{
    char line[512], svg[160];
    struct buf drawn = { 0 };
    struct err err = { 0 };
    (void)state;

    snprintf(svg, sizeof svg, "%s/loss.svg", home);
    snprintf(line, sizeof line,
             "eval @ -c 16 -f %s --types q8_0,BF16 --kv f32,bf16 --scratch %s --svg %s -o csv", text_path,
             scratch, svg);
    struct outcome o = run_with(line, "");
    uint32_t n_lines = 0;
    for (const char *c = o.out.at; *c; c++)
        n_lines += *c == '\n';
    if (o.status != 0)
        fail_msg("status %d: %s", o.status, o.err.at);
    assert_int_equal(n_lines, 1 + 1 + 3 * 2); // names, reference, (as it is, Q8_0, BF16) x (f32, bf16)
    assert_true(strstr(o.out.at, "\"reference\"") && strstr(o.out.at, "\"q8_0\"") && is_empty(scratch));
    assert_ok(file_read(&drawn, svg, 1 << 20, &err), &err);
    assert_true(!strncmp(drawn.at, "<svg", 4) && strstr(drawn.at, "<circle") && !strstr(drawn.at, "nan"));
    buf_free(&drawn);
    outcome_free(&o);
}

static void ctrl_c_takes_its_files_away(void **state)
{
    char line[512], long_path[160];
    struct buf text = { 0 };
    struct outcome o = { 0 };
    (void)state;

    while (text.n < 200000)
        buf_text(&text, "The fox and the owl went to the old oak, and there they dug. ");
    snprintf(long_path, sizeof long_path, "%s/long", home);
    write_file(long_path, text.at);
    snprintf(line, sizeof line, "eval @ -c 16 -f %s --types Q8_0 --scratch %s", long_path, scratch);
    struct running r = start(line, (struct streams){ -1, -1, -1 });
    while (is_empty(scratch))
        usleep(1000);
    kill(r.pid, SIGINT);
    collect(&r, &o);
    if (o.status != 130)
        fail_msg("status %d: %s", o.status, o.err.at);
    assert_true(is_empty(scratch) && strstr(o.err.at, "stopped"));
    outcome_free(&o);
    buf_free(&text);
}

static void a_closed_pipe_ends_it_quietly(void **state)
{
    char line[512];
    struct outcome o = { 0 };
    (void)state;

    snprintf(line, sizeof line, "eval @ -c 16 -f %s --types Q8_0,BF16 --scratch %s", text_path, scratch);
    struct running r = start(line, (struct streams){ -1, -1, -1 });
    close(r.out);
    r.out = open("/dev/null", O_RDONLY);
    collect(&r, &o);
    assert_true(o.status == 0 && o.err.n == 0 && is_empty(scratch));
    outcome_free(&o);
}

// As in llama-perplexity: BOS stands in the place of each chunk's first token.
static void bos_begins_each_chunk(void **state)
{
    char path[160];
    struct buf tokenizer = { 0 };
    struct logits_file f;
    struct err err = { 0 };
    (void)state;

    snprintf(path, sizeof path, "%s/tokenizer.json", model);
    assert_ok(file_read(&tokenizer, path, 1 << 20, &err), &err);
    char *processor = strstr(tokenizer.at, "\"post_processor\":null");
    assert_non_null(processor);
    struct buf with = { 0 };
    buf_append(&with, tokenizer.at, (size_t)(processor - tokenizer.at));
    buf_text(&with, "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
                    "\"id\":\"<|endoftext|>\",\"type_id\":0}},"
                    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<|"
                    "endoftext|>\":{\"id\":\"<|endoftext|>\","
                    "\"ids\":[256],\"tokens\":[\"<|endoftext|>\"]}}}");
    buf_text(&with, processor + strlen("\"post_processor\":null"));
    write_file(path, with.at);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", model);
    write_file(path, "{\"bos_token\":\"<|endoftext|>\",\"eos_token\":\"<|im_end|>\"}");
    expect("eval @ -c 16 -f %s --save-logits %s", 0, "5 chunks", "");
    assert_ok(logits_file_open(&f, logits_path, &err), &err);
    for (uint32_t i = 0; i < f.text.n_chunks * 16; i++)
        assert_true((f.text.tokens[i] == 256) == (i % 16 == 0));
    assert_true(f.text.tokens[1] == 'T' && f.text.tokens[2] == 'h'); // behind it all of the text's tokens
    logits_file_close(&f);
    buf_free(&tokenizer);
    buf_free(&with);
}

// The matrix of one process is what another quantises by; a dry run lists what would be, and leaves nothing.
static void models_are_quantised_by_importance(void **state)
{
    char line[512], matrix[160], out[160];
    (void)state;

    snprintf(matrix, sizeof matrix, "%s/imatrix.gguf", home);
    snprintf(out, sizeof out, "%s/out.gguf", home);
    snprintf(line, sizeof line, "imatrix @ -c 16 -f %s -o %s", text_path, matrix);
    expect(line, 0, "", "21 weights over 5 chunks of 16 tokens");
    snprintf(line, sizeof line,
             "quantize @ %s Q8_0 --imatrix %s --tensor-type attn_v=BF16 --dry-run --log error", out, matrix);
    expect(line, 1, "",
           "imatrix.gguf: none of its 21 entries is of a matrix that is quantised"); // rows of 72: F16
    snprintf(line, sizeof line,
             "quantize @ Q8_0 --tensor-type attn_v=BF16 --tensor-type blk.0=F32 --dry-run");
    expect(line, 0, "sum ", "nothing written: ");
    expect(line, 0, "BF16  ", "");
    assert_false(file_exists(out));
    expect("quantize @ Q8_0 --tensor-type BF16 --dry-run", 2, "", "expected PATTERN=TYPE");
    expect("imatrix @ -c 16 -f %s -o /nowhere/x", 1, "", "/nowhere/x.part: cannot create");
    expect("imatrix @ -c 200 -f %s -o /nowhere/x", 1, "",
           "/nowhere/x.part: cannot create"); // before it reads
    expect("imatrix @ -c 200 -f %s", 1, "", "the text has 91 tokens and a chunk 200");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_scored),
        cmocka_unit_test(what_cannot_be_scored_is_refused),
        cmocka_unit_test(logits_are_kept_and_compared),
        cmocka_unit_test(formats_are_compared_and_nothing_is_left),
        cmocka_unit_test(ctrl_c_takes_its_files_away),
        cmocka_unit_test(a_closed_pipe_ends_it_quietly),
        cmocka_unit_test(models_are_quantised_by_importance),
        cmocka_unit_test(bos_begins_each_chunk),
    };
    return cmocka_run_group_tests(tests, make_files, remove_home);
}
