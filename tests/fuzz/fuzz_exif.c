// fuzz_exif.c - libFuzzer: any bytes as EXIF data, which has an orientation in the end.
#include "base/mem.h"
#include "image/picture_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = mem_alloc(size ? size : 1); // exactly as long

    if (size)
        memcpy(copy, data, size);
    uint32_t orientation = picture_orientation((struct str){ copy, size });
    CHECK(orientation >= 1 && orientation <= 8);
    mem_free(copy);
    return 0;
}
