// test_hub_names.c - what a model's name means: its parts, and which files of a repository it chooses.
#include "testing.h"
#include "hub/hub_files.h"

static void names_have_parts(void **state)
{
    static const struct {
        const char *text, *repo, *quant, *revision;
    } good[] = {
        { "user/repo", "user/repo", "", "main" },
        { "user/repo:Q4_K_M", "user/repo", "Q4_K_M", "main" },
        { "user/repo@v1.0", "user/repo", "", "v1.0" },
        { "us-er/Re.po_2-7B:sub/a.gguf@refs/pr/3", "us-er/Re.po_2-7B", "sub/a.gguf", "refs/pr/3" },
        { "https://huggingface.co/user/repo:Q8_0", "user/repo", "Q8_0", "main" },
        { "hf.co/user/repo", "user/repo", "", "main" },
    };
    struct hub_name name;
    struct err err;
    (void)state;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_ok(hub_name_read(&name, good[i].text, &err), &err);
        assert_string_equal(name.repo, good[i].repo);
        assert_string_equal(name.quant, good[i].quant);
        assert_string_equal(name.revision, good[i].revision);
    }
}

static void what_is_no_name_is_refused(void **state)
{
    static const char *const bad[] = { "",       "repo",  "a/b/c",    "../b",     "a/..",       "/a/b",
                                       "a/b:",   "a/b@",  "a/b@../x", "a/b:../x", "a/b:x/../y", "a--b/c",
                                       "-a/b",   "a/b.",  "a b/c",    "a/b:q\nx", "a/b@a b",    "a/b@/x",
                                       "a\\b/c", "./a/b", "a/b@x//y", "~/b",      "a/b:x\\y",   "a..b/c" };
    struct hub_name name;
    struct err err;
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (hub_name_read(&name, bad[i], &err))
            fail_msg("'%s' was taken for a name", bad[i]);
        assert_int_equal(err.code, ERR_INPUT);
    }
    assert_true(hub_name_like("user/repo"));
    assert_false(hub_name_like("models/model.gguf"));
    assert_false(hub_name_like("model.gguf"));
}

struct chooser {
    struct arena *arena;
    struct hub_file at[32];
    struct hub_files files;
    struct hub_models models;
};

// paths: separated by spaces; file number i has i + 1 bytes.
static void chooser_open(struct chooser *c, const char *paths)
{
    static char copy[2048];
    struct err err;

    *c = (struct chooser){ .arena = arena_create(1 << 20) };
    assert_non_null(c->arena);
    snprintf(copy, sizeof copy, "%s", paths);
    c->files.at = c->at;
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        c->at[c->files.n].bytes = c->files.n + 1;
        c->at[c->files.n++].path = arena_str(c->arena, str_from(word));
    }
    hub_files_sort(&c->files);
    assert_ok(hub_models_find(&c->files, &c->models, c->arena, &err), &err);
}

// The files that a name chooses, in their order, separated by spaces; or the message.
static const char *chosen(const char *paths, const char *text)
{
    static char out[1024];
    struct chooser c;
    struct hub_name name;
    struct err err;
    size_t n = 0;

    chooser_open(&c, paths);
    assert_ok(hub_name_read(&name, text, &err), &err);
    const struct hub_model *m = hub_models_choose(&c.files, &c.models, &name, &err);
    snprintf(out, sizeof out, "%s", m ? "" : err.message);
    for (size_t i = 0; m && i < m->n_files; i++) {
        struct str path = c.files.at[m->files[i]].path;
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%.*s", i ? " " : "", STR_ARG(path));
    }
    arena_destroy(c.arena);
    return out;
}

static void the_quant_chooses_a_file(void **state)
{
    static const char all[] = "README.md m-Q8_0.gguf m-Q4_K_M.gguf m.q5_k_s.gguf m-f16.gguf "
                              "m-UD-IQ2_XXS.gguf mmproj-m-F16.gguf imatrix.gguf";
    (void)state;

    assert_string_equal(chosen(all, "a/b"), "m-Q4_K_M.gguf");
    assert_string_equal(chosen(all, "a/b:q8_0"), "m-Q8_0.gguf");
    assert_string_equal(chosen(all, "a/b:Q5_K_S"), "m.q5_k_s.gguf");
    assert_string_equal(chosen(all, "a/b:F16"), "m-f16.gguf");
    assert_string_equal(chosen(all, "a/b:IQ2_XXS"), "m-UD-IQ2_XXS.gguf");
    assert_string_equal(chosen(all, "a/b:ud-iq2_xxs"), "m-UD-IQ2_XXS.gguf");
    assert_string_equal(chosen(all, "a/b:m-Q8_0.gguf"), "m-Q8_0.gguf");
    assert_string_equal(chosen("m-Q4_K_M.gguf m-UD-Q4_K_M.gguf", "a/b:Q4_K_M"), "m-Q4_K_M.gguf");
    assert_string_equal(chosen("m-Q8_0.gguf", "a/b"), "m-Q8_0.gguf");
    assert_string_equal(chosen("m_Q6_K.gguf x-7b.gguf", "a/b:Q6_K"), "m_Q6_K.gguf");
}

