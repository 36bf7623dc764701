// submission.c - command buffers: encoding, commit and completion.
//
// A command buffer does not retain what it uses: buffers are released only when nothing is in flight. Its
// completion handler runs on a thread of the system, records the serial and the first error, and wakes the
// waiting thread. Nothing is committed after an error.
#include "base/mem.h"
#include "device/metal/metal_internal.h"

static void on_completed(struct objc_block *block, objc_id commands)
{
    const struct metal_submission *s = block->arg;
    struct metal *m = s->metal;
    void *pool = objc.objc_autoreleasePoolPush();
    objc_id error = mtl_status(commands) == MTL_STATUS_ERROR ? mtl_error(commands) : NULL;

    pthread_mutex_lock(&m->lock);
    if (error && m->failure.code == ERR_NONE)
        err_set(&m->failure, ERR_DEVICE, "%s: the GPU gave up on a command buffer: %s (code %ld)",
                m->device.name, objc_error(error), mtl_code(error));
    m->completed = s->serial > m->completed ? s->serial : m->completed;
    pthread_cond_broadcast(&m->progress);
    pthread_mutex_unlock(&m->lock);
    objc.objc_autoreleasePoolPop(pool);
}

uint64_t metal_completed(struct metal *m)
{
    pthread_mutex_lock(&m->lock);
    uint64_t serial = m->completed;
    pthread_mutex_unlock(&m->lock);
    return serial;
}

bool metal_sync(struct metal *m, uint64_t serial, struct err *err)
{
    pthread_mutex_lock(&m->lock);
    while (m->completed < serial)
        pthread_cond_wait(&m->progress, &m->lock);
    bool ok = m->failure.code == ERR_NONE;
    if (!ok && err)
        *err = m->failure;
    pthread_mutex_unlock(&m->lock);
    return ok;
}

bool metal_add_copy(struct metal *m, struct metal_copy copy, struct err *err)
{
    if (m->n_copies == m->copies_capacity) {
        uint32_t capacity = m->copies_capacity ? 2 * m->copies_capacity : 64;
        struct metal_copy *grown = mem_realloc(m->copies, capacity * sizeof *grown);
        if (!grown)
            return err_memory(err, "copies to the GPU");
        m->copies = grown;
        m->copies_capacity = capacity;
    }
    m->copies[m->n_copies++] = copy;
    return true;
}

void metal_end_encoder(struct metal *m)
{
    if (!m->open.encoder)
        return;
    mtl_end(m->open.encoder);
    mtl_release(m->open.encoder);
    m->open.encoder = NULL;
}

static void encode_copies(struct metal *m)
{
    if (m->n_copies == 0)
        return;
    metal_end_encoder(m);
    objc_id encoder = mtl_blit_encoder(m->open.commands);
    for (uint32_t i = 0; i < m->n_copies; i++) {
        const struct metal_copy *c = &m->copies[i];
        if (c->from)
            mtl_copy(encoder, c->from, c->from_at, c->to, c->to_at, c->bytes);
        else
            mtl_fill(encoder, c->to, (struct ns_range){ c->to_at, c->bytes }, 0);
    }
    mtl_end(encoder);
    m->n_copies = 0;
}

uint64_t metal_last(const struct metal *m)
{
    return m->committed + m->is_open;
}

// Commits m->open.
static void commit(struct metal *m)
{
    static const struct objc_block_shape shape = { 0, sizeof(struct objc_block) };

    if (!m->is_open)
        return;
    encode_copies(m);
    metal_end_encoder(m);
    uint64_t serial = ++m->committed;
    struct metal_submission *s = &m->submissions[serial % METAL_IN_FLIGHT];
    *s = (struct metal_submission){ { objc.global_block, BLOCK_IS_GLOBAL, 0, on_completed, &shape, s },
                                    m,
                                    serial };
    mtl_on_completed(m->open.commands, &s->block);
    mtl_commit(m->open.commands);
    mtl_release(m->open.commands);
    m->is_open = false;
    m->device.counters.submissions++;
}

bool metal_begin(struct metal *m, struct err *err)
{
    commit(m);
    uint64_t serial = m->committed + 1; // its place in the ring must be free
    if (!metal_sync(m, serial > METAL_IN_FLIGHT ? serial - METAL_IN_FLIGHT : 0, err))
        return false;
    objc_id commands = m->has_products ? mtl_retaining_commands(m->queue) : mtl_command_buffer(m->queue);
    if (!commands)
        return err_set(err, ERR_DEVICE, "%s: no command buffer", m->device.name);
    m->open = (struct metal_encoding){ .commands = mtl_retain(commands), .empty = true };
    m->is_open = true;
    encode_copies(m);
    return true;
}

bool metal_flush(struct metal *m, struct err *err)
{
    if (!m->is_open && m->n_copies > 0 && !metal_begin(m, err))
        return false;
    commit(m);
    return true;
}
