// peer.c - copies from one GPU to another, in order with what both play; no thread waits.
//
// With peer access the copy goes over the link between the GPUs, else the driver takes it through the host.
// Some machines announce peer access and copy wrongly (an IOMMU in the way): a pattern is sent once, and
// where it arrives changed, peer access is switched off again.
#include <string.h>
#include "base/log.h"
#include "device/cuda/cuda_internal.h"

enum { PATTERN_WORDS = 1 << 14, CU_PEER_ENABLED_ALREADY = 704 };

// What is played on `later` from now on waits for what was played on `first` until now.
static bool follow(struct cuda *later, struct cuda *first, struct err *err)
{
    return cuda_use(first, err) &&
           cuda_check(first, first->cu->event_record(first->reached, first->stream), "an event", err) &&
           cuda_use(later, err) &&
           cuda_check(later, later->cu->stream_follow(later->stream, first->reached, 0), "an event", err);
}

bool cuda_send(struct device *d, const struct buffer *from, struct buffer *to, struct device_span span,
               struct err *err)
{
    struct cuda *c = (struct cuda *)d, *other = (struct cuda *)to->device;
    cu_address source = (cu_address)(uintptr_t)from->native + span.offset,
               target = (cu_address)(uintptr_t)to->native + span.offset;

    return follow(c, other, err) && cuda_use(c, err) &&
           cuda_check(c, c->cu->peer_copy(target, other->context, source, c->context, span.bytes, c->stream),
                      "a copy to another device", err) &&
           follow(other, c, err);
}

static bool can_access(const struct cuda *c, const struct cuda *other)
{
    int can = 0;

    return c->ordinal != other->ordinal && c->cu->peer_can(&can, c->ordinal, other->ordinal) == 0 && can;
}

static bool peer_enable(struct cuda *c, struct cuda *other, struct err *err)
{
    if (!can_access(c, other) || !cuda_use(c, err))
        return false;
    cu_result result = c->cu->peer_enable(other->context, 0);
    return result == 0 || result == CU_PEER_ENABLED_ALREADY;
}

static void peer_disable(struct cuda *c, struct cuda *other)
{
    if (c->cu->context_set(c->context) == 0)
        c->cu->peer_disable(other->context);
}

static bool pattern_arrives(struct cuda *c, struct buffer at[2], bool *arrives, struct err *err)
{
    static uint32_t sent[PATTERN_WORDS], got[PATTERN_WORDS];

    for (uint32_t i = 0; i < PATTERN_WORDS; i++)
        sent[i] = i * 2654435761u ^ 0x5bd1e995u;
    memset(got, 0, sizeof got);
    if (!buffer_write(&at[0], 0, sent, sizeof sent, err) || !buffer_write(&at[1], 0, got, sizeof got, err) ||
        !cuda_send(&c->device, &at[0], &at[1], (struct device_span){ 0, sizeof sent }, err) ||
        !buffer_read(&at[1], 0, got, sizeof got, err))
        return false;
    *arrives = memcmp(sent, got, sizeof sent) == 0;
    return true;
}

static bool check_pattern(struct cuda *c, struct cuda *other, bool *direct, struct buffer at[2],
                          struct err *err)
{
    bool arrives = false;

    if (!pattern_arrives(c, at, &arrives, err))
        return false;
    if (!arrives && *direct) {
        log_line(LOG_WARN, "cuda", "%s and %s copy wrongly to each other; they go through the host now",
                 c->device.name, other->device.name);
        peer_disable(c, other);
        peer_disable(other, c);
        *direct = false;
        if (!pattern_arrives(c, at, &arrives, err))
            return false;
    }
    return arrives || err_set(err, ERR_DEVICE, "copies from %s to %s arrive changed; use one of them alone",
                              c->device.name, other->device.name);
}

bool cuda_connect(struct device *from, struct device *to, bool *direct, struct err *err)
{
    struct cuda *c = (struct cuda *)from, *other = (struct cuda *)to;
    struct buffer at[2] = { { 0 } };

    *direct = peer_enable(c, other, err) && peer_enable(other, c, err);
    bool ok = buffer_alloc(from, PATTERN_WORDS * 4, &at[0], err) &&
              buffer_alloc(to, PATTERN_WORDS * 4, &at[1], err) && check_pattern(c, other, direct, at, err);
    buffer_release(&at[0]);
    buffer_release(&at[1]);
    return ok;
}
