// auth.c - see auth.h.
#include "server/http/auth.h"
#include <strings.h>
#include "base/base64.h"

bool auth_same_key(struct str given, const char *key)
{
    size_t n = strlen(key);
    volatile unsigned char different = (unsigned char)(given.n != n);

    for (size_t i = 0; i < given.n; i++)
        different =
            (unsigned char)(different | ((unsigned char)given.at[i] ^ (unsigned char)key[n ? i % n : 0]));
    return !different && n > 0;
}

// The password of "user:password".
static struct str basic_password(struct str text, char *room, size_t n_room)
{
    struct str both = base64_decode(text, room, n_room);
    const char *colon = both.n ? memchr(both.at, ':', both.n) : NULL;

    return colon ? str_from_to(both, (size_t)(colon + 1 - both.at), both.n) : (struct str){ "", 0 };
}

static bool takes_scheme(struct str *text, struct str scheme)
{
    if (text->n <= scheme.n || strncasecmp(text->at, scheme.at, scheme.n) != 0)
        return false;
    *text = str_from_to(*text, scheme.n, text->n);
    while (text->n && text->at[0] == ' ')
        *text = str_from_to(*text, 1, text->n);
    return true;
}

struct str auth_key_of(const char *authorization, const char *x_api_key, char *room, size_t n_room)
{
    if (authorization) {
        struct str text = str_from(authorization);
        if (takes_scheme(&text, STR("Bearer ")))
            return text;
        if (takes_scheme(&text, STR("Basic ")))
            return basic_password(text, room, n_room);
    }
    return x_api_key ? str_from(x_api_key) : (struct str){ "", 0 };
}

static bool equal_ignoring_case(struct str a, const char *b)
{
    return a.n == strlen(b) && strncasecmp(a.at, b, a.n) == 0;
}

// Splits ":digits" off the end. False: something else follows the name.
static bool split_port(struct str host, struct str *name)
{
    size_t end = 0;

    if (host.n && host.at[0] == '[')
        while (end < host.n && host.at[end] != ']')
            end++;
    while (end < host.n && host.at[end] != ':')
        end++;
    *name = str_from_to(host, 0, end);
    if (end == host.n)
        return true;
    if (host.n - end < 2 || host.n - end > 6)
        return false;
    for (size_t i = end + 1; i < host.n; i++)
        if (host.at[i] < '0' || host.at[i] > '9')
            return false;
    return true;
}

bool auth_host_is_loopback(struct str host)
{
    struct str name;
    return split_port(host, &name) &&
           (equal_ignoring_case(name, "localhost") || equal_ignoring_case(name, "127.0.0.1") ||
            equal_ignoring_case(name, "[::1]"));
}

bool auth_address_is_loopback(const char *address)
{
    return !strcmp(address, "127.0.0.1") || !strcmp(address, "::1") || !strcmp(address, "localhost");
}

bool auth_origin_is_host(struct str origin, struct str host)
{
    struct str schemes[] = { STR("http://"), STR("https://") };

    for (size_t i = 0; i < 2; i++)
        if (str_starts(origin, schemes[i]) && origin.n - schemes[i].n == host.n &&
            strncasecmp(origin.at + schemes[i].n, host.at, host.n) == 0)
            return true;
    return false;
}

bool auth_length_is_plain(struct str text)
{
    uint64_t value;

    for (size_t i = 0; i < text.n; i++)
        if (text.at[i] < '0' || text.at[i] > '9')
            return false;
    return str_to_u64(text, &value) && value <= INT64_MAX;
}
