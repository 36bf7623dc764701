// page.c - see page.h. The assembler reads the file, as for the model that ships inside (engine/embedded.c).
#include "server/page.h"

#if defined(__APPLE__)
#define SECTION      ".const_data\n"
#define SYMBOL(name) "_" #name
#define HIDDEN       ".private_extern "
#define RESTORE      ".text\n"
#else
#define SECTION      ".pushsection .rodata.ingot_page,\"a\"\n"
#define SYMBOL(name) #name
#define HIDDEN       ".hidden "
#define RESTORE      ".popsection\n"
#endif
// clang-format off
__asm__(SECTION
        ".globl " SYMBOL(page_first) "\n"
        HIDDEN SYMBOL(page_first) "\n"
        SYMBOL(page_first) ":\n"
        ".incbin \"" INGOT_PAGE "\"\n"
        ".globl " SYMBOL(page_end) "\n"
        HIDDEN SYMBOL(page_end) "\n"
        SYMBOL(page_end) ":\n"
        ".byte 0\n"
        RESTORE);
// clang-format on
extern const char page_first[], page_end[];

struct str page_html(void)
{
    return (struct str){ page_first, (size_t)(page_end - page_first) };
}
