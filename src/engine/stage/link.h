// link.h - hands a step's activations from one stage to the next.
#pragma once
#include "engine/stage/stage.h"

enum link_kind {
    LINK_SHARED, // both have one block: nothing is copied, and nobody waits
    LINK_DIRECT, // from device to device, over a link between them; no thread waits
    LINK_DRIVER, // the same through the host, as the driver does it
    LINK_HOST,   // through the host: in one copy where an end shares its memory
    N_LINKS
};

struct link {
    struct stage *from, *to; // borrowed
    enum link_kind kind;
    void *room; // host memory for max_rows, where neither end's block is; else NULL
};

bool link_create(struct link *l, struct stage *from, struct stage *to, struct err *err);
void link_release(struct link *l); // zeroed is allowed
// Copies n_rows of the residual stream from a stage's block to the next stage's. LINK_HOST waits for the
// first stage's device.
bool link_pass(struct link *l, uint32_t n_rows, struct err *err);
// Whether the last stage's device sends tokens back to the first one's, through no stage on the host: then a
// step follows before the host knows what the one before has drawn. Of stages that share a history: false.
bool link_returns_tokens(const struct link *links, uint32_t n_links, bool *returns, struct err *err);
// The token at a position of a slot's history, behind the step that draws it and before what is played next.
bool link_return_token(const struct stage *last, struct stage *first, uint32_t slot, uint32_t position,
                       struct err *err);
const char *link_name(enum link_kind kind);
