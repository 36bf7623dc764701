// embedded.h - the model that ships inside the library, so that a fresh build can answer without a download.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// A GGUF image, valid as long as the process, 64-byte aligned. False when this build carries none.
bool embedded_model(const void **bytes, size_t *n);
