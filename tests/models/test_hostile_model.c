// test_hostile_model.c - sizes that lie, tensors that do not fit: each is refused in one line that names it,
// or does no harm.
//
// A good file is taken and one value in it changed. Whatever opens must also run a token.
#include <stdlib.h>
#include <unistd.h>
#include "base/file.h"
#include "format/model_file.h"
#include "ingot.h"
#include "testing.h"

#define GOLDEN SOURCE_DIR "/tests/golden/"

struct file_image {
    struct buf bytes;
    char path[32];
};

static void image_load(struct file_image *image, const char *path)
{
    struct err err = { 0 };
    *image = (struct file_image){ .path = "/tmp/ingot-test-XXXXXX" };
    assert_ok(file_read(&image->bytes, path, 1 << 24, &err), &err);
    close(mkstemp(image->path));
}

static void image_free(struct file_image *image)
{
    unlink(image->path);
    buf_free(&image->bytes);
}

// Where the value of a key lies: behind the name and 4 bytes of type.
static unsigned char *value_of(struct file_image *image, const char *key)
{
    size_t at = str_find(buf_as_str(&image->bytes), str_from(key));
    if (at == SIZE_MAX)
        fail_msg("the file has no %s", key);
    return (unsigned char *)image->bytes.at + at + strlen(key) + 4;
}

static void write_image(const struct file_image *image)
{
    FILE *file = fopen(image->path, "wb");
    assert_int_equal(fwrite(image->bytes.at, 1, image->bytes.n, file), image->bytes.n);
    assert_int_equal(fclose(file), 0);
}

// Opens the changed file; if that works, generates a token. Returns whether it opened.
static bool open_and_run(const struct file_image *image, struct ingot_error *error)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    uint32_t token = 1;
    o.model = image->path;
    o.n_threads = 1;
    o.n_batch = 16;
    write_image(image);
    struct ingot_engine *engine = ingot_engine_open(&o, error);
    if (!engine) {
        if (strchr(error->message, '\n') || strlen(error->message) < 20)
            fail_msg("no clear line: '%s'", error->message);
        return false;
    }
    struct ingot_request_options r = ingot_request_defaults();
    r.tokens = &token;
    r.n_tokens = 1;
    r.max_tokens = 2;
    ingot_generate(engine, &r, NULL, NULL, NULL, error); // an error is an answer too; a crash is none
    ingot_engine_close(engine);
    return true;
}

static void every_size_may_lie(void **state)
{
    (void)state;
    static const char *const keys[] = { "llama.block_count",
                                        "llama.embedding_length",
                                        "llama.feed_forward_length",
                                        "llama.attention.head_count",
                                        "llama.attention.head_count_kv",
                                        "llama.attention.key_length",
                                        "llama.rope.dimension_count",
                                        "llama.vocab_size",
                                        "llama.context_length" };
    static const uint32_t values[] = {
        0, 1, 3, 7, 1u << 16, 1u << 24, 0x7fffffffu, 0x80000000u, 0xffffffffu
    };
    struct file_image image;
    image_load(&image, GOLDEN "llama3/model.gguf");
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        unsigned char *at = value_of(&image, keys[k]), good[4];
        memcpy(good, at, 4);
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            struct ingot_error error = { 0 };
            uint32_t before;
            memcpy(&before, good, 4);
            memcpy(at, &values[v], 4);
            bool opened = open_and_run(&image, &error);
            bool harmless = values[v] == before || strstr(keys[k], "context_length") ||
                            strstr(keys[k], "dimension_count");
            if (opened && !harmless)
                fail_msg("%s = %u was accepted", keys[k], values[v]);
            if (values[v] == 0 && opened)
                fail_msg("%s = 0 was accepted", keys[k]);
        }
        memcpy(at, good, 4);
    }
    image_free(&image);
}

static void every_number_may_be_none(void **state)
{
    (void)state;
    static const char *const keys[] = { "llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base" };
    // 0, NaN, inf, -inf, -1
    static const uint32_t values[] = { 0, 0x7fc00000u, 0x7f800000u, 0xff800000u, 0xbf800000u };
    struct file_image image;
    image_load(&image, GOLDEN "llama3/model.gguf");
    for (size_t k = 0; k < 2; k++) {
        unsigned char *at = value_of(&image, keys[k]), good[4];
        memcpy(good, at, 4);
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            struct ingot_error error = { 0 };
            memcpy(at, &values[v], 4);
            assert_false(open_and_run(&image, &error));
            assert_non_null(strstr(error.message, keys[k]));
        }
        memcpy(at, good, 4);
    }
    image_free(&image);
}

