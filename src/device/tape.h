// tape.h - one step of a model as a flat list of commands.
//
// A model records a tape once per stage and row bucket, a device seals it once, and every step plays it
// unchanged. What differs from step to step lives in the step's own device buffer (step.h), so that steps can
// be queued ahead and a tape is never patched. Recording cannot fail in the middle: the first error stays in
// the tape and tape_seal reports it with the command's label. One thread at a time.
#pragma once
#include "base/arena.h"
#include "device/device.h"
#include "device/step.h"

enum { TAPE_MAX_OPERANDS = 27, TAPE_ARGS_BYTES = 128 };
// Commands that are no operations: borders, but where devices exchange by themselves (tape_exchange.h).
enum { TAPE_TELL = UINT16_MAX - 3, TAPE_ALL_GATHER, TAPE_ALL_REDUCE, TAPE_BORDER };

// Numbers that one command writes and later ones read: [rows, n_cols] fp32. Sealing chooses their memory,
// which is reused after the last command that reads them. id 0 is no tensor.
struct tensor {
    uint32_t id;
    uint32_t n_cols;
    enum tensor_rows rows;
};

// What the bytes of an operand are, for tape_diff. Private: a kernel's own workspace, never compared. Packed:
// see fuse.h.
enum operand_type { OPERAND_F32, OPERAND_F16, OPERAND_BF16, OPERAND_U32, OPERAND_PRIVATE, OPERAND_PACKED };

struct operand {
    const struct buffer *buffer; // NULL: an absent operand, or scratch before the seal
    uint64_t offset, bytes;
    uint64_t row_bytes; // of a tensor or a weight: from one row to the next
    uint32_t tensor;    // id, or 0
    bool writes;
    enum operand_type type;
    const struct weight *weight; // or NULL
    // OPERAND_PACKED: its packing; the operand whose rows are packed; the norm that scales them, or NULL
    const struct tape_packing *packing;
    uint32_t rows;
    const struct weight *norm;
};

struct command {
    uint16_t op; // enum op, see ops/ops.def
    uint8_t n_operands;
    bool barrier; // before it; set by tape_seal: an earlier command since the last barrier touches one of
                  // these ranges
    bool border;  // no device plays it
    struct operand operands[TAPE_MAX_OPERANDS];
    _Alignas(16) unsigned char args[TAPE_ARGS_BYTES];
    const char *name;  // of the operation
    const char *label; // "layer3.attn_norm"
};

enum gemm { GEMM_AUTO, GEMM_OWN, GEMM_VENDOR }; // auto: our own kernels; the faster library for whole models

struct tape_limits {
    uint32_t max_rows, max_outputs; // of every step that will be played
    bool exact;                     // activations stay fp32 in products with quantised weights
    bool parts;                     // fused operations record their parts even if the device has them
    bool invariant; // a row's result has the same bits for any number of rows; always so on the CPU
    enum gemm gemm; // whose kernels multiply many rows, where the device has a choice
};

struct tape; // commands, tensors, sticky error; tape_internal.h shows it to devices

struct tape *tape_create(struct device *d, struct tape_limits limits); // NULL without memory
void tape_destroy(struct tape *t);                                     // NULL is allowed
const struct tape_limits *tape_limits(const struct tape *t);
bool tape_supports(const struct tape *t, uint32_t op); // the device has a kernel for it
// Whether the device has this fused operation and parts are not asked for.
bool tape_fuses(const struct tape *t, uint32_t op);

struct tensor tape_tensor(struct tape *t, uint32_t n_cols, enum tensor_rows rows);
// A tensor in the caller's memory: the activation block between stages, the logits. b holds max rows x n_cols
// fp32 and outlives t.
struct tensor tape_tensor_bound(struct tape *t, uint32_t n_cols, enum tensor_rows rows,
                                const struct buffer *b);

// Label of the commands that follow, as for printf: "layer%u.attn".
void tape_label(struct tape *t, const char *format, ...) PRINTF_LIKE(2, 3);

