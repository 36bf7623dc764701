// api_prompt.c - the functions of ingot.h about prompts and the model's chat template.
#include "base/mem.h"
#include "engine/api.h"
#include "engine/kv/kv_window.h"
#include "engine/kv/prefix.h"
#include "engine/prompt.h"
#include "engine/api/sizes.h"

struct ingot_prompt {
    const struct engine *engine;
    struct prompt inner;
    struct buf text;
    bool is_encoded;
};

static bool join_text(struct ingot_prompt *p, struct err *err)
{
    for (size_t i = 0; i < p->inner.n_spans; i++)
        buf_str(&p->text, p->inner.spans[i].text);
    return !p->text.failed || err_memory(err, "the rendered text");
}

struct ingot_prompt *ingot_prompt_render(const struct ingot_engine *engine,
                                         const struct ingot_request_options *options,
                                         struct ingot_error *error)
{
    struct ingot_request_options own;
    struct ingot_prompt *p;

    if (!sizes_take_request(&own, options, as_err(error)))
        return NULL;
    if (!(p = mem_alloc(sizeof *p))) {
        err_memory(as_err(error), "a prompt");
        return NULL;
    }
    *p = (struct ingot_prompt){ .engine = &engine->inner };
    if (prompt_read(p->engine, &own, &p->inner, as_err(error)) && join_text(p, as_err(error)))
        return p;
    ingot_prompt_free(p);
    return NULL;
}

void ingot_prompt_info_fill(const struct ingot_prompt *prompt, struct ingot_prompt_info *info, size_t size)
{
    struct str text = buf_as_str(&prompt->text);
    const struct ingot_prompt_info all = { .text = text.at,
                                           .n_bytes = text.n,
                                           .reasoning = prompt->inner.reasoning };

    sizes_give(info, size, &all, sizeof all);
}

const uint32_t *ingot_prompt_tokens(struct ingot_prompt *prompt, size_t *n_tokens, struct ingot_error *error)
{
    static const uint32_t none;

    if (!prompt->is_encoded && !prompt_encode(prompt->engine, &prompt->inner, as_err(error)))
        return NULL;
    prompt->is_encoded = true;
    *n_tokens = prompt->inner.ids.n;
    return prompt->inner.ids.n ? prompt->inner.ids.ids : &none;
}

void ingot_prompt_free(struct ingot_prompt *prompt)
{
    if (!prompt)
        return;
    prompt_free(&prompt->inner);
    buf_free(&prompt->text);
    mem_free(prompt);
}

size_t ingot_prompt_kept(struct ingot_engine *engine, const uint32_t *tokens, size_t n_tokens,
                         const char *cache_salt)
{
    struct engine *e = &engine->inner;
    size_t n = 0, n_usable = 0;

    pthread_mutex_lock(&e->state);
    if (e->kv.prefix) {
        struct sha256 root = prefix_root(e->kv.prefix, cache_salt);
        struct prefix_walk walk = prefix_begin(&root);
        uint32_t page, lost = 0;
        while (n + PAGE_TOKENS < n_tokens && (page = prefix_next(&e->kv, &walk, tokens + n)) != KV_NONE) {
            n += PAGE_TOKENS;
            if (kv_window_passes(&e->kv, page, (uint32_t)n, &lost) &&
                (!e->kv.has_states || e->kv.pages[page].state))
                n_usable = n;
        }
    }
    pthread_mutex_unlock(&e->state);
    return n_usable;
}

void ingot_template_info_fill(const struct ingot_engine *engine, struct ingot_template_info *info,
                              size_t size)
{
    const struct engine *e = &engine->inner;
    struct str text = e->loaded->tokenizer ? tokenizer_chat_template(e->loaded->tokenizer) : STR("");
    const struct ingot_template_info all = {
        .text = text.n ? text.at : "",
        .n_bytes = text.n,
        .is_usable = e->loaded->chat != NULL,
        .takes_tools = e->loaded->chat && chat_takes_tools(e->loaded->chat),
        .takes_calls = e->loaded->chat && chat_takes_calls(e->loaded->chat),
        .takes_parts = e->loaded->chat && chat_takes_parts(e->loaded->chat),
    };

    sizes_give(info, size, &all, sizeof all);
}

bool ingot_template_uses(const struct ingot_engine *engine, const char *variable)
{
    return engine->inner.loaded->chat && chat_uses(engine->inner.loaded->chat, variable);
}
