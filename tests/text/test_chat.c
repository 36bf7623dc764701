// test_chat.c - conversations through a model's template: what requests hold is adapted to what the template
// takes.
#include "testing.h"
#include <jansson.h>
#include "base/file.h"
#include "base/log.h"
#include "text/template/chat.h"

static struct chat *open_chat(const char *name)
{
    struct chat_source source = { .bos_token = STR("<s>"), .eos_token = STR("</s>") };
    struct buf text = { 0 };
    struct chat *chat;
    struct err err = { 0 };
    char path[256];

    snprintf(path, sizeof path, "tests/golden/templates/%s.jinja", name);
    if (name[0])
        assert_ok(file_read(&text, path, 1 << 20, &err), &err);
    source.template_text = buf_as_str(&text);
    assert_ok(chat_create(&chat, &source, &err), &err);
    buf_free(&text);
    return chat;
}

// The prompt, or the error's message.
static const char *prompt(const struct chat *chat, const char *messages, const char *extra)
{
    static char result[4096];
    struct template_output out;
    struct err err = { 0 };
    json_t *list = json_loads(messages, 0, NULL);
    struct chat_options options = { .add_generation_prompt = true,
                                    .extra = extra ? json_loads(extra, 0, NULL) : NULL };

    assert_non_null(list);
    if (chat_render(chat, list, &options, &out, &err)) {
        snprintf(result, sizeof result, "%.*s", (int)out.text.n, out.text.at);
        template_output_free(&out);
    } else {
        snprintf(result, sizeof result, "%s", err.message);
    }
    json_decref(options.extra);
    json_decref(list);
    return result;
}

static void a_model_without_a_template_gets_chatml(void **state)
{
    (void)state;
    log_level_set(LOG_ERROR);
    struct chat *chat = open_chat("");
    assert_string_equal(
        prompt(chat, "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"hi\"}]",
               NULL),
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    assert_false(chat_takes_tools(chat));
    chat_destroy(chat);
}

#define PARTS                                                                                                \
    "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}" \
    "]}]"
#define IMAGE "[{\"role\":\"user\",\"content\":[{\"type\":\"image\"},{\"type\":\"text\",\"text\":\"b\"}]}]"

static void reasoning_has_the_name_that_the_template_reads(void **state)
{
#define AFTER_REASONING(fields)                                                                             \
    "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\"," fields                                \
    ",\"reasoning_content\":\"thought\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{" \
    "\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"r\"}]"
    (void)state;
    struct chat *chat = open_chat("gpt-oss");
    assert_true(chat_takes_calls(chat));
    assert_non_null(strstr(prompt(chat, AFTER_REASONING("\"content\":\"\""), NULL),
                           "<|start|>assistant<|channel|>analysis<|message|>thought<|end|><|start|>assistant "
                           "to=functions.f<|channel|>commentary json<|message|>{}<|call|>"));
    assert_null(strstr(prompt(chat, AFTER_REASONING("\"content\":\"said\""), NULL), "thought"));
    assert_non_null(
        strstr(prompt(chat, AFTER_REASONING("\"content\":\"\""), "{\"reasoning_effort\":\"high\"}"),
               "Reasoning: high\n"));
    chat_destroy(chat);
}

static void parts_are_joined_for_templates_that_take_text(void **state)
{
    (void)state;
    struct chat *text = open_chat("mistral"), *parts = open_chat("smolvlm");
    assert_false(chat_takes_parts(text));
    assert_true(chat_takes_parts(parts));
    assert_string_equal(prompt(text, PARTS, NULL), "<s>[INST] a\nb [/INST]");
    assert_string_equal(prompt(parts, PARTS, NULL), "<|im_start|>User: ab<end_of_utterance>\nAssistant:");
    assert_string_equal(prompt(parts, IMAGE, NULL),
                        "<|im_start|>User:<image>b<end_of_utterance>\nAssistant:");
    assert_string_equal(prompt(text, IMAGE, NULL),
                        "messages[0].content[0]: this model takes text only, not \"image\"");
    chat_destroy(text);
    chat_destroy(parts);
}

#define CALL(arguments)                                                                                 \
    "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{" \
    "\"id\":\"abcdefghi\","                                                                             \
    "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":" arguments "}}]}]"

