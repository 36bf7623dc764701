// sizes.h - copies structs of ingot.h between a program and a library built with different sizes of them; see
// ingot.h, "Sizes".
#pragma once
#include "base/err.h"
#include "ingot.h"

// Copies the program's options over the defaults. ERR_INPUT: a size is 0, or larger than this library's.
bool sizes_take_engine(struct ingot_engine_options *to, const struct ingot_engine_options *from,
                       struct err *err);
bool sizes_take_request(struct ingot_request_options *to, const struct ingot_request_options *from,
                        struct err *err);
// Fills the program's struct of `size` bytes from one of `known` bytes. Members that the library does not
// know are 0.
void sizes_give(void *to, size_t size, const void *from, size_t known);
