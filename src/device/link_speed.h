// link_speed.h - how fast buffers move between two devices, as links between stages move them.
#pragma once
#include "device/device.h"

struct link_speed {
    double there, back; // bytes a second, of 16 MiB; from a to b, and from b to a
    double latency_s;   // of 4 KiB from a to b, with the wait for it
    bool sends;         // without the host's part in it: device_send
    bool direct;        // and over a link between them
};

// a: NULL is the host. Both are idle. Takes some milliseconds and 16 MiB of each.
bool link_speed_measure(struct device *a, struct device *b, struct link_speed *speed, struct err *err);
