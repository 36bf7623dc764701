// broken_device.h - a device that plays some more times and then fails; one at a time.
#pragma once
#include "device/device.h"
#include "testing.h"

static const struct device_ops *whole_ops;
static struct device_ops broken_ops;
static uint32_t plays_left;

static bool break_down(struct device *d, struct tape *t, const struct buffer *step, uint32_t first,
                       uint32_t last, struct err *err)
{
    if (plays_left == 0)
        return err_set(err, ERR_DEVICE, "%s: a step failed: it is broken", d->name);
    plays_left--;
    return whole_ops->play(d, t, step, first, last, err);
}

static inline void device_break(struct device *d, uint32_t n_plays)
{
    whole_ops = d->ops;
    broken_ops = *d->ops;
    broken_ops.play = break_down;
    d->ops = &broken_ops;
    plays_left = n_plays;
}

static inline void device_mend(struct device *d)
{
    d->ops = whole_ops;
}
