// link.c - see link.h. Copies through host memory: in one step where an end shares it, else through a buffer.
#include "engine/stage/link.h"
#include "base/mem.h"

bool link_pass(struct stage *from, struct stage *to, uint32_t n_rows, struct err *err)
{
    uint64_t bytes = (uint64_t)n_rows * from->parts.model->config.n_cols * sizeof(float);

    if (!from->device->ops->wait(from->device, err))
        return false;
    if (to->block.host)
        return buffer_read(&from->block, 0, to->block.host, bytes, err);
    if (from->block.host)
        return buffer_write(&to->block, 0, from->block.host, bytes, err);
    void *copy = mem_alloc(bytes);
    bool ok =
        copy ? buffer_read(&from->block, 0, copy, bytes, err) && buffer_write(&to->block, 0, copy, bytes, err)
             : err_memory(err, "activations between two stages");
    mem_free(copy);
    return ok;
}
