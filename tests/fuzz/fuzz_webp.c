// fuzz_webp.c - libFuzzer: any bytes as a WebP file; see fuzz_picture.h.
#include "fuzz_picture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_picture(data, size);
    return 0;
}
