// model_eyes.c - see model_eyes.h.
#include "model_tools/model_eyes.h"
#include "engine/embedded.h"
#include "engine/mmproj.h"
#include "text/tokenizer/tokenizer.h"

static void bind(struct model_eyes *e, const struct model_file *file, uint32_t n_out)
{
    uint64_t stated = n_out;

    if (n_out == 0 && !model_file_u64(file, "clip.vision.projection_dim", 1, 1 << 20, &stated, &e->unknown))
        return;
    e->known = tower_bind(&e->tower, file, (uint32_t)stated, &e->unknown);
}

static bool open_beside(struct model_eyes *e, const char *path, const struct model_file *file)
{
    char mmproj[MMPROJ_PATH_BYTES];
    struct tokenizer *tokenizer = NULL;
    bool read = tokenizer_load(&tokenizer, file, &e->unknown);
    bool found = read && mmproj_find(path, file, tokenizer, mmproj);

    tokenizer_free(tokenizer);
    if (!read && e->unknown.code != ERR_MEMORY && e->unknown.code != ERR_IO)
        e->unknown = (struct err){ 0 }; // a model without a usable tokenizer has no eyes
    return found && model_file_open(&e->file, mmproj, &e->unknown);
}

void model_eyes_find(struct model_eyes *e, const char *path, const struct model_file *file, uint32_t n_out)
{
    const struct embedded *inside = embedded_of(path);

    *e = (struct model_eyes){ 0 };
    if (tower_is_in(file))
        bind(e, file, n_out);
    else if (inside && inside->eyes ? embedded_open_eyes(&e->file, inside, &e->unknown)
                                    : path && n_out && open_beside(e, path, file))
        bind(e, e->file, n_out);
}

void model_eyes_close(struct model_eyes *e)
{
    if (e->known)
        tower_release(&e->tower);
    model_file_close(e->file);
    *e = (struct model_eyes){ 0 };
}
