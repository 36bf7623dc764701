// embedded.c - see embedded.h.
//
// The assembler reads the file, so that no 8 MB array passes through the compiler, and the pages stay in the program's file until
// they are touched. INGOT_EMBED is the file's path, set by the build when the file is there.
#include "engine/embedded.h"

#ifdef INGOT_EMBED
#if defined(__APPLE__)
#define SECTION      ".const_data\n"
#define SYMBOL(name) "_" #name
#define HIDDEN       ".private_extern "
#define RESTORE      ".text\n"
#else
#define SECTION      ".pushsection .rodata.ingot_model,\"a\"\n"
#define SYMBOL(name) #name
#define HIDDEN       ".hidden "
#define RESTORE      ".popsection\n"
#endif
// clang-format off
__asm__(SECTION
        ".balign 64\n"
        ".globl " SYMBOL(embedded_model_first) "\n"
        HIDDEN SYMBOL(embedded_model_first) "\n"
        SYMBOL(embedded_model_first) ":\n"
        ".incbin \"" INGOT_EMBED "\"\n"
        ".globl " SYMBOL(embedded_model_end) "\n"
        HIDDEN SYMBOL(embedded_model_end) "\n"
        SYMBOL(embedded_model_end) ":\n"
        ".byte 0\n"
        RESTORE);
// clang-format on
extern const unsigned char embedded_model_first[], embedded_model_end[];

bool embedded_model(const void **bytes, size_t *n)
{
    *bytes = embedded_model_first;
    *n = (size_t)(embedded_model_end - embedded_model_first);
    return true;
}
#else
bool embedded_model(const void **bytes, size_t *n)
{
    *bytes = NULL;
    *n = 0;
    return false;
}
#endif

bool embedded_or_file(struct model_file **file, const char *path, struct err *err)
{
    const void *bytes;
    size_t n;

    if (path)
        return model_file_open(file, path, err);
    if (!embedded_model(&bytes, &n))
        return err_set(err, ERR_NOT_FOUND, "this build holds no model; name one with -m FILE");
    return model_file_open_memory(file, bytes, n, "built-in model", err);
}
