// weight.c - a matrix in its device's layout. See device.h.
#include "device/device.h"

bool weight_create(struct device *d, const struct weight_source *source, struct weight *w, struct err *err)
{
    *w = (struct weight){ 0 };
    return d->ops->weight(d, source, w, err);
}

void weight_release(struct weight *w)
{
    buffer_release(&w->buffer);
    *w = (struct weight){ 0 };
}
