// features.c - the CPU's features, detected at run time: the binary is never built for one machine.
// INGOT_CPU_ISA leaves out some: machines with unlike processors then take the same kernels, and one machine
// tests the kernels of another.
#include <string.h>
#include "base/options.h"
#include "device/cpu/cpu.h"
#if defined(CPU_ARM) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(CPU_ARM) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#if defined(CPU_X86)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

static bool has_f16c(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}

static uint32_t has_avx_vnni(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1) ? CPU_AVX_VNNI : 0;
}

static uint32_t has_avx512_bf16(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1) ? CPU_AVX512_BF16 : 0;
}

#if defined(__linux__)
// Linux grants the use of AMX tiles on request, once per process.
static uint32_t has_amx(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    unsigned a = 0, b = 0, c = 0, d = 0;
    bool present = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1) && (d >> 25 & 1);
    return present && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 ? CPU_AMX : 0;
}
#else
static uint32_t has_amx(void)
{
    return 0;
}
#endif

// __builtin_cpu_supports also checks that the system saves the wide registers.
static uint32_t detect(void)
{
    uint32_t f = 0;

    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        f |= CPU_AVX2 | has_avx_vnni();
    if ((f & CPU_AVX2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        f |= CPU_AVX512;
    if ((f & CPU_AVX512) && __builtin_cpu_supports("avx512vnni"))
        f |= CPU_AVX512_VNNI | has_avx512_bf16() | has_amx();
    return f;
}
#elif defined(CPU_ARM) && defined(__linux__)
static uint32_t detect(void)
{
    unsigned long one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
    return CPU_NEON | (one >> 20 & 1 ? CPU_DOTPROD : 0) | (two >> 13 & 1 ? CPU_I8MM : 0);
}
#elif defined(CPU_ARM) && defined(__APPLE__)
static uint32_t sysctl_bit(const char *name, uint32_t bit)
{
    int value = 0;
    size_t n = sizeof value;
    return sysctlbyname(name, &value, &n, NULL, 0) == 0 && value ? bit : 0;
}

static uint32_t detect(void)
{
    return CPU_NEON | sysctl_bit("hw.optional.arm.FEAT_DotProd", CPU_DOTPROD) |
           sysctl_bit("hw.optional.arm.FEAT_I8MM", CPU_I8MM);
}
#else
static uint32_t detect(void)
{
    return 0;
}
#endif

// The words are those of oneDNN's ONEDNN_MAX_CPU_ISA.
static const struct {
    const char *name;
    uint32_t features;
} isas[] = {
    { "none", 0 },
    { "avx2", CPU_AVX2 },
    { "avx2_vnni", CPU_AVX2 | CPU_AVX_VNNI },
    { "avx512", CPU_AVX2 | CPU_AVX512 },
    { "avx512_vnni", CPU_AVX2 | CPU_AVX_VNNI | CPU_AVX512 | CPU_AVX512_VNNI },
    { "avx512_bf16", CPU_AVX2 | CPU_AVX_VNNI | CPU_AVX512 | CPU_AVX512_VNNI | CPU_AVX512_BF16 },
    { "neon", CPU_NEON },
    { "neon_dotprod", CPU_NEON | CPU_DOTPROD },
};
enum { N_ISAS = sizeof isas / sizeof *isas };

static unsigned find_isa(void)
{
    const char *name = options_cpu_isa();
    unsigned i = 0;

    while (name && i < N_ISAS && strcmp(isas[i].name, name) != 0)
        i++;
    return name ? i : N_ISAS;
}

uint32_t cpu_features(void)
{
    unsigned isa = find_isa();

    return detect() & (isa < N_ISAS ? isas[isa].features : (uint32_t)CPU_ALL);
}

bool cpu_isa_check(struct err *err)
{
    return !options_cpu_isa() || find_isa() < N_ISAS ||
           err_set(err, ERR_INPUT,
                   "INGOT_CPU_ISA is '%s'; expected none, avx2, avx2_vnni, avx512, avx512_vnni, avx512_bf16, "
                   "neon or neon_dotprod",
                   options_cpu_isa());
}

void cpu_features_print(uint32_t features, char *text, size_t n)
{
    static const char *const names[] = { "AVX2", "AVX-512", "VNNI", "BF16", "AVX-VNNI",
                                         "NEON", "DOTPROD", "I8MM", "AMX" };

    snprintf(text, n, "%s", features ? "" : "no SIMD");
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (features >> i & 1)
            snprintf(text + strlen(text), n - strlen(text), "%s%s", *text ? " " : "", names[i]);
}
