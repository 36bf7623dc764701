// trellis_path.c - see trellis_path.h.
//
// What a state's successors have in common are its low 16 - bits bits, here the state's tail; what its
// predecessors have in common is what the state holds above its newest bits, which is their tail. So a walk
// keeps one cost for each tail, and for each step and tail the bits that the best state has above it.
#include "ops/trellis_search/trellis_path.h"
#include <math.h>
#include <string.h>
#include "device/cpu/cpu.h"

#define INLINE static inline __attribute__((always_inline))
#define SIMD   TARGET("avx2")

// APART: else values that are read together would lie in the same lines of the cache.
enum { STATES = TRELLIS_STATES, STEPS = TRELLIS_STEPS, APART = 16, ALIGNMENT = 64 };

typedef void step_fn(struct trellis_path *path, uint32_t at);

struct trellis_path {
    uint32_t bits, n_tails;
    step_fn *step;
    float *values;            // [STATES]
    float *costs[2];          // [n_tails]: before and behind a step
    uint8_t *choices;         // [STEPS, n_tails]
    float steps[STEPS], want; // the numbers to be met, and that of the step
};

static size_t n_values(uint32_t bits)
{
    return STATES + ((size_t)APART << bits);
}

size_t trellis_path_bytes(uint32_t bits)
{
    size_t n_tails = STATES >> bits, own = (sizeof(struct trellis_path) + ALIGNMENT - 1) / ALIGNMENT;

    return own * ALIGNMENT + (n_values(bits) + 2 * n_tails) * sizeof(float) + STEPS * n_tails;
}

typedef float costs_8 __attribute__((vector_size(32)));
typedef int32_t tops_8 __attribute__((vector_size(32)));

#define CHOOSE(where, a, b) (((where) & (a)) | (~(where) & (b)))

// The best states with tails t to t + 7. Those with the same bits `top` above them have predecessors whose
// tails are neighbours, each for 2^bits states.
INLINE void step_tails(struct trellis_path *path, uint32_t t, uint8_t *choices, const uint32_t bits)
{
    costs_8 best = (costs_8){ 0 } + INFINITY;
    tops_8 tops = { 0 };

    for (uint32_t top = 0; top < 1u << bits; top++) {
        const float *from = path->costs[0] + ((top * path->n_tails + t) >> bits);
        costs_8 before = (costs_8){ 0 } + from[0], miss;
        for (uint32_t i = 1; i < 8 && bits < 3; i++)
            before[i] = from[i >> bits];
        memcpy(&miss, path->values + (size_t)top * (path->n_tails + APART) + t, sizeof miss);
        miss -= path->want;
        costs_8 cost = before + miss * miss;
        tops_8 better = cost < best;
        best = (costs_8)CHOOSE(better, (tops_8)cost, (tops_8)best);
        tops = CHOOSE(better, (tops_8){ 0 } + (int32_t)top, tops);
    }
    memcpy(path->costs[1] + t, &best, sizeof best);
    for (uint32_t i = 0; i < 8; i++)
        choices[t + i] = (uint8_t)tops[i];
}

INLINE void step_bits(struct trellis_path *path, uint32_t at, const uint32_t bits)
{
    for (uint32_t t = 0; t < path->n_tails; t += 8)
        step_tails(path, t, path->choices + (size_t)at * path->n_tails, bits);
    float *behind = path->costs[1];
    path->costs[1] = path->costs[0];
    path->costs[0] = behind;
}

#define STEP_OF(n)              \
    case n:                     \
        step_bits(path, at, n); \
        break;
#define STEP_BODY                                                                               \
    switch (path->bits) {                                                                       \
        STEP_OF(1) STEP_OF(2) STEP_OF(3) STEP_OF(4) STEP_OF(5) STEP_OF(6) STEP_OF(7) STEP_OF(8) \
    }
static void step_plain(struct trellis_path *path, uint32_t at){ STEP_BODY }
#if defined(CPU_X86)
SIMD static void step_avx2(struct trellis_path *path, uint32_t at)
{
    STEP_BODY
}
#endif

static step_fn *best_step(void)
{
#if defined(CPU_X86)
    if (cpu_features() & CPU_AVX2)
        return step_avx2;
#endif
    return step_plain;
}

struct trellis_path *trellis_path_prepare(void *at, uint32_t bits, enum exl3_codebook codebook, bool plain)
{
    struct trellis_path *path = at;
    uint32_t n_tails = STATES >> bits;
    size_t own = (sizeof *path + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;

    *path = (struct trellis_path){ .bits = bits, .n_tails = n_tails };
    path->step = plain ? step_plain : best_step();
    path->values = (float *)(void *)((unsigned char *)at + own);
    path->costs[0] = path->values + n_values(bits);
    path->costs[1] = path->costs[0] + n_tails;
    path->choices = (uint8_t *)(path->costs[1] + n_tails);
    for (uint32_t s = 0; s < STATES; s++)
        path->values[s + s / n_tails * APART] = exl3_value(s, codebook);
    return path;
}

// Walks all positions from `first` on, around the ring.
static void walk(struct trellis_path *path, uint32_t first)
{
    for (uint32_t i = 0; i < STEPS; i++) {
        path->want = path->steps[(first + i) % STEPS];
        path->step(path, (first + i) % STEPS);
    }
}

// The state at a position, from the tail behind it.
static uint32_t state_at(const struct trellis_path *path, uint32_t p, uint32_t tail)
{
    return tail | (uint32_t)path->choices[(size_t)p * path->n_tails + tail] << (16 - path->bits);
}

// The tail behind the last position, on the best walk from the middle around.
static uint32_t closing_tail(struct trellis_path *path)
{
    uint32_t tail = 0;

    memset(path->costs[0], 0, path->n_tails * sizeof *path->costs[0]);
    walk(path, STEPS / 2);
    for (uint32_t t = 1; t < path->n_tails; t++)
        tail = path->costs[0][t] < path->costs[0][tail] ? t : tail;
    for (uint32_t p = STEPS / 2; p-- > 0;)
        tail = state_at(path, p, tail) >> path->bits;
    return tail;
}

static void put_bits(uint16_t *code, uint32_t at, uint32_t value, uint32_t bits)
{
    for (uint32_t i = 0; i < bits; i++, at++)
        if (value >> (bits - 1 - i) & 1) // words of 32 bits, the highest first
            code[at / 32 * 2 + (at % 32 < 16)] |= (uint16_t)(1u << (15 - at % 16));
}

void trellis_path_find(struct trellis_path *path, const float tile[EXL3_TILE][EXL3_TILE], uint16_t *code,
                       float decoded[EXL3_TILE][EXL3_TILE])
{
    for (uint32_t p = 0; p < STEPS; p++)
        path->steps[p] = tile[trellis_input_of(p)][trellis_output_of(p)];
    uint32_t tail = closing_tail(path);
    for (uint32_t t = 0; t < path->n_tails; t++)
        path->costs[0][t] = t == tail ? 0 : INFINITY;
    walk(path, 0);
    memset(code, 0, 2 * EXL3_TILE * path->bits);
    for (uint32_t p = STEPS; p-- > 0;) {
        uint32_t state = state_at(path, p, tail);
        put_bits(code, p * path->bits, state & ((1u << path->bits) - 1), path->bits);
        decoded[trellis_input_of(p)][trellis_output_of(p)] =
            path->values[state + state / path->n_tails * APART];
        tail = state >> path->bits;
    }
}
