// take.c - see take.h.
#include "engine/stage/take.h"
#include "base/mem.h"

bool take_numbers(const struct take *k, const float *numbers, uint32_t n, const char *name, struct weight *w,
                  struct err *err)
{
    uint64_t bytes = (uint64_t)n * sizeof(float);

    if (!buffer_alloc(k->device, bytes, &w->buffer, err))
        return false;
    w->bytes = bytes;
    w->n_rows = 1;
    w->n_cols = n;
    w->format = QUANT_F32;
    w->name = name;
    return buffer_write(&w->buffer, 0, numbers, bytes, err);
}

static bool take_vector(const struct take *k, const struct file_tensor *t, const char *name, struct weight *w,
                        struct err *err)
{
    uint64_t n = t->dims[0];
    float *numbers = mem_alloc_array(n, sizeof *numbers);

    if (!numbers)
        return err_memory(err, "a vector");
    if (!k->device->outlines)
        quant_info(t->format)->decode(t->data, numbers, n);
    bool ok = take_numbers(k, numbers, (uint32_t)n, name, w, err);
    mem_free(numbers);
    return ok;
}

bool take_tensor(const struct take *k, const struct file_tensor *t, enum weight_use use, struct weight *w,
                 struct err *err)
{
    const char *name = arena_str(k->names, t->name).at;

    if (!name)
        return err_memory(err, "a name");
    if (t->n_dims == 1)
        return take_vector(k, t, name, w, err);
    uint64_t n_cols = t->dims[1] * t->dims[2] * t->dims[3];
    struct weight_source source = { t->data, t->bytes, (uint32_t)t->dims[0], (uint32_t)n_cols, t->format,
                                    use,     name };
    if (!weight_create(k->device, &source, w, err))
        return false;
    if (k->file && w->buffer.host != t->data && !k->device->outlines) // the device has a copy of its own
        model_file_forget(k->file, t);
    return true;
}
