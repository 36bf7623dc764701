// load_eyes.c - see load_eyes.h.
#include "engine/load/load_eyes.h"
#include "base/log.h"
#include "engine/embedded.h"
#include "engine/mmproj.h"
#include "engine/tiles.h"

// In a file of its own, or in that of the model, or inside the library, or beside it. *file: NULL, nowhere.
static bool find_eyes(struct engine_loaded *l, const struct model_file **file, struct err *err)
{
    const struct embedded *inside = embedded_of(l->options.model);
    char path[MMPROJ_PATH_BYTES];
    bool ok = true;

    if (l->eyes)
        ; // found before
    else if (l->options.mmproj)
        ok = !*l->options.mmproj || model_file_open(&l->eyes, l->options.mmproj, err);
    else if (inside && inside->eyes)
        ok = embedded_open_eyes(&l->eyes, inside, err);
    else if (!tower_is_in(l->file) && mmproj_find(l->options.model, l->file, l->tokenizer, path)) {
        l->eyes_beside = true;
        ok = model_file_open(&l->eyes, path, err);
    }
    ok = ok && (!l->eyes || model_file_guard(l->eyes, err));
    *file = l->eyes ? l->eyes : !l->options.mmproj && tower_is_in(l->file) ? l->file : NULL;
    return ok;
}

bool load_eyes_open(struct engine *e, struct engine_loaded *l, struct stage_shape *shape, struct err *err)
{
    const struct model_file *file;
    bool ok = find_eyes(l, &file, err) && (!file || tiles_open(e, file, shape, err));

    shape->eyes_weights = shape->eyes_scratch = 0; // they are there now
    shape->eyes_pool = ok && file ? tiles_pool(e)->bytes : 0;
    if (ok && l->eyes_beside)
        log_line(LOG_INFO, "load", "%s: the eyes of this model, found beside it", model_file_path(file));
    if (ok || !l->eyes_beside)
        return ok;
    log_line(LOG_WARN, "load", "%s; this model takes no pictures now", err->message);
    tiles_close(e);
    model_file_close(l->eyes);
    l->eyes = NULL;
    return true;
}

void load_eyes_count(struct engine_loaded *l, struct stage_shape *shape)
{
    const struct model_file *file;
    struct tower t;
    struct err err;

    if (!find_eyes(l, &file, &err) || !file || !tower_bind(&t, file, l->model.config.n_cols, &err))
        return;
    uint64_t weights = t.weight_bytes, pool = tiles_pool_need(&t, l->model.config.n_cols);
    tower_release(&t);
    struct vision_plan plan = { .file = file,
                                .device = l->devices.at[0],
                                .n_out = l->model.config.n_cols,
                                .exact = shape->exact,
                                .invariant = shape->invariant };
    if (!tiles_scratch_need(plan, &shape->eyes_scratch, &err))
        return;
    shape->eyes_weights = weights;
    shape->eyes_pool = pool;
}
