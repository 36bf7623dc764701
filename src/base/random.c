// random.c - see random.h. The system's generator, which needs no memory: libcrypto's fails without.
#include "base/random.h"
#include <sys/random.h>
#include <unistd.h>
#include "base/err.h"

uint64_t random_u64(void)
{
    uint64_t x;

    CHECK(getentropy(&x, sizeof x) == 0);
    return x;
}
