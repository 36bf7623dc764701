// random.c - see random.h. libcrypto's generator.
#include "base/random.h"
#include <openssl/rand.h>
#include "base/err.h"

uint64_t random_u64(void)
{
    uint64_t x;

    CHECK(RAND_bytes((unsigned char *)&x, sizeof x) == 1);
    return x;
}
