// shipped_eyes.h - twenty of the held-back questions of the shipped model that sees, with their pictures, and
// what an engine answers. tools/train/scenes.py writes them.
#pragma once
#include <jansson.h>
#include "ingot.h"
#include "open_engine.h"

#define EYES_QUESTIONS SOURCE_DIR "/tests/golden/ingot-eyes/"

static inline struct ingot_engine *eyes_open(const char *model, const char *device)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.model = model;
    o.device = device;
    return open_or_fail(&o);
}

static inline bool eyes_append(void *arg, const struct ingot_event *event)
{
    char *text = arg;
    size_t n = strlen(text);

    assert_true(n + event->n_bytes < 256);
    memcpy(text + n, event->text, event->n_bytes + 1);
    return true;
}

static inline struct ingot_result eyes_ask(struct ingot_engine *engine, const json_t *question, bool no_split,
                                           char text[256])
{
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_message message = { "user", json_string_value(json_object_get(question, "question")), NULL };
    struct ingot_result result;
    struct ingot_error error;
    char path[512];

    snprintf(path, sizeof path, EYES_QUESTIONS "%s", json_string_value(json_object_get(question, "picture")));
    struct ingot_picture *picture = ingot_picture_from_file(path, &error);
    if (!picture)
        fail_msg("%s", error.message);
    r.messages = &message;
    r.n_messages = 1;
    r.pictures = (const struct ingot_picture *const *)&picture;
    r.n_pictures = 1;
    r.no_split = no_split;
    r.sampling.temperature = 0;
    r.max_tokens = 60;
    text[0] = 0;
    if (!ingot_generate(engine, &r, eyes_append, text, &result, &error))
        fail_msg("%s", error.message);
    ingot_picture_free(picture);
    return result;
}

// Asks every `stride`th question. As one tile, letters and digits are too small: those are left out.
static inline void eyes_check(struct ingot_engine *engine, bool no_split, size_t stride)
{
    json_t *questions = json_load_file(EYES_QUESTIONS "questions.json", 0, NULL);
    char text[256];
    size_t n = json_array_size(questions);

    assert_int_equal(n, 20);
    for (size_t i = 0; i < n; i += stride) {
        const json_t *q = json_array_get(questions, i);
        const char *kind = json_string_value(json_object_get(q, "kind"));
        if (no_split && (!strcmp(kind, "word") || !strcmp(kind, "number")))
            continue;
        struct ingot_result result = eyes_ask(engine, q, no_split, text);
        assert_string_equal(text, json_string_value(json_object_get(q, "answer")));
        assert_true(no_split ? result.n_tiles == 1 : result.n_tiles > 1);
    }
    json_decref(questions);
}
