// incbin.h - a file of the build inside the program.
//
// The assembler reads it, so that no array of megabytes passes through the compiler, and its pages stay in
// the program's file until they are touched. INCBIN(name, PATH) at file scope makes name_first[] and
// name_end[], 64 bytes aligned and followed by a zero byte.
#pragma once
#if defined(__APPLE__)
#define INCBIN_SECTION(name) ".const_data\n"
#define INCBIN_SYMBOL(name)  "_" #name
#define INCBIN_HIDDEN        ".private_extern "
#define INCBIN_RESTORE       ".text\n"
#else
#define INCBIN_SECTION(name) ".pushsection .rodata.ingot_" #name ",\"a\"\n"
#define INCBIN_SYMBOL(name)  #name
#define INCBIN_HIDDEN        ".hidden "
#define INCBIN_RESTORE       ".popsection\n"
#endif
// clang-format off
#define INCBIN_LABEL(name) \
    ".globl " INCBIN_SYMBOL(name) "\n" INCBIN_HIDDEN INCBIN_SYMBOL(name) "\n" INCBIN_SYMBOL(name) ":\n"
#define INCBIN(name, path) \
    __asm__(INCBIN_SECTION(name) ".balign 64\n" INCBIN_LABEL(name##_first) ".incbin \"" path "\"\n" \
            INCBIN_LABEL(name##_end) ".byte 0\n" INCBIN_RESTORE); \
    extern const char name##_first[], name##_end[]
// clang-format on
