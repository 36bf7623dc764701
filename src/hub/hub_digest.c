// hub_digest.c - see hub_digest.h. Once a digest is open, libcrypto has its memory: a failure then is a bug,
// so it is a CHECK.
#include "hub/hub_digest.h"
#include <openssl/evp.h>
#include "base/mem.h"

struct hub_digest {
    EVP_MD_CTX *state;
    const EVP_MD *kind;
    uint64_t bytes;
};

struct hub_digest *hub_digest_open(const char *oid, uint64_t bytes)
{
    struct hub_digest *s = mem_alloc(sizeof *s);

    if (!s)
        return NULL;
    s->state = EVP_MD_CTX_new();
    s->kind = strlen(oid) == HUB_OID ? EVP_sha256() : EVP_sha1();
    s->bytes = bytes;
    if (s->state && EVP_DigestInit_ex(s->state, s->kind, NULL) == 1) {
        hub_digest_restart(s);
        return s;
    }
    hub_digest_close(s);
    return NULL;
}

void hub_digest_close(struct hub_digest *s)
{
    if (s)
        EVP_MD_CTX_free(s->state);
    mem_free(s);
}

void hub_digest_restart(struct hub_digest *s)
{
    char head[32];
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)s->bytes);

    CHECK(EVP_DigestInit_ex(s->state, NULL, NULL) == 1);
    if (EVP_MD_get_size(s->kind) == 20) // git hashes this before the bytes, its NUL included
        hub_digest_add(s, head, (size_t)n + 1);
}

void hub_digest_add(struct hub_digest *s, const void *bytes, size_t n)
{
    CHECK(EVP_DigestUpdate(s->state, bytes, n) == 1);
}

void hub_digest_take(struct hub_digest *s, char oid[HUB_OID + 1])
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    CHECK(EVP_DigestFinal_ex(s->state, sum, &n) == 1 && 2 * n <= HUB_OID);
    for (unsigned i = 0; i < n; i++)
        snprintf(oid + 2 * (size_t)i, 3, "%02x", sum[i]);
    hub_digest_restart(s);
}
