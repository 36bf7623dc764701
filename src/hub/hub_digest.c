// hub_digest.c - see hub_digest.h. By libcrypto's functions without memory; base/sha256.c says why.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "hub/hub_digest.h"
#include <openssl/sha.h>
#include "base/mem.h"
#include "base/sha256.h"

struct hub_digest {
    struct sha256_stream *sha256; // NULL: git's
    SHA_CTX sha1;
    uint64_t bytes;
};

struct hub_digest *hub_digest_open(const char *oid, uint64_t bytes)
{
    struct hub_digest *s = mem_alloc(sizeof *s);
    bool is_lfs = strlen(oid) == HUB_OID;

    if (!s)
        return NULL;
    *s = (struct hub_digest){ .sha256 = is_lfs ? sha256_open() : NULL, .bytes = bytes };
    if (is_lfs && !s->sha256) {
        hub_digest_close(s);
        return NULL;
    }
    hub_digest_restart(s);
    return s;
}

void hub_digest_close(struct hub_digest *s)
{
    if (s)
        sha256_close(s->sha256);
    mem_free(s);
}

void hub_digest_restart(struct hub_digest *s)
{
    char head[32];
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)s->bytes);

    if (s->sha256) {
        sha256_take(s->sha256);
        return;
    }
    CHECK(SHA1_Init(&s->sha1) == 1);
    hub_digest_add(s, head, (size_t)n + 1); // git hashes this before the bytes, its NUL included
}

void hub_digest_add(struct hub_digest *s, const void *bytes, size_t n)
{
    if (s->sha256)
        sha256_add(s->sha256, bytes, n);
    else
        CHECK(SHA1_Update(&s->sha1, bytes, n) == 1);
}

void hub_digest_take(struct hub_digest *s, char oid[HUB_OID + 1])
{
    struct sha256 sum = { 0 };
    unsigned n = s->sha256 ? SHA256_DIGEST_LENGTH : SHA_DIGEST_LENGTH;

    if (s->sha256)
        sum = sha256_take(s->sha256);
    else
        CHECK(SHA1_Final(sum.at, &s->sha1) == 1);
    for (unsigned i = 0; i < n; i++)
        snprintf(oid + 2 * (size_t)i, 3, "%02x", sum.at[i]);
    hub_digest_restart(s);
}
