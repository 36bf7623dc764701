// test_hostile_embedders.c - keys and folders of embedding models that lie: refused in one line, or harmless.
#include <stdlib.h>
#include <unistd.h>
#include "base/file.h"
#include "ingot.h"
#include "testing.h"

#define GOLDEN SOURCE_DIR "/tests/golden/"

static const char *const folders[] = { "embed-bert",  "embed-nomic", "embed-gemma",
                                       "embed-qwen3", "rerank-bge",  "rerank-qwen3" };

static void write_bytes(const char *path, struct str bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes.at, 1, bytes.n, file), bytes.n);
    assert_int_equal(fclose(file), 0);
}

// Opens the model and makes an embedding and a score. False: it did not open, and *error says why.
static bool try_model(const char *path, struct ingot_error *error)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_request_options r = ingot_request_defaults();
    const uint32_t tokens[] = { 1, 2, 3, 4, 5, 6, 7 };

    o.model = path;
    o.device = "cpu";
    o.n_threads = 1;
    struct ingot_engine *engine = ingot_engine_open(&o, error);
    if (!engine) {
        if (strchr(error->message, '\n') || strlen(error->message) < 20)
            fail_msg("no clear line: '%s'", error->message);
        return false;
    }
    r.tokens = tokens;
    r.n_tokens = 7;
    r.embed = INGOT_EMBED_MODEL;
    ingot_generate(engine, &r, NULL, NULL, NULL, error); // an error is an answer too; a crash is none
    r.embed = INGOT_EMBED_RANK;
    ingot_generate(engine, &r, NULL, NULL, NULL, error);
    ingot_engine_close(engine);
    return true;
}

static void every_size_may_lie(void **state)
{
    static const char *const parts[] = {
        ".context_length",           ".embedding_length",     ".block_count",
        ".feed_forward_length",      ".attention.head_count", ".pooling_type",
        ".attention.sliding_window", ".dense_2_feat_out"
    };
    static const uint32_t values[] = { 0, 1, 2, 5, 7, 29, 31, 64, 65537, 0x7fffffff, 0xffffffff };
    char path[] = "/tmp/ingot-hostile-XXXXXX", file[512];

    (void)state;
    close(mkstemp(path));
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        struct buf image = { 0 };
        struct err err = { 0 };
        snprintf(file, sizeof file, GOLDEN "%s/model.gguf", folders[f]);
        assert_ok(file_read(&image, file, 1 << 24, &err), &err);
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            size_t key = str_find(buf_as_str(&image), str_from(parts[k]));
            if (key == SIZE_MAX)
                continue;
            char *at = image.at + key + strlen(parts[k]) + 4;
            uint32_t kept;
            memcpy(&kept, at, 4);
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                struct ingot_error error = { 0 };
                memcpy(at, &values[v], 4);
                write_bytes(path, buf_as_str(&image));
                try_model(path, &error);
            }
            memcpy(at, &kept, 4);
        }
        buf_free(&image);
    }
    unlink(path);
}

// A value in model.gguf of the folder; the model must be refused with these words.
static void refused(const char *folder, const char *key, uint32_t value, const char *words)
{
    char path[] = "/tmp/ingot-hostile-XXXXXX", file[512];
    struct buf image = { 0 };
    struct err err = { 0 };
    struct ingot_error error = { 0 };

    close(mkstemp(path));
    snprintf(file, sizeof file, GOLDEN "%s/model.gguf", folder);
    assert_ok(file_read(&image, file, 1 << 24, &err), &err);
    size_t at = str_find(buf_as_str(&image), str_from(key));
    assert_true(at != SIZE_MAX);
    memcpy(image.at + at + strlen(key) + 4, &value, strstr(key, "causal") ? 1 : 4);
    write_bytes(path, buf_as_str(&image));
    assert_false(try_model(path, &error));
    if (!strstr(error.message, words))
        fail_msg("%s: '%s' lacks '%s'", key, error.message, words);
    unlink(path);
    buf_free(&image);
}

static void lies_are_told(void **state)
{
    (void)state;
    refused("embed-bert", "bert.pooling_type", 5, "pooling_type is 5");
    refused("embed-bert", "bert.attention.causal", 1, "as encoders");
    refused("embed-nomic", "nomic-bert.attention.causal", 1, "as encoders");
    refused("embed-bert", "bert.feed_forward_length", 47, "ffn_up");
    refused("embed-nomic", "nomic-bert.attention.head_count", 5, "head");
}

// A folder with one file replaced.
static void folder_refused(const char *folder, const char *name, const char *text, const char *words)
{
    char path[] = "/tmp/ingot-folder-XXXXXX", command[1024], file[512];
    struct ingot_error error = { 0 };

    assert_non_null(mkdtemp(path));
    snprintf(command, sizeof command, "cp -r " GOLDEN "%s/* %s/ && rm %s/model.gguf", folder, path, path);
    assert_int_equal(system(command), 0);
    snprintf(file, sizeof file, "%s/%s", path, name);
    write_bytes(file, str_from(text));
    assert_false(try_model(path, &error));
    if (!strstr(error.message, words) || strchr(error.message, '\n'))
        fail_msg("%s: '%s' lacks '%s'", name, error.message, words);
    snprintf(command, sizeof command, "rm -r %s", path);
    assert_int_equal(system(command), 0);
}

static void folders_are_read_with_care(void **state)
{
    (void)state;
    folder_refused("embed-bert", "1_Pooling/config.json", "{\"pooling_mode_max_tokens\": true}", "max");
    folder_refused("embed-bert", "1_Pooling/config.json",
                   "{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": true}",
                   "beside another");
    folder_refused("embed-bert", "1_Pooling/config.json", "{\"pooling_mode_cls_token\": 7}", "true or false");
    folder_refused("embed-bert", "1_Pooling/config.json", "{", "config.json");
    folder_refused("embed-gemma", "2_Dense/model.safetensors", "junk", "2_Dense/model.safetensors");
    folder_refused("embed-gemma", "2_Dense/config.json",
                   "{\"activation_function\": \"torch.nn.modules.activation.Tanh\"}", "Tanh");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_size_may_lie), cmocka_unit_test(lies_are_told),
                                        cmocka_unit_test(folders_are_read_with_care) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
