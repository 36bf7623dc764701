// page.c - see page.h. INGOT_PAGE is the file's path, set by the build.
#include "server/page.h"
#include "base/incbin.h"

INCBIN(page, INGOT_PAGE);

struct str page_html(void)
{
    return (struct str){ page_first, (size_t)(page_end - page_first) };
}
