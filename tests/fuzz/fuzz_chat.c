// fuzz_chat.c - libFuzzer: JSON as the messages, tools and further variables of a request, through three
// kinds of template.
//
// Checked: what the request holds never becomes trusted text. The templates write no '#', so a '#' in trusted
// text came from it.
#include <stdlib.h>
#include "base/log.h"
#include "text/template/chat.h"

static const char *const templates[] = {
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}{{ eos_token }}{% endfor %}",
    "{%- for m in messages %}{{- '<|' + m['role'] + '|>' }}{%- if m.content is string %}{{- "
    "m.content.split('<') | join('>') }}"
    "{%- else %}{%- for p in m.content %}{{- p.text | upper ~ p.type }}{%- endfor %}{%- endif %}{%- for c in "
    "m.tool_calls %}"
    "{{- c.function.name ~ c.function.arguments | tojson }}{%- endfor %}{%- endfor %}{{- tools | tojson if "
    "tools else '' }}",
    "{% for m in messages | selectattr('role', 'defined') | sort(attribute='role') %}{{ m }}{{ m | "
    "tojson(indent=2) }}{{ "
    "m.content[::-1] }}"
    "{{ '%s' % m.content }}{% for k, v in m.items() %}{{ k ~ v }}{{ loop.index }}{% endfor %}{% endfor %}{{ "
    "extra }}",
};
enum { N_TEMPLATES = sizeof templates / sizeof *templates };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct template_output *out)
{
    for (size_t i = 0; i < out->n_spans; i++)
        if (out->spans[i].text.n == 0 ||
            (out->spans[i].trusted && memchr(out->spans[i].text.at, '#', out->spans[i].text.n)))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct chat *chats[N_TEMPLATES];
    json_t *request = json_loadb((const char *)data, size, 0, NULL);
    struct chat_options options = { .tools = json_object_get(request, "tools"),
                                    .extra = json_object_get(request, "extra"),
                                    .add_generation_prompt = true };
    struct template_output out;
    struct err err;

    log_level_set(LOG_ERROR);
    for (size_t i = 0; request && i < N_TEMPLATES; i++) {
        const struct chat_source source = { .template_text = str_from(templates[i]),
                                            .eos_token = STR("</s>") };
        if (!chats[i] && !chat_create(&chats[i], &source, &err))
            abort();
        if (chat_render(chats[i], json_object_get(request, "messages"), &options, &out, &err)) {
            check(&out);
            template_output_free(&out);
        }
    }
    json_decref(request);
    return 0;
}
