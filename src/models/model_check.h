// model_check.h - compares the description of a model with the contents of its file; private to models/.
#pragma once
#include "models/model.h"

// Before tensors are bound: activation, length of value vectors, window, quantization_config.
bool model_check_config(const struct model *m, struct err *err);
// After that: biases, a head of its own, unused tensors. Unused tensors beside the language model are a
// warning of one line.
bool model_check_tensors(const struct model *m, struct err *err);
