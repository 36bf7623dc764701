// page.c - see page.h. INGOT_PAGE is the path of the page that cmake/page.cmake assembles.
#include "server/page.h"
#include <pthread.h>
#include "base/base64.h"
#include "base/incbin.h"
#include "base/sha256.h"

INCBIN(page, INGOT_PAGE);

static char policy[1024];

struct str page_html(void)
{
    return (struct str){ page_first, (size_t)(page_end - page_first) };
}

const char *page_markdown_it(void)
{
    return INGOT_PAGE_MARKDOWN_IT;
}

// Appends the SHA-256 of the text between each pair of tags, in the form of a policy.
static void add_sums(struct buf *b, struct sha256_stream *s, struct str open, struct str close)
{
    struct str rest = page_html();

    for (size_t at = str_find(rest, open); at != SIZE_MAX; at = str_find(rest, open)) {
        rest = str_from_to(rest, at + open.n, rest.n);
        size_t n = str_find(rest, close);
        sha256_add(s, rest.at, n == SIZE_MAX ? rest.n : n);
        struct sha256 sum = sha256_take(s);
        buf_text(b, " 'sha256-");
        base64_append(b, (struct str){ (const char *)sum.at, sizeof sum.at });
        buf_text(b, "'");
    }
}

static void make_policy(void)
{
    struct buf b = { 0 };
    struct sha256_stream *s = sha256_open();

    if (s) {
        buf_text(&b, "default-src 'none'; script-src");
        add_sums(&b, s, STR("<script>"), STR("</script>"));
        buf_text(&b, "; style-src");
        add_sums(&b, s, STR("<style>"), STR("</style>"));
        buf_text(&b, "; img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                     "frame-ancestors 'none'; "
                     "require-trusted-types-for 'script'; trusted-types 'none'");
    }
    bool fits = s && !b.failed && b.n < sizeof policy;
    memcpy(policy, fits ? b.at : "default-src 'none'", fits ? b.n + 1 : sizeof "default-src 'none'");
    sha256_close(s);
    buf_free(&b);
}

const char *page_policy(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_policy);
    return policy;
}