static void what_is_not_there_is_answered_with_a_list(void **state)
{
    (void)state;
    assert_string_equal(chosen("m-Q8_0.gguf m-Q5_0.gguf", "a/b"),
                        "a/b: no Q4_K_M; there is Q5_0, Q8_0 (name one as a/b:QUANT)");
    assert_string_equal(chosen("m-Q8_0.gguf", "a/b:Q2_K"),
                        "a/b: no Q2_K; there is Q8_0 (name one as a/b:QUANT)");
    assert_string_equal(chosen("x-Q4_0.gguf y-Q4_0.gguf", "a/b:Q4_0"),
                        "a/b: more than one file is Q4_0; name one: x-Q4_0.gguf, y-Q4_0.gguf");
    assert_string_equal(chosen("README.md pytorch_model.bin", "a/b"),
                        "a/b: no GGUF file and no safetensors model is in it");
}

static void parts_of_a_split_model_stay_together(void **state)
{
    (void)state;
    assert_string_equal(
        chosen("q/m-Q8_0-00002-of-00002.gguf q/m-Q8_0-00001-of-00002.gguf m-Q4_0.gguf", "a/b:Q8_0"),
        "q/m-Q8_0-00001-of-00002.gguf q/m-Q8_0-00002-of-00002.gguf");
    assert_string_equal(chosen("m-Q8_0-00001-of-00003.gguf m-Q8_0-00003-of-00003.gguf", "a/b"),
                        "a/b: parts of m-Q8_0-00001-of-00003.gguf are missing");
    assert_string_equal(chosen("m-Q8_0-00002-of-00002.gguf", "a/b"),
                        "a/b: no GGUF file and no safetensors model is in it");
}

static void a_safetensors_folder_comes_with_its_json_files(void **state)
{
    (void)state;
    assert_string_equal(chosen("README.md config.json model.safetensors tokenizer.json x/y.json "
                               "chat_template.jinja consolidated.safetensors",
                               "a/b"),
                        "model.safetensors chat_template.jinja config.json tokenizer.json");
    assert_string_equal(
        chosen("1_Pooling/config.json 2_Dense/config.json 2_Dense/model.safetensors config.json "
               "model.safetensors onnx/config.json",
               "a/b"),
        "model.safetensors 1_Pooling/config.json 2_Dense/config.json "
        "2_Dense/model.safetensors config.json");
    assert_string_equal(chosen("config.json model.safetensors.index.json model-00001-of-00002.safetensors "
                               "model-00002-of-00002.safetensors",
                               "a/b:safetensors"),
                        "model-00001-of-00002.safetensors model-00002-of-00002.safetensors config.json "
                        "model.safetensors.index.json");
    assert_string_equal(
        chosen("config.json model.safetensors.index.json model-00002-of-00002.safetensors", "a/b"),
        "a/b: parts of model-00002-of-00002.safetensors are missing");
    assert_string_equal(chosen("config.json model-00002-of-00002.safetensors", "a/b:safetensors"),
                        "a/b: parts of model-00002-of-00002.safetensors are missing");
    assert_string_equal(chosen("adapter_config.json adapter_model.safetensors", "a/b"),
                        "a/b: no GGUF file and no safetensors model is in it");
    assert_string_equal(chosen("config.json model.safetensors m-Q8_0.gguf", "a/b"), "m-Q8_0.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_parts),
        cmocka_unit_test(what_is_no_name_is_refused),
        cmocka_unit_test(the_quant_chooses_a_file),
        cmocka_unit_test(what_is_not_there_is_answered_with_a_list),
        cmocka_unit_test(parts_of_a_split_model_stay_together),
        cmocka_unit_test(a_safetensors_folder_comes_with_its_json_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
