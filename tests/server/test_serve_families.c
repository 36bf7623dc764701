// test_serve_families.c - tools through the templates of model families: the shipped model with another
// family's template, and with that family's mark as a control token, has to call a tool, whole and as a
// stream, and hears of the result.
#include "server/model_folder.h"
#include "server/shared.h"

#define CHAT "/v1/chat/completions"

static char folder[] = "/tmp/ingot-family-XXXXXX";

static void make_model(const char *family, const char *mark)
{
    const struct token_name name = { "<|endoftext|>", mark };
    struct buf template = { 0 };
    struct err err = { 0 };
    char from[256];

    snprintf(from, sizeof from, SOURCE_DIR "/tests/golden/templates/%s.jinja", family);
    assert_ok(file_read(&template, from, 1 << 20, &err), &err);
    struct str text_of = buf_as_str(&template);
    // this small model would never end its reasoning
    for (size_t i; (i = str_find(text_of, STR("think>"))) != SIZE_MAX;)
        memcpy(template.at + i, "other>", 6);
    model_folder_make(folder, &name, mark != NULL, text_of);
    buf_free(&template);
}

#define TOOLS                                                                                           \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"description\":\"Tells "     \
    "it.\",\"parameters\":{\"type\":"                                                                   \
    "\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"enum\":[\"Rome\",\"Oslo\"]},\"days\":{" \
    "\"type\":\"integer\","                                                                             \
    "\"minimum\":1,\"maximum\":7}},\"required\":[\"city\",\"days\"]}}}],\"parallel_tool_calls\":false"
#define ASKS                                                      \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Weather in " \
    "Rome?\"}],\"seed\":3,\"max_tokens\":300,\"tool_choice\":"    \
    "\"required\"," TOOLS

static void check_arguments(const char *family, const char *arguments)
{
    json_t *value = json_loads(arguments, 0, NULL);
    json_int_t days = json_integer_value(json_object_get(value, "days"));

    if (!value || (strcmp(text(value, "city"), "Rome") != 0 && strcmp(text(value, "city"), "Oslo") != 0) ||
        days < 1 || days > 7)
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
    r = post(CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"Weather?\"},{\"role\":\"assistant\","
                   "\"content\":null,\"tool_calls\":["
                   "{\"id\":\"call_0123456789abcdef\",\"type\":\"function\",\"function\":{\"name\":"
                   "\"weather\",\"arguments\":"
                   "\"{\\\"city\\\":\\\"Rome\\\"}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"call_"
                   "0123456789abcdef\",\"content\":"
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
    } families[] = { { "qwen2.5", NULL },
                     { "qwen3.5", NULL },
                     { "glm4", NULL },
                     { "mistral-tools", "[TOOL_CALLS]" },
                     { "devstral", NULL },
                     { "devstral", "[ARGS]" },
                     { "deepseek", NULL },
                     { "deepseek", "<｜tool▁sep｜>" },
                     { "llama3-tools", NULL },
                     { "gemma4", NULL },
                     { "gemma4", "<|tool_call>" },
                     { "granite3", NULL },
                     { "granite3", "<|tool_call|>" },
                     { "olmo3", NULL },
                     { "olmo3", "<function_calls>" },
                     { "glm4-0414", NULL },
                     { "glm4-0414", "<|assistant|>" },
                     { "lfm2", NULL },
                     { "lfm2", "<|tool_call_start|>" } };

    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        a_family_calls(families[i].family, families[i].mark);
}

// GLM-4-0414's template shows no tool_calls and no role tool, but the same as it names them.
static void earlier_calls_are_turns_of_their_own(void **state)
{
    const char *args[] = { "-m", folder, NULL };
    static const char wanted[] =
        "<|user|>\nWeather?<|assistant|>\nI look.<|assistant|>weather\n{\"city\":\"Rome\"}"
        "<|observation|>\nsunny<|assistant|>";

    (void)state;
    make_model("glm4-0414", NULL);
    shared = serve_start(args);
    json_t *r =
        post("/apply-template",
             "{\"messages\":[{\"role\":\"user\",\"content\":\"Weather?\"},{\"role\":\"assistant\","
             "\"content\":\"I look.\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
             "\"name\":\"weather\",\"arguments\":\"{\\\"city\\\":\\\"Rome\\\"}\"}}]},{\"role\":\"tool\","
             "\"tool_call_id\":\"c\",\"content\":\"sunny\"}]," TOOLS "}");
    const char *prompt = text(r, "prompt"), *found = strstr(prompt, "<|user|>");
    if (!found || strcmp(found, wanted) != 0)
        fail_msg("%s", prompt);
    json_decref(r);
    assert_int_equal(serve_stop(&shared), 0);
    shared.pid = 0;
}

// A grammar makes the model write what a model of the family would.
static void a_family_thinks(const char *marks, const char *mark, const char *answer)
{
    const char *args[] = { "-m", folder, NULL };
    const struct token_name name = { "<|endoftext|>", mark };
    char template[256], ask[512];
    struct buf events = { 0 }, thoughts = { 0 }, said = { 0 };

    snprintf(template, sizeof template, "{%% for m in messages %%}{{ m.content }}\n{%% endfor %%}{# %s #}",
             marks);
    model_folder_make(folder, &name, mark != NULL, str_from(template));
    shared = serve_start(args);
    snprintf(ask, sizeof ask,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"Two?\"}],\"max_tokens\":60,\"grammar\":"
             "\"root ::= %s\"",
             answer);
    struct buf whole = { 0 };
    buf_printf(&whole, "%s}", ask);
    json_t *r = post(CHAT, whole.at);
    assert_string_equal(text(r, "choices.0.message.reasoning_content"), "Hm, 1+1.");
    assert_string_equal(text(r, "choices.0.message.content"), "Two.");
    json_decref(r);
    whole.n = 0;
    buf_printf(&whole, "%s,\"stream\":true}", ask);
    struct response s = http_post(shared.port, CHAT, whole.at);
    response_unchunk(&s, &events);
    for (const char *line = strstr(events.at, "data: {"); line; line = strstr(line + 1, "data: {")) {
        json_t *event = json_loadb(line + 6, strcspn(line + 6, "\n"), 0, NULL);
        buf_text(&thoughts, text(event, "choices.0.delta.reasoning_content"));
        buf_text(&said, text(event, "choices.0.delta.content"));
        json_decref(event);
    }
    assert_string_equal(buf_as_str(&thoughts).at, "Hm, 1+1.");
    assert_string_equal(buf_as_str(&said).at, "Two.");
    buf_free(&whole);
    buf_free(&events);
    buf_free(&thoughts);
    buf_free(&said);
    response_free(&s);
    assert_int_equal(serve_stop(&shared), 0);
    shared.pid = 0;
}

static void families_think_between_their_own_marks(void **state)
{
    (void)state;
    a_family_thinks("<think></think>", NULL, "\\\"<think>\\\\nHm, 1+1.\\\\n</think>\\\\n\\\\nTwo.\\\"");
    a_family_thinks("[THINK][/THINK]", NULL, "\\\"[THINK]Hm, 1+1.[/THINK]Two.\\\"");
    a_family_thinks("<|channel>thought<channel|>", NULL,
                    "\\\"<|channel>thought\\\\nHm, 1+1.\\\\n<channel|>Two.\\\"");
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    if (shared.pid > 0) // after a failure
        serve_stop(&shared);
    return model_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(families_call_in_their_own_form),
                                        cmocka_unit_test(earlier_calls_are_turns_of_their_own),
                                        cmocka_unit_test(families_think_between_their_own_marks) };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
