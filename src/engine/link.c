// link.c - see link.h. Through host memory where both ends share it, which all devices of today do.
#include "engine/link.h"
#include "base/mem.h"

bool link_pass(struct stage *from, struct stage *to, uint32_t n_rows, struct err *err)
{
    uint64_t bytes = (uint64_t)n_rows * from->parts.model->config.n_cols * sizeof(float);

    if (!from->device->ops->wait(from->device, err))
        return false;
    if (to->block.host)
        return buffer_read(&from->block, 0, to->block.host, bytes, err);
    return buffer_write(&to->block, 0, from->block.host, bytes, err);
}
