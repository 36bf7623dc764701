// test_serve_families.c - tools through the templates of model families: the shipped model with another family's template, and with
// that family's mark as a control token, has to call a tool, whole and as a stream, and hears of the result.
#include <sys/stat.h>
#include "base/file.h"
#include "server/shared.h"

#define MODEL SOURCE_DIR "/models/ingot-7m/"
#define CHAT  "/v1/chat/completions"

static char folder[] = "/tmp/ingot-family-XXXXXX";

static void put(const char *name, struct str text)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text.at, 1, text.n, file), text.n);
    fclose(file);
}

// The file, with the mark instead of one control token of the model's.
static void put_with_mark(const char *name, const char *mark)
{
    static const char token[] = "<|endoftext|>";
    struct buf from = { 0 }, to = { 0 };
    struct err err = { 0 };
    char path[256];

    snprintf(path, sizeof path, MODEL "%s", name);
    assert_ok(file_read(&from, path, 1 << 20, &err), &err);
    struct str rest = buf_as_str(&from);
    for (size_t i; mark && (i = str_find(rest, str_from(token))) != SIZE_MAX;) {
        buf_str(&to, str_from_to(rest, 0, i));
        buf_text(&to, mark);
        rest = str_from_to(rest, i + strlen(token), rest.n);
    }
    buf_str(&to, rest);
    put(name, buf_as_str(&to));
    buf_free(&from);
    buf_free(&to);
}

static void make_model(const char *family, const char *mark)
{
    static const char *const linked[] = { "config.json", "generation_config.json", "model-00001-of-00002.safetensors",
                                          "model-00002-of-00002.safetensors", "model.safetensors.index.json" };
    struct buf template = { 0 };
    struct err err = { 0 };
    char from[256], to[256];

    for (size_t i = 0; i < sizeof linked / sizeof *linked; i++) {
        snprintf(from, sizeof from, MODEL "%s", linked[i]);
        snprintf(to, sizeof to, "%s/%s", folder, linked[i]);
        unlink(to);
        assert_int_equal(symlink(from, to), 0);
    }
    put_with_mark("tokenizer.json", mark);
    put_with_mark("tokenizer_config.json", mark);
    snprintf(from, sizeof from, SOURCE_DIR "/tests/golden/templates/%s.jinja", family);
    assert_ok(file_read(&template, from, 1 << 20, &err), &err);
    struct str text_of = buf_as_str(&template);
    for (size_t i; (i = str_find(text_of, STR("think>"))) != SIZE_MAX;) // this small model would never end its reasoning
        memcpy(template.at + i, "other>", 6);
    put("chat_template.jinja", text_of);
    buf_free(&template);
}

#define TOOLS                                                                                                                \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"description\":\"Tells "                          \
    "it.\",\"parameters\":{\"type\":"                                                                                        \
    "\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"enum\":[\"Rome\",\"Oslo\"]},\"days\":{\"type\":\"integer\"," \
    "\"minimum\":1,\"maximum\":7}},\"required\":[\"city\",\"days\"]}}}],\"parallel_tool_calls\":false"
#define ASKS                                                      \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Weather in " \
    "Rome?\"}],\"seed\":3,\"max_tokens\":300,\"tool_choice\":"    \
    "\"required\"," TOOLS

static void check_arguments(const char *family, const char *arguments)
{
    json_t *value = json_loads(arguments, 0, NULL);
    json_int_t days = json_integer_value(json_object_get(value, "days"));

    if (!value || (strcmp(text(value, "city"), "Rome") != 0 && strcmp(text(value, "city"), "Oslo") != 0) || days < 1 || days > 7)
        fail_msg("%s: arguments %s", family, arguments);
    json_decref(value);
}

// Joins a stream's pieces of arguments; *n counts them.
static void join_arguments(const char *events, struct buf *joined, size_t *n)
{
    for (const char *line = strstr(events, "data: {"); line; line = strstr(line + 1, "data: {")) {
        json_t *event = json_loadb(line + 6, strcspn(line + 6, "\n"), 0, NULL);
        const char *piece = text(event, "choices.0.delta.tool_calls.0.function.arguments");
        buf_text(joined, piece);
        *n += *piece != 0;
        json_decref(event);
    }
}

static void a_family_calls(const char *family, const char *mark)
{
    const char *args[] = { "-m", folder, NULL };
    struct buf events = { 0 }, joined = { 0 };
    size_t n = 0;

    make_model(family, mark);
    shared = serve_start(args);
    json_t *r = post(CHAT, ASKS "}");
    const char *arguments = text(r, "choices.0.message.tool_calls.0.function.arguments");
    if (strcmp(text(r, "choices.0.finish_reason"), "tool_calls") != 0)
        fail_msg("%s: no call: %s", family, json_dumps(r, 0));
    assert_string_equal(text(r, "choices.0.message.tool_calls.0.function.name"), "weather");
    check_arguments(family, arguments);
    struct response s = http_post(shared.port, CHAT, ASKS ",\"stream\":true}");
    response_unchunk(&s, &events);
    join_arguments(events.at, &joined, &n);
    assert_string_equal(joined.at, arguments);
    assert_true(n > 2);
    json_decref(r);
    r = post(
        CHAT,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Weather?\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":["
        "{\"id\":\"call_0123456789abcdef\",\"type\":\"function\",\"function\":{\"name\":\"weather\",\"arguments\":"
        "\"{\\\"city\\\":\\\"Rome\\\"}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"call_0123456789abcdef\",\"content\":"
        "\"sunny\"}],\"max_tokens\":2," TOOLS "}");
    json_decref(r);
    buf_free(&events);
    buf_free(&joined);
    response_free(&s);
    assert_int_equal(serve_stop(&shared), 0);
    shared.pid = 0;
}

static void families_call_in_their_own_form(void **state)
{
    static const struct {
        const char *family, *mark; // NULL: marks are text
    } families[] = { { "qwen2.5", NULL },     { "qwen3.5", NULL },      { "glm4", NULL },     { "mistral-tools", "[TOOL_CALLS]" },
                     { "devstral", NULL },    { "devstral", "[ARGS]" }, { "deepseek", NULL }, { "deepseek", "<｜tool▁sep｜>" },
                     { "llama3-tools", NULL } };

    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        a_family_calls(families[i].family, families[i].mark);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = { "config.json",
                                         "generation_config.json",
                                         "model-00001-of-00002.safetensors",
                                         "model-00002-of-00002.safetensors",
                                         "model.safetensors.index.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json",
                                         "chat_template.jinja" };
    char path[256];

    (void)state;
    if (shared.pid > 0) // after a failure
        serve_stop(&shared);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(families_call_in_their_own_form) };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