// Adds a command; args are copied. Its operands follow, in the order in which kernels number them. Returns
// NULL after an error; the calls below accept NULL.
struct command *tape_add(struct tape *t, uint16_t op, const char *name, const void *args,
                         uint32_t args_bytes);
void tape_reads(struct tape *t, struct command *c, struct tensor v); // id 0: an absent operand
void tape_writes(struct tape *t, struct command *c, struct tensor v);
// Workspace: written, never compared.
void tape_works_in(struct tape *t, struct command *c, struct tensor v);
void tape_reads_weight(struct tape *t, struct command *c, const struct weight *w); // NULL: an absent operand
// The whole buffer; NULL: an absent operand.
void tape_reads_buffer(struct tape *t, struct command *c, const struct buffer *b);
void tape_writes_buffer(struct tape *t, struct command *c, const struct buffer *b, enum operand_type type);

// Here another device changes v, a bound tensor. Between two borders lies a segment, which is played alone.
void tape_border(struct tape *t, struct tensor v);
// Borders (but: tape_exchange.h) where ranks, a tape each, exchange: v, bound, becomes the sum of all ranks'
// v in their order; the first rank's `whole`, id 0 on the others, has all parts column behind column.
void tape_all_reduce(struct tape *t, struct tensor v);
void tape_all_gather(struct tape *t, struct tensor part, struct tensor whole);

// Records an error; only the first is kept.
void tape_fail(struct tape *t, const char *format, ...) PRINTF_LIKE(2, 3);

// Chooses the packed operands, plans scratch memory, marks the barriers that are needed and no others, and
// prepares the device's own form.
bool tape_seal(struct tape *t, struct err *err);
// Plays a tape without borders. step.n_rows and n_outputs must be within the limits.
bool tape_play(struct tape *t, const struct buffer *step, struct err *err);
uint32_t tape_n_segments(const struct tape *t);                                    // one more than borders
const struct command *tape_segment_border(const struct tape *t, uint32_t segment); // NULL: it is the last
bool tape_play_segment(struct tape *t, const struct buffer *step, uint32_t segment, struct err *err);

// Plays a segment command by command, each after `before` was called, when its inputs lie where it will read
// them. False ends the play, with *err.
typedef bool tape_before(void *arg, const struct command *command, const struct step *step, struct err *err);
struct tape_watch {
    tape_before *before;
    void *arg;
};
bool tape_play_watched(struct tape *t, const struct buffer *step, uint32_t segment,
                       const struct tape_watch *watch, struct err *err);

// Plays it, notes when each command ran, and waits for the end. For devices with `timing`.
bool tape_play_timed(struct tape *t, const struct buffer *step, struct play_times *times, struct err *err);
// Plays one command n times, and waits for the end.
bool tape_play_repeated(struct tape *t, const struct buffer *step, uint32_t index, uint32_t n,
                        struct err *err);

uint32_t tape_n_commands(const struct tape *t);
const struct command *tape_command(const struct tape *t, uint32_t index);
// Rows of a tensor that a play with this step uses; 0: the operand is no tensor.
uint32_t tape_operand_rows(const struct tape *t, const struct operand *o, const struct step *step);
uint32_t tape_n_barriers(const struct tape *t);
uint64_t tape_scratch_bytes(const struct tape *t);
void tape_print(const struct tape *t, FILE *to); // the sealed list, barriers, scratch, kernels: --trace

// Plays two tapes that were recorded alike, on two devices, with the same step, but no border. Before each
// command the memory that it touches on a's device is copied to b's, so that every command is judged alone.
// Then the operands it wrote are compared, over the rows in use.
struct tape_difference {
    const char *label, *name;
    uint32_t command, operand;
    double error; // normalised squared error of the worst written operand; infinity where only one side has a
                  // NaN
};
// on_command is called for every command, in order; false stops the walk.
typedef bool tape_on_command(void *arg, const struct tape_difference *difference);
bool tape_diff(struct tape *a, struct tape *b, const struct buffer *steps[2], tape_on_command *on_command,
               void *arg, struct err *err);
