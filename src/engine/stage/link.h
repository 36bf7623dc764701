// link.h - hands a step's activations from one stage to the next.
#pragma once
#include "engine/stage/stage.h"

struct link {
    struct stage *from, *to; // borrowed
    void *room;              // host memory for max_rows, where neither end's block is; else NULL
};

bool link_create(struct link *l, struct stage *from, struct stage *to, struct err *err);
void link_release(struct link *l); // zeroed is allowed
// Copies n_rows of the residual stream from a stage's block to the next stage's, and waits for the first
// stage's device. Where both have one block (stage_plan.before), nothing is copied and there is no wait.
bool link_pass(struct link *l, uint32_t n_rows, struct err *err);
