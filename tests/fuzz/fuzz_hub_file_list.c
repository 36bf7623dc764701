// fuzz_hub_file_list.c - any bytes as the hub's list of files, and as a model's name: what is taken is safe
// as a path, and chooses files that are there.
#include "base/mem.h"
#include "hub/hub_file_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_models(const struct hub_files *files, const struct hub_models *models)
{
    for (size_t i = 0; i < models->n; i++) {
        const struct hub_model *m = &models->at[i];
        CHECK(m->n_files > 0 && m->n_files <= files->n);
        for (size_t k = 0; k < m->n_files; k++)
            CHECK(m->files[k] < files->n);
    }
}

static void check_files(const struct hub_files *files)
{
    CHECK(files->n <= HUB_MAX_FILES && hub_hex(str_from(files->commit), HUB_COMMIT));
    for (size_t i = 0; i < files->n; i++) {
        const struct hub_file *f = &files->at[i];
        CHECK(hub_path_safe(f->path) && f->path.at[f->path.n] == 0);
        CHECK(hub_hex(str_from(f->oid), HUB_OID) || hub_hex(str_from(f->oid), HUB_COMMIT));
        CHECK(f->path.at[0] != '/');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *arena = arena_create(64 << 20);
    struct hub_name name = { .repo = "a/b" };
    struct hub_files files;
    struct hub_models models;
    struct str text = arena_str(arena, (struct str){ (const char *)data, size });
    struct err err;

    CHECK(arena && text.at);
    if (hub_name_read(&name, text.at, &err)) {
        CHECK(hub_path_safe(str_from(name.repo)) && hub_path_safe(str_from(name.revision)));
        CHECK(!name.quant[0] || hub_path_safe(str_from(name.quant)));
    }
    if (hub_file_list_read(text, &files, arena, &err) && hub_models_find(&files, &models, arena, &err)) {
        check_files(&files);
        check_models(&files, &models);
        (void)hub_models_choose(&files, &models, &name, &err);
    }
    arena_destroy(arena);
    return 0;
}
