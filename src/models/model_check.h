// model_check.h - what a file says of its model against what it holds; private to models/.
#pragma once
#include "models/model.h"

// Before tensors are bound: the activation, the length of values, the window, quantization_config.
bool model_check_config(const struct model *m, struct err *err);
// After: biases, a head of its own, tensors that nothing uses. Warns in one line of unused tensors beside the
// language model.
bool model_check_tensors(const struct model *m, struct err *err);