static void a_missing_tensor_is_named_with_its_shape(void **state)
{
    (void)state;
    struct file_image image;
    struct ingot_error error = { 0 };
    image_load(&image, GOLDEN "llama3/model.gguf");
    size_t at = str_find(buf_as_str(&image.bytes), STR("blk.1.ffn_up.weight"));
    memcpy(image.bytes.at + at, "blk.1.ffn_xx.weight", 19);
    assert_false(open_and_run(&image, &error));
    assert_non_null(strstr(error.message, "tensor blk.1.ffn_up.weight is missing; want [76, 72]"));
    image_free(&image);
}

static void a_misshapen_tensor_is_named_with_both_shapes(void **state)
{
    (void)state;
    struct file_image image;
    struct ingot_error error = { 0 };
    image_load(&image, GOLDEN "llama3/model.gguf");
    // Behind the name: number of dimensions, then the fastest first. Transposed, the bytes stay as many.
    unsigned char *at = (unsigned char *)image.bytes.at +
                        str_find(buf_as_str(&image.bytes), STR("blk.0.ffn_gate.weight")) + 21 + 4;
    uint64_t dims[2];
    memcpy(dims, at, 16);
    assert_true(dims[0] == 72 && dims[1] == 76);
    memcpy(at, &dims[1], 8);
    memcpy(at + 8, &dims[0], 8);
    assert_false(open_and_run(&image, &error));
    assert_non_null(strstr(error.message, "blk.0.ffn_gate.weight is [72, 76]"));
    assert_non_null(strstr(error.message, "needs [76, 72]"));
    image_free(&image);
}

static bool take_token(void *arg, const struct ingot_event *event)
{
    uint32_t *tokens = arg; // a count, then the tokens
    if (event->token != UINT32_MAX)
        tokens[1 + tokens[0]++] = event->token;
    return true;
}

// Token 5's embedding becomes NaN: who meets it gets an error, and a request beside it does not change by a
// bit.
static void logits_that_are_no_numbers_end_the_request_alone(void **state)
{
    (void)state;
    struct file_image image;
    struct err err = { 0 };
    struct model_file *file;
    struct ingot_engine_options o = ingot_engine_defaults();
    uint32_t good[3] = { 1, 2, 3 }, bad[3] = { 1, 5, 3 };
    image_load(&image, GOLDEN "llama3/model.gguf");
    assert_ok(model_file_open_memory(&file, image.bytes.at, image.bytes.n, "image", &err), &err);
    const struct file_tensor *embed = model_file_tensor(file, "token_embd.weight");
    memset((void *)(uintptr_t)(embed->data + 5 * embed->dims[1] * 4), 0xff, embed->dims[1] * 4);
    model_file_close(file);
    write_image(&image);
    o.model = image.path;
    o.n_sequences = 2;
    struct ingot_engine *engine = ingot_engine_open(&o, NULL);
    assert_non_null(engine);
    struct ingot_request_options r[2] = { ingot_request_defaults(), ingot_request_defaults() };
    r[0].tokens = good;
    r[1].tokens = bad;
    for (int i = 0; i < 2; i++) {
        r[i].n_tokens = 3;
        r[i].max_tokens = 5;
        r[i].sampling.temperature = 0;
    }
    uint32_t alone[8] = { 0 }, beside[8] = { 0 };
    assert_true(ingot_generate(engine, &r[0], take_token, alone, NULL, NULL));
    struct ingot_request *q[2] = { ingot_submit(engine, &r[0], NULL), ingot_submit(engine, &r[1], NULL) };
    bool busy = true;
    struct ingot_event event = { 0 };
    while (busy)
        assert_true(ingot_step(engine, &busy, NULL));
    while (ingot_poll(q[0], &event))
        take_token(beside, &event);
    assert_memory_equal(alone, beside, sizeof alone);
    while (ingot_poll(q[1], &event))
        ;
    assert_int_equal(event.result->finish, INGOT_FINISH_ERROR);
    assert_int_equal(event.result->error.code, INGOT_NUMERIC);
    assert_non_null(strstr(event.result->error.message, "NaN or infinity"));
    ingot_request_free(q[0]);
    ingot_request_free(q[1]);
    ingot_engine_close(engine);
    image_free(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_may_lie),
        cmocka_unit_test(every_number_may_be_none),
        cmocka_unit_test(a_missing_tensor_is_named_with_its_shape),
        cmocka_unit_test(a_misshapen_tensor_is_named_with_both_shapes),
        cmocka_unit_test(logits_that_are_no_numbers_end_the_request_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
