// sha256.c - see sha256.h. By libcrypto's own functions for this one hash, which need no memory and cannot
// fail. The general ones (EVP) allocate whenever a sum begins, read a configuration file and load providers
// at the first use, which takes 1.5 ms, and then 195 ns for a page's key in place of 141. These are
// deprecated since OpenSSL 3.0.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/sha256.h"
#include <openssl/sha.h>
#include <stdio.h>
#include "base/err.h"
#include "base/mem.h"

struct sha256_stream {
    SHA256_CTX state;
};

struct sha256_stream *sha256_open(void)
{
    struct sha256_stream *s = mem_alloc(sizeof *s);

    if (s)
        CHECK(SHA256_Init(&s->state) == 1);
    return s;
}

void sha256_close(struct sha256_stream *s)
{
    mem_free(s);
}

void sha256_add(struct sha256_stream *s, const void *bytes, size_t n)
{
    CHECK(SHA256_Update(&s->state, bytes, n) == 1);
}

struct sha256 sha256_take(struct sha256_stream *s)
{
    struct sha256 sum;

    CHECK(SHA256_Final(sum.at, &s->state) == 1 && SHA256_Init(&s->state) == 1);
    return sum;
}

void sha256_hex(const struct sha256 *sum, char hex[SHA256_HEX_BYTES])
{
    for (size_t i = 0; i < sizeof sum->at; i++)
        snprintf(hex + 2 * i, 3, "%02x", sum->at[i]);
}
