// weight.c - a matrix in its device's layout. See device.h.
#include "device/device.h"

bool weight_create(struct device *d, const struct weight_source *source, struct weight *w, struct err *err)
{
    *w = (struct weight){ 0 };
    if (!d->outlines)
        return d->ops->weight(d, source, w, err);
    *w = (struct weight){ .buffer = { .device = d, .bytes = source->bytes, .native = BUFFER_OUTLINE },
                          .bytes = source->bytes,
                          .n_rows = source->n_rows,
                          .n_cols = source->n_cols,
                          .format = source->format,
                          .name = source->name,
                          .layout = source->use == WEIGHT_ROW_SCALES ? LAYOUT_ROW_SCALES : LAYOUT_FILE };
    return true;
}

void weight_release(struct weight *w)
{
    buffer_release(&w->buffer);
    *w = (struct weight){ 0 };
}
