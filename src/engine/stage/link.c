// link.c - see link.h. Copies through host memory: in one step where an end shares it, else through a buffer.
#include "engine/stage/link.h"
#include "base/mem.h"

static uint64_t row_bytes(const struct stage *s)
{
    return s->parts.model->config.n_cols * sizeof(float);
}

bool link_create(struct link *l, struct stage *from, struct stage *to, struct err *err)
{
    *l = (struct link){ from, to, NULL };
    if (to->borrows_block || to->block.host || from->block.host)
        return true;
    l->room = mem_alloc(from->shape.max_rows * row_bytes(from));
    return l->room || err_memory(err, "activations between two stages");
}

void link_release(struct link *l)
{
    mem_free(l->room);
    *l = (struct link){ 0 };
}

bool link_pass(struct link *l, uint32_t n_rows, struct err *err)
{
    struct stage *from = l->from, *to = l->to;
    uint64_t bytes = n_rows * row_bytes(from);

    if (to->borrows_block)
        return true;
    if (!from->device->ops->wait(from->device, err))
        return false;
    if (from->block.host)
        return buffer_write(&to->block, 0, from->block.host, bytes, err);
    if (to->block.host)
        return buffer_read(&from->block, 0, to->block.host, bytes, err);
    return buffer_read(&from->block, 0, l->room, bytes, err) &&
           buffer_write(&to->block, 0, l->room, bytes, err);
}
