// sha256.c - see sha256.h. The library's failures here are bugs or an installation without SHA-256: there is
// no way to go on.
#include "base/sha256.h"
#include <openssl/evp.h>
#include "base/err.h"
#include "base/mem.h"

struct sha256_stream {
    EVP_MD_CTX *state;
};

struct sha256_stream *sha256_open(void)
{
    struct sha256_stream *s = mem_alloc(sizeof *s);

    if (!s)
        return NULL;
    s->state = EVP_MD_CTX_new();
    if (s->state && EVP_DigestInit_ex(s->state, EVP_sha256(), NULL) == 1)
        return s;
    sha256_close(s);
    return NULL;
}

void sha256_close(struct sha256_stream *s)
{
    if (s)
        EVP_MD_CTX_free(s->state);
    mem_free(s);
}

void sha256_add(struct sha256_stream *s, const void *bytes, size_t n)
{
    CHECK(EVP_DigestUpdate(s->state, bytes, n) == 1);
}

struct sha256 sha256_take(struct sha256_stream *s)
{
    struct sha256 sum;
    unsigned n = sizeof sum.at;

    CHECK(EVP_DigestFinal_ex(s->state, sum.at, &n) == 1 && n == sizeof sum.at);
    CHECK(EVP_DigestInit_ex(s->state, NULL, NULL) == 1);
    return sum;
}
