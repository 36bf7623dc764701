// profile_draw.h - the pictures of a profile's page, as SVG inside HTML. Colours are the page's CSS classes.
#pragma once
#include "base/str.h"
#include "main/profile/profile_result.h"

// Where the time of a stamped step went, without its cuts. At the limit: what the slower of memory and
// arithmetic takes at least.
enum time_part {
    PART_MEMORY,
    PART_ARITHMETIC,
    PART_ABOVE,
    PART_WAITING,
    PART_LINKS,
    PART_HOST,
    N_TIME_PARTS
};
struct time_split {
    double ns[N_TIME_PARTS], total;
};
struct time_split time_split_of(const struct profile_result *r, const struct step_profile *p);
const char *draw_part_name(enum time_part part);
const char *draw_part_class(enum time_part part); // of the page's CSS

void draw_text(struct buf *to, const char *text); // with &, <, > and quotes as HTML writes them
void draw_split(struct buf *to, const struct time_split *s);
void draw_layers(struct buf *to, const struct profile_result *r, const struct step_profile *p);
// The commands of a layer one after the other: what each takes, hatched where its threads wait.
void draw_layer(struct buf *to, const struct profile_result *r, const struct step_profile *p, uint32_t layer);
// Operations by arithmetic per byte and speed, under what the first device can do; areas are shares of time.
void draw_roofline(struct buf *to, const struct profile_result *r, const struct step_profile *p);
void draw_latencies(struct buf *to, const struct phases *p);
