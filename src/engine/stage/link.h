// link.h - hands a step's activations from one stage to the next.
#pragma once
#include "engine/stage/stage.h"

// Copies n_rows of the residual stream from a stage's block to the next stage's. Waits for the first stage's
// device.
bool link_pass(struct stage *from, struct stage *to, uint32_t n_rows, struct err *err);