static void tool_arguments_come_as_the_template_wants_them(void **state)
{
    (void)state;
    static const char *const names[] = { "qwen2.5", "qwen3", "deepseek", "mistral-tools", "llama3-tools" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct chat *chat = open_chat(names[i]);
        char first[4096];
        assert_true(chat_takes_tools(chat) ==
                    (strcmp(names[i], "qwen3") != 0 && strcmp(names[i], "deepseek") != 0));
        snprintf(first, sizeof first, "%s", prompt(chat, CALL("{\"x\": 1}"), NULL));
        assert_non_null(strstr(first, "{\"x\": 1}"));
        assert_string_equal(first, prompt(chat, CALL("\"{\\\"x\\\": 1}\""), NULL));
        chat_destroy(chat);
    }
}

static struct chat *chat_of(const char *text)
{
    struct chat_source source = { .template_text = str_from(text) };
    struct chat *chat;
    struct err err = { 0 };

    assert_ok(chat_create(&chat, &source, &err), &err);
    return chat;
}

// Each template hears of earlier thoughts under its own name.
static void thoughts_come_as_the_template_wants_them(void **state)
{
    static const char thought[] =
        "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":\"a\","
        "\"reasoning_content\":\"hm\"}]";
    static const char *const templates[] = {
        "{% for m in messages %}{% if m.reasoning_content %}<{{ m.reasoning_content }}>{% endif %}{{ "
        "m.content }}"
        "{% endfor %}",
        "{% for m in messages %}{% if m.thinking %}<{{ m.thinking }}>{% endif %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{% if m.reasoning %}<{{ m.reasoning }}>{% endif %}{{ m.content }}{% endfor "
        "%}",
        "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content "
        "or [] %}"
        "{% if p.type == 'thinking' %}<{{ p.thinking }}>{% else %}{{ p.text }}{% endif %}{% endfor %}{% "
        "endif %}"
        "{% endfor %}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        struct chat *chat = chat_of(templates[i]);
        assert_string_equal(prompt(chat, thought, NULL), "u<hm>a");
        chat_destroy(chat);
    }
    // Ministral's speaks of thoughts to a conversation without a system message
    static const char ministral[] = "Write both your thoughts and the response.uhma";
    struct chat *speaks =
        chat_of("{% if messages[0].role != 'system' %}Write both your thoughts and the response.{% endif %}"
                "{% for m in messages %}{% for p in m.content %}{{ p if m.content is string else p.thinking "
                "if p.type == 'thinking' else p.text }}{% endfor %}{% endfor %}");
    assert_string_equal(prompt(speaks, thought, NULL), ministral);
    chat_destroy(speaks);
    // LFM2's prints a list of parts as JSON
    struct chat *chat = chat_of("{% for m in messages %}{{ m.content if m.content is string else m.content | "
                                "tojson }}{% endfor %}");
    assert_string_equal(prompt(chat, thought, NULL), "ua");
    chat_destroy(chat);
}

static void a_request_cannot_replace_what_the_engine_sets(void **state)
{
    (void)state;
    static const char *const names[] = { "messages", "tools",    "bos_token",
                                         "x_token",  "tokenize", "add_generation_prompt",
                                         "range" };
    struct chat *chat = open_chat("qwen3");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char extra[64];
        snprintf(extra, sizeof extra, "{\"%s\": []}", names[i]);
        assert_non_null(strstr(prompt(chat, PARTS, extra), "is set by the engine"));
    }
    assert_true(chat_uses(chat, "enable_thinking") && !chat_uses(chat, "enable"));
    assert_string_equal(
        prompt(chat, "[{\"role\":\"user\",\"content\":\"u\"}]", "{\"enable_thinking\": false}"),
        "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
    chat_destroy(chat);
}

static void broken_messages_are_named(void **state)
{
    (void)state;
    struct chat *chat = open_chat("smollm2");
    assert_string_equal(prompt(chat, "{}", NULL), "messages: expected an array");
    assert_string_equal(prompt(chat, "[1]", NULL), "messages[0]: expected an object");
    assert_string_equal(prompt(chat, "[{\"content\":\"x\"}]", NULL), "messages[0].role: expected a string");
    assert_string_equal(prompt(chat, "[{\"role\":\"user\",\"content\":1}]", NULL),
                        "messages[0].content: expected a string or an array of parts");
    assert_string_equal(prompt(chat, "[{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":1}]", NULL),
                        "messages[0].tool_calls: expected an array");
    assert_non_null(strstr(prompt(chat, "[]", "[1]"), "chat_template_kwargs: expected an object"));
    chat_destroy(chat);
}

static void a_broken_template_is_an_error(void **state)
{
    (void)state;
    struct chat_source source = { .template_text = STR("a\n{% if %}") };
    struct chat *chat;
    struct err err;
    assert_fails(chat_create(&chat, &source, &err), &err,
                 "the model's chat template: template line 2: unexpected %}");
    assert_null(chat);
}

