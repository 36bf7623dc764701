// install.c - linked into a test, it puts the emulated driver in the place of NVIDIA's, and its kernels in
// the place of this build's.
#include "device/cuda/cuda.h"
#include "run/cuda_driver.h"

const struct cuda_image cuda_images[] = { { "the emulator's kernels", "" }, { 0, 0 } };
const uint32_t cuda_n_images = 1;
const char *const cuda_images_missing = "";

__attribute__((constructor)) static void install(void)
{
    driver_replace(&cuda_driver_emulated);
}
