// model_folder.h - the shipped model in a folder of its own, with other words for its control tokens or
// another chat template.
#pragma once
#include <unistd.h>
#include "base/file.h"
#include "testing.h"

#define SHIPPED SOURCE_DIR "/models/ingot-7m/"

static const char *const model_folder_linked[] = { "config.json", "generation_config.json",
                                                   "model-00001-of-00002.safetensors",
                                                   "model-00002-of-00002.safetensors",
                                                   "model.safetensors.index.json" };
static const char *const model_folder_written[] = { "tokenizer.json", "tokenizer_config.json",
                                                    "chat_template.jinja" };

struct token_name {
    const char *from, *to;
};

static inline void model_folder_put(const char *folder, const char *name, struct str text)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text.at, 1, text.n, file), text.n);
    fclose(file);
}

// text is replaced by one with the other name in every place.
static inline void model_folder_rename(struct buf *text, const struct token_name *name)
{
    struct buf to = { 0 };
    struct str rest = buf_as_str(text);

    for (size_t i; (i = str_find(rest, str_from(name->from))) != SIZE_MAX;) {
        buf_str(&to, str_from_to(rest, 0, i));
        buf_text(&to, name->to);
        rest = str_from_to(rest, i + strlen(name->from), rest.n);
    }
    buf_str(&to, rest);
    buf_free(text);
    *text = to;
}

// Into an existing folder, which may hold one already. template: empty for the model's own.
static inline void model_folder_make(const char *folder, const struct token_name *names, size_t n_names,
                                     struct str template)
{
    char from[256], to[256];

    for (size_t i = 0; i < sizeof model_folder_linked / sizeof *model_folder_linked; i++) {
        snprintf(from, sizeof from, SHIPPED "%s", model_folder_linked[i]);
        snprintf(to, sizeof to, "%s/%s", folder, model_folder_linked[i]);
        unlink(to);
        assert_int_equal(symlink(from, to), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        struct buf text = { 0 };
        struct err err = { 0 };
        snprintf(from, sizeof from, SHIPPED "%s", model_folder_written[i]);
        assert_ok(file_read(&text, from, 1 << 20, &err), &err);
        for (size_t k = 0; k < n_names; k++)
            model_folder_rename(&text, &names[k]);
        model_folder_put(folder, model_folder_written[i], buf_as_str(&text));
        buf_free(&text);
    }
    if (template.n)
        model_folder_put(folder, "chat_template.jinja", template);
}

static inline int model_folder_remove(const char *folder)
{
    char path[256];

    for (size_t i = 0; i < sizeof model_folder_linked / sizeof *model_folder_linked; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, model_folder_linked[i]);
        unlink(path);
    }
    for (size_t i = 0; i < sizeof model_folder_written / sizeof *model_folder_written; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, model_folder_written[i]);
        unlink(path);
    }
    return rmdir(folder);
}
