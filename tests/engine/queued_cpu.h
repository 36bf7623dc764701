// queued_cpu.h - the queue of a processor that claims to work on its own.
#pragma once
#include <string.h>
#include "device/device.h"
#include "device/device_queue.h"

static uint32_t fetches[DEVICE_FETCHES][64];

static bool fetch_at_once(struct device *d, const struct buffer *b, struct device_span span, uint32_t fetch,
                          struct err *err)
{
    (void)d;
    return buffer_read(b, span.offset, fetches[fetch], span.bytes, err);
}

static bool collect_fetched(struct device *d, uint32_t fetch, void *to, uint64_t bytes, struct err *err)
{
    (void)d, (void)err;
    memcpy(to, fetches[fetch], bytes);
    return true;
}

static const struct device_queue queued_cpu = { .fetch = fetch_at_once, .collect = collect_fetched };
