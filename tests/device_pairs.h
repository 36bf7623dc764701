// device_pairs.h - one model over two devices or more: the reference's logits at every border, and the
// shipped model's text. Used for the CPU's kinds, Metal and CUDA.
#pragma once
#include "models/golden.h"

enum { SHIPPED_LAYERS = 8, STORY_BYTES = 2000 };

// Both orders of a pair, at every border of two small models.
static inline void check_pair_of_devices(const char *pair, bool exact)
{
    static const struct {
        const char *variant, *borders[3];
    } models[] = { { "llama3", { "1", NULL } }, { "qwen3", { "1", "2", NULL } } };

    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (const char *const *border = models[m].borders; *border; border++)
            check_golden_split(&(struct golden_run){ models[m].variant, "/model.gguf", pair, 9, exact },
                               *border);
}

static inline bool append_story(void *arg, const struct ingot_event *event)
{
    char *text = arg;
    size_t n = strlen(text);

    assert_true(n + event->n_bytes < STORY_BYTES);
    memcpy(text + n, event->text, event->n_bytes + 1);
    return true;
}

// Greedy, activations in fp32, prompts in chunks of 7.
static inline void tell_story(const char *device, const char *stages, char story[STORY_BYTES])
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_message message = { .role = "user", .content = "Tell me a short story about a fox." };
    struct ingot_error error = { 0 };

    o.model = SOURCE_DIR "/models/ingot-7m-q8_0.gguf";
    o.device = device;
    o.stages = stages;
    o.exact = true;
    o.n_batch = 7;
    o.n_context = 256;
    struct ingot_engine *engine = open_or_fail(&o);
    r.sampling.temperature = 0;
    r.max_tokens = 40;
    r.messages = &message;
    r.n_messages = 1;
    *story = 0;
    if (!ingot_generate(engine, &r, append_story, story, NULL, &error))
        fail_msg("%s", error.message);
    ingot_engine_close(engine);
}

// Every step-th border of the shipped model gives the text that one CPU gives.
static inline void check_story_on_pair(const char *pair, uint32_t step)
{
    char whole[STORY_BYTES], split[STORY_BYTES], border[4];

    tell_story("cpu", NULL, whole);
    assert_true(strlen(whole) > 40);
    for (uint32_t at = 1; at < SHIPPED_LAYERS; at += step) {
        snprintf(border, sizeof border, "%u", at);
        tell_story(pair, border, split);
        assert_string_equal(whole, split);
    }
}
