// device_timing.h - how a device tells when the commands of a tape ran, for a profile. A device may have one
// of the two, or neither.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct buffer;
struct device;
struct err;
struct tape;

// When the commands of one play ran, in ns of one clock, for a profile. A lane is a thread of a processor. On
// its lane a command runs from begin to end, and waits from there to the next one's begin.
struct command_span {
    uint64_t begin, end;
};
struct play_times {
    uint64_t begun, ended;      // of the play
    uint32_t n_lanes;           // that took part
    struct command_span *spans; // [lanes of the device][commands of the tape], the caller's
};
struct device_timing {
    uint32_t (*n_lanes)(struct device *d);
    // Plays the whole tape, notes times and waits for its end.
    bool (*play)(struct device *d, struct tape *t, const struct buffer *step, struct play_times *times,
                 struct err *err);
};

// The same for a device that a note of each command would slow: a play notes the moments at which all before
// a few of its commands had ended, and runs between these cuts as it always does.
enum { DEVICE_SAMPLES = 8 }; // plays of a tape in flight, each with cuts of its own
struct play_cuts {
    uint32_t sample;       // which of the DEVICE_SAMPLES
    uint32_t first, every; // the cuts: before the commands first, first + every, ...; first > 0
};
struct device_sampling {
    // Makes a sample of the tape ready, when none is in flight.
    bool (*prepare)(struct device *d, struct tape *t, const struct buffer *step, const struct play_cuts *cuts,
                    struct err *err);
    // Plays it, the whole tape, and does not wait.
    bool (*play)(struct device *d, struct tape *t, const struct buffer *step, uint32_t sample,
                 struct err *err);
    // After a wait: ns from its last play's begin to each cut, and to its end.
    bool (*read)(struct device *d, struct tape *t, uint32_t sample, double *ns, struct err *err);
};