// As Gemma 2's does: no system, and roles take turns.
static const char strict_turns[] =
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ "
    "raise_exception('roles') }}{% endif %}"
    "{{ '<' + m['role'] + '>' + m['content'] | trim }}{% endfor %}";

static void refused_messages_are_folded_into_the_users(void **state)
{
    struct chat_source source = { .template_text = str_from(strict_turns) };
    struct chat *chat, *takes = open_chat("qwen3");
    struct err err;

    (void)state;
    assert_ok(chat_create(&chat, &source, &err), &err);
    assert_string_equal(
        prompt(chat,
               "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"},"
               "{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"v\"},"
               "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"w\"}]}]",
               NULL),
        "<user>s\n\nu<assistant>a<user>v\n\nw");
    assert_string_equal(prompt(chat, "[{\"role\":\"system\",\"content\":\"s\"}]", NULL), "<user>s");
    assert_string_equal(prompt(chat,
                               "[{\"role\":\"user\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\","
                               "\"type\":\"function\","
                               "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}]",
                               NULL),
                        "<user><assistant>");
    assert_string_equal(
        prompt(chat,
               "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"alien\",\"content\":\"x\"},"
               "{\"role\":\"alien\",\"content\":\"x\"}]",
               NULL),
        "the model's chat template: template line 1: roles");
    assert_non_null(strstr(
        prompt(takes, "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"}]",
               NULL),
        "system\ns<|im_end|>"));
    chat_destroy(chat);
    chat_destroy(takes);
}

#define CALLED(id, content)                                                               \
    "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"assistant\",\"content\":" content \
    ",\"tool_calls\":[{\"id\":\"" id "\",\"type\":"                                       \
    "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": "              \
    "1}\"}}]},{\"role\":\"tool\",\"name\":\"f\",\"tool_call_id\":\"" id "\",\"content\":\"r\"}]"

// Clients send null beside calls; GLM's template would print None, and DeepSeek's shows calls beside null
// only.
static void calls_without_content_come_as_the_template_wants_them(void **state)
{
    static const char *const names[] = { "qwen2.5",  "qwen3",    "qwen3.5",       "glm4",
                                         "deepseek", "devstral", "mistral-tools", "llama3-tools" };
    char with_null[4096];

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct chat *chat = open_chat(names[i]);
        snprintf(with_null, sizeof with_null, "%s", prompt(chat, CALLED("abcdefghi", "null"), NULL));
        assert_string_equal(prompt(chat, CALLED("abcdefghi", "\"\""), NULL), with_null);
        assert_null(strstr(with_null, "None"));
        if (!strstr(with_null, "\"a\": 1") && !strstr(with_null, ">1<") && !strstr(with_null, ">\n1\n<"))
            fail_msg("%s shows no call: %s", names[i], with_null);
        assert_true(chat_takes_calls(chat));
        chat_destroy(chat);
    }
}

static void ids_that_mistral_refuses_are_made_short(void **state)
{
    struct chat *chat = open_chat("mistral-tools"), *any = open_chat("devstral");
    const char *text = prompt(chat, CALLED("call_0123456789abcdef00000001", "null"), NULL),
               *id = strstr(text, "\"id\": \"");

    (void)state;
    if (!id)
        fail_msg("no id: %s", text);
    char call_id[64];
    snprintf(call_id, sizeof call_id, "\"call_id\": \"%.9s\"", id + 7);
    if (!strstr(text, call_id))
        fail_msg("the result has another id than the call: %s", text);
    assert_non_null(strstr(prompt(chat, CALLED("AbCdEfGh1", "null"), NULL), "\"id\": \"AbCdEfGh1\""));
    assert_non_null(strstr(prompt(any, CALLED("call_0123456789abcdef00000001", "null"), NULL),
                           "call_0123456789abcdef00000001"));
    chat_destroy(chat);
    chat_destroy(any);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_without_a_template_gets_chatml),
        cmocka_unit_test(reasoning_has_the_name_that_the_template_reads),
        cmocka_unit_test(parts_are_joined_for_templates_that_take_text),
        cmocka_unit_test(tool_arguments_come_as_the_template_wants_them),
        cmocka_unit_test(thoughts_come_as_the_template_wants_them),
        cmocka_unit_test(a_request_cannot_replace_what_the_engine_sets),
        cmocka_unit_test(broken_messages_are_named),
        cmocka_unit_test(a_broken_template_is_an_error),
        cmocka_unit_test(calls_without_content_come_as_the_template_wants_them),
        cmocka_unit_test(refused_messages_are_folded_into_the_users),
        cmocka_unit_test(ids_that_mistral_refuses_are_made_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
