// cpu.h - the CPU as a device, and the interface of its kernels.
//
// A kernel is a pair of functions: plan says how many tiles its work has in a given step, run computes a
// range of tiles. Threads take chunks of their own part of the tiles, then of other threads' parts. So a
// tile's result must not depend on which thread computes it or on what else is computed. A kernel with
// several phases gets a barrier between them.
// The plain kernel of an operation is its definition. Faster ones follow, each with the CPU features it
// needs.
#pragma once
#include "base/thread_pool.h"
#include "device/step.h"
#include "device/tape.h"

#if defined(__x86_64__)
#define CPU_X86 1
#elif defined(__aarch64__)
#define CPU_ARM 1
#endif
#define TARGET(features) __attribute__((target(features)))

enum {
    CPU_AVX2 = 1,   // AVX2, FMA, F16C
    CPU_AVX512 = 2, // F, BW, VL, DQ
    CPU_AVX512_VNNI = 4,
    CPU_AVX512_BF16 = 8,
    CPU_AVX_VNNI = 16,
    CPU_NEON = 32,
    CPU_DOTPROD = 64,
    CPU_I8MM = 128,
    CPU_AMX = 256, // int8
    CPU_ALL = 511,
};
enum { CPU_MAX_PHASES = 4, CPU_MAX_KERNELS = 7 };

struct cpu_call {
    const struct command *command;
    const struct step *step;
    void *local;     // this thread's own memory, plan.local_bytes; kept during one command, 64-byte aligned
    uint64_t *fresh; // bit p: this thread has not run phase p of this command before; kernels clear it after
                     // preparing `local`
    unsigned thread, n_threads;
};

struct cpu_plan {
    uint32_t n_phases;
    uint32_t n_tiles[CPU_MAX_PHASES];
    uint32_t n_together; // tiles that read neighbouring memory: best in one thread's part; 0: none
    size_t local_bytes;  // per thread; must not grow with a smaller step
};

struct cpu_kernel {
    void (*plan)(const struct cpu_call *call, struct cpu_plan *plan);
    // tiles [first, last)
    void (*run)(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last);
};

// Tells of rows of a weight that a command will read.
typedef void cpu_tell(void *arg, const struct weight *w, uint64_t first, uint64_t n_rows);

struct cpu_op {
    const char *name;
    bool by_rows; // what it makes of a row needs no other sequence's row of the step, and lies in values or
                  // the sequence's pages
    bool parts_are_faster; // than the plain loop, which is all there is: of CPUs the oracle alone has it
    // Which rows of its weights a command reads, known when it begins; NULL: all of them, known before.
    void (*reads)(const struct cpu_call *call, cpu_tell *tell, void *arg);
    struct cpu_kernel plain;
    struct cpu_choice {
        uint32_t needs; // CPU_* bits; the first choice whose needs are met is taken
        struct cpu_kernel kernel;
    } fast[CPU_MAX_KERNELS]; // ends with a NULL run
};

// What the operations give the device: their kernels, and weight repacking. See ops/cpu_table.c.
struct cpu_table {
    const struct cpu_op *const *ops; // [n_ops], by enum op
    uint32_t n_ops;
    // Repacks a matrix for products. Returns false with code ERR_NONE when it should stay as in the file.
    bool (*pack)(uint32_t features, struct thread_pool *pool, const struct weight_source *source,
                 struct weight *w, struct err *err);
};

struct cpu_options {
    unsigned n_threads; // 0: as many as this process may use
    uint32_t features;  // mask on the detected features; 0: CPU_ALL
    bool plain;         // only plain kernels, weights as in the file: the oracle
    bool parts;         // with plain: without the operations whose parts are faster, as other CPUs
    bool no_repack;     // weights stay as in the file, used from the mapping
    const struct cpu_table *table;
};

struct device *cpu_open(const struct cpu_options *options, struct err *err);
uint32_t cpu_features(void);         // what this CPU has, and INGOT_CPU_ISA allows
bool cpu_isa_check(struct err *err); // false: INGOT_CPU_ISA is no word that is known
void cpu_features_print(uint32_t features, char *text, size_t n); // "AVX2 AVX-512 VNNI BF16"
// Host memory of the device, for other devices' oracles and the packers.
bool cpu_buffer_alloc(struct device *d, uint64_t bytes, struct buffer *b, struct err *err);

static inline const void *cpu_args(const struct cpu_call *call)
{
    return call->command->args;
}
static inline bool cpu_has(const struct cpu_call *call, uint32_t operand)
{
    return call->command->operands[operand].buffer != NULL;
}
static inline void *cpu_base(const struct cpu_call *call, uint32_t operand) // NULL when absent
{
    const struct operand *o = &call->command->operands[operand];
    return o->buffer ? (unsigned char *)o->buffer->host + o->offset : NULL;
}
static inline void *cpu_row(const struct cpu_call *call, uint32_t operand, uint32_t row) // NULL when absent
{
    unsigned char *base = cpu_base(call, operand);
    return base ? base + row * call->command->operands[operand].row_bytes : NULL;
}
static inline const struct weight *cpu_weight(const struct cpu_call *call, uint32_t operand)
{
    return call->command->operands[operand].weight;
}
