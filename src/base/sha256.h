// sha256.h - SHA-256 by OpenSSL's libcrypto: keys of pages, sums of files.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct sha256 {
    unsigned char at[32];
};
enum { SHA256_HEX_BYTES = 65 }; // lower-case digits and a NUL
struct sha256_stream;

struct sha256_stream *sha256_open(void);    // NULL: no memory
void sha256_close(struct sha256_stream *s); // NULL is allowed
void sha256_add(struct sha256_stream *s, const void *bytes, size_t n);
// The digest of all bytes added; resets the stream for the next one.
struct sha256 sha256_take(struct sha256_stream *s);
void sha256_hex(const struct sha256 *sum, char hex[SHA256_HEX_BYTES]);

static inline bool sha256_eq(const struct sha256 *a, const struct sha256 *b)
{
    return memcmp(a->at, b->at, sizeof a->at) == 0;
}
