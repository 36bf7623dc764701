// link.c - see link.h.
#include "engine/stage/link.h"
#include "base/log.h"
#include "base/mem.h"

static uint64_t row_bytes(const struct stage *s)
{
    return s->parts.model->config.n_cols * sizeof(float);
}

// One is the other's copy.
static bool is_one(const struct buffer *a, const struct buffer *b)
{
    return a->device == b->device && a->native == b->native && a->host == b->host;
}

const char *link_name(enum link_kind kind)
{
    static const char *const names[N_LINKS] = { "in place", "from device to device",
                                                "from device to device by the driver, through the host",
                                                "through the host" };
    return names[kind];
}

static bool choose_kind(struct link *l, struct err *err)
{
    struct device *from = l->from->device, *to = l->to->device;
    bool direct = false;

    l->kind = is_one(&l->from->block, &l->to->block) ? LINK_SHARED : LINK_HOST;
    if (l->kind == LINK_HOST && device_can_send(from, to)) {
        if (!from->queue->connect(from, to, &direct, err))
            return false;
        l->kind = direct ? LINK_DIRECT : LINK_DRIVER;
    }
    if (l->kind != LINK_SHARED)
        log_line(LOG_INFO, "link", "%s to %s: %s", from->name, to->name, link_name(l->kind));
    return true;
}

bool link_create(struct link *l, struct stage *from, struct stage *to, struct err *err)
{
    *l = (struct link){ .from = from, .to = to };
    if (from->device->outlines)
        return true;
    if (!choose_kind(l, err))
        return false;
    if (l->kind != LINK_HOST || to->block.host || from->block.host)
        return true;
    l->room = mem_alloc(from->shape.max_rows * row_bytes(from));
    return l->room || err_memory(err, "activations between two stages");
}

void link_release(struct link *l)
{
    mem_free(l->room);
    *l = (struct link){ 0 };
}

// Reading waits for what was played; memory that the host sees is read without the device.
static bool pass_host(struct link *l, uint64_t bytes, struct err *err)
{
    struct buffer *from = &l->from->block, *to = &l->to->block;

    if (from->host)
        return from->device->ops->wait(from->device, err) && buffer_write(to, 0, from->host, bytes, err);
    if (to->host)
        return buffer_read(from, 0, to->host, bytes, err);
    return buffer_read(from, 0, l->room, bytes, err) && buffer_write(to, 0, l->room, bytes, err);
}

bool link_pass(struct link *l, uint32_t n_rows, struct err *err)
{
    uint64_t bytes = n_rows * row_bytes(l->from);

    if (l->kind == LINK_SHARED)
        return true;
    if (l->kind == LINK_HOST)
        return pass_host(l, bytes, err);
    return device_send(l->from->device, &l->from->block, &l->to->block, (struct device_span){ 0, bytes },
                       err);
}

bool link_returns_tokens(const struct link *links, uint32_t n_links, bool *returns, struct err *err)
{
    struct device *first = n_links ? links[0].from->device : NULL,
                  *last = n_links ? links[n_links - 1].to->device : NULL;
    bool direct;

    *returns = first != last && device_can_send(last, first);
    for (uint32_t i = 0; i < n_links; i++)
        *returns &= links[i].kind != LINK_HOST;
    return !*returns || last->queue->connect(last, first, &direct, err);
}

bool link_return_token(const struct stage *last, struct stage *first, uint32_t slot, uint32_t position,
                       struct err *err)
{
    uint64_t at = (uint64_t)slot * last->shape.history_stride + position;
    struct device_span token = { at * sizeof(uint32_t), sizeof(uint32_t) };

    return device_send(last->device, &last->history, &first->history, token, err);
}
