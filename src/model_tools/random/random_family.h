// random_family.h - what random models of a family have beside their sizes: factors, windows, stretched
// rotations.
#pragma once
#include "format/gguf_write.h"
#include "model_tools/random/random_shapes.h"

void random_family_keys(const struct random_shape *h, struct gguf_writer *w);
