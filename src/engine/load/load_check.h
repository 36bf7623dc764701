// load_check.h - whether the devices have kernels for what a model is made of.
#pragma once
#include "engine/engine.h"

// Known before a weight is read; the message says which device could do it.
bool load_check_devices(const struct engine_loaded *l, struct err *err);
