// test_serve_adapters.c - LoRA adapters behind HTTP: a request names one behind the model's name, in every
// API; the lists name them; the answer says whose it is.
#include "adapter_file.h"
#include "server/shared.h"

#define FOX    "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a story about a fox.\"}]"
#define GREEDY "\"temperature\":0,\"max_tokens\":12"

static char folder[] = "/tmp/ingot-serve-adapters-XXXXXX";

static int start_with_adapters(void **state)
{
    static char path[2][96], option[2][128];
    static const char *const args[] = { "-np",     "4",      "-a",      "toy", "--lora",
                                        option[0], "--lora", option[1], NULL };

    (void)state;
    if (!mkdtemp(folder))
        return -1;
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s.gguf", folder, i ? "second" : "first");
        adapter_write_builtin(path[i], i + 1);
    }
    snprintf(option[0], sizeof option[0], "%s:0.5", path[0]);
    snprintf(option[1], sizeof option[1], "other=%s", path[1]);
    shared = serve_start(args);
    return 0;
}

static int stop_and_remove(void **state)
{
    shell("rm -r %s", folder);
    return stop(state);
}

// The answer's text and the model that it names.
struct adapted_chat {
    char text[512], model[64];
};

static struct adapted_chat chat(const char *model)
{
    struct adapted_chat t;
    char body[512];

    snprintf(body, sizeof body, "{\"model\":\"%s\"," FOX "," GREEDY "}", model);
    json_t *r = post("/v1/chat/completions", body);
    snprintf(t.text, sizeof t.text, "%s", text(r, "choices.0.message.content"));
    snprintf(t.model, sizeof t.model, "%s", text(r, "model"));
    json_decref(r);
    return t;
}

static void a_model_is_named_with_its_adapter(void **state)
{
    (void)state;
    struct adapted_chat base = chat("toy"), first = chat("toy:first"), other = chat("toy:other"),
                        alone = chat("other"), latest = chat("toy:first:latest");
    assert_string_equal(base.model, "toy");
    assert_string_equal(first.model, "toy:first");
    assert_string_equal(alone.model, "toy:other");
    assert_string_equal(latest.model, "toy:first");
    assert_string_not_equal(base.text, first.text);
    assert_string_not_equal(base.text, other.text);
    assert_string_not_equal(first.text, other.text);
    assert_string_equal(other.text, alone.text);
    assert_string_equal(first.text, latest.text);
    assert_string_equal(chat("toy:latest").text, base.text);
    assert_string_equal(chat("default:first").text, first.text);
}

static void every_api_takes_it(void **state)
{
    struct adapted_chat first = chat("toy:first");

    (void)state;
    json_t *r = post("/api/chat", "{\"model\":\"toy:first\"," FOX
                                  ",\"stream\":false,\"options\":{\"temperature\":0,\"num_predict\":12}}");
    assert_string_equal(text(r, "message.content"), first.text);
    assert_string_equal(text(r, "model"), "toy:first");
    json_decref(r);
    r = post("/v1/messages", "{\"model\":\"toy:first\"," FOX "," GREEDY "}");
    assert_string_equal(text(r, "content.0.text"), first.text);
    assert_string_equal(text(r, "model"), "toy:first");
    json_decref(r);
    r = post("/v1/responses", "{\"model\":\"toy:first\",\"input\":\"Tell me a story about a "
                              "fox.\",\"temperature\":0,\"max_output_tokens\":16}");
    assert_string_equal(text(r, "model"), "toy:first");
    json_decref(r);
    json_t *plain = post("/v1/embeddings", "{\"model\":\"toy\",\"input\":\"a fox\"}"),
           *adapted = post("/v1/embeddings", "{\"model\":\"toy:other\",\"input\":\"a fox\"}");
    assert_true(json_real_value(at(plain, "data.0.embedding.0")) !=
                json_real_value(at(adapted, "data.0.embedding.0")));
    json_decref(plain);
    json_decref(adapted);
}

static void lists_name_them(void **state)
{
    int status;

    (void)state;
    json_t *models = reply_of("/v1/models", NULL, &status), *tags = reply_of("/api/tags", NULL, &status);
    assert_int_equal(json_array_size(at(models, "data")), 3);
    assert_string_equal(text(models, "data.0.id"), "toy");
    assert_string_equal(text(models, "data.1.id"), "toy:first");
    assert_string_equal(text(models, "data.2.id"), "toy:other");
    assert_int_equal(json_array_size(at(tags, "models")), 3);
    assert_string_equal(text(tags, "models.2.name"), "toy:other");
    json_decref(models);
    json_decref(tags);
    json_t *one = reply_of("/v1/models/toy:other", NULL, &status);
    assert_int_equal(status, 200);
    assert_string_equal(text(one, "id"), "toy:other");
    json_decref(one);
    json_decref(reply_of("/v1/models/toy:none", NULL, &status));
    assert_int_equal(status, 404);
    json_decref(post("/api/show", "{\"model\":\"toy:first\"}"));
}

static void an_adapter_that_is_not_here_is_an_error(void **state)
{
    int status;

    (void)state;
    json_t *r = reply_of("/v1/chat/completions", "{\"model\":\"toy:none\"," FOX "," GREEDY "}", &status);
    assert_int_equal(status, 400);
    assert_string_equal(text(r, "error.message"),
                        "model: adapter 'none' is not here; GET /v1/models lists what is");
    assert_string_equal(text(r, "error.param"), "model");
    json_decref(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_named_with_its_adapter),
        cmocka_unit_test(every_api_takes_it),
        cmocka_unit_test(lists_name_them),
        cmocka_unit_test(an_adapter_that_is_not_here_is_an_error),
    };
    return cmocka_run_group_tests(tests, start_with_adapters, stop_and_remove);
}
