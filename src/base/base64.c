// base64.c - see base64.h. EVP_DecodeBlock takes white space at both ends and '=' for a digit of value 0
// anywhere, and counts the bytes that the padding stands for: these are checked here.
#include "base/base64.h"
#include <limits.h>
#include <openssl/evp.h>

void base64_append(struct buf *text, struct str bytes)
{
    size_t n = (bytes.n + 2) / 3 * 4;

    if (bytes.n > INT_MAX / 2)
        text->failed = true;
    if (bytes.n == 0 || !buf_reserve(text, n))
        return;
    // and NUL
    EVP_EncodeBlock((unsigned char *)text->at + text->n, (const unsigned char *)bytes.at, (int)bytes.n);
    text->n += n;
}

struct str base64_decode(struct str text, char *room, size_t n_room)
{
    size_t n = base64_room(text.n), n_pad = 0;

    while (n_pad < 2 && n_pad < text.n && text.at[text.n - 1 - n_pad] == '=')
        n_pad++;
    if (text.n == 0)
        return (struct str){ room, 0 };
    if (text.n % 4 != 0 || text.n > INT_MAX || n > n_room || memchr(text.at, '=', text.n - n_pad) ||
        EVP_DecodeBlock((unsigned char *)room, (const unsigned char *)text.at, (int)text.n) != (int)n)
        return (struct str){ 0 };
    for (size_t i = n - n_pad; i < n; i++)
        if (room[i])
            return (struct str){ 0 };
    return (struct str){ room, n - n_pad };
}
