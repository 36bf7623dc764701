// plan_packing.c - packs the activations of a product: the packings that its kernels read, where they lie,
// and which launch writes them.
//
// A packing that the command before wrote (device/fuse.h) is read where it lies. Else a launch of
// pack_rows.cu writes it into the operation's workspace, or into the tape's private memory where that is too
// small.
#include "gemm/cuda/gemm_plan.h"

u64 packing_int8_bytes(u32 max_rows, u32 n_cols)
{
    return (u64)divide_up(max_rows, 8) * (n_cols / 32) * PACKED_INT8_BYTES;
}
u64 packing_bf16_bytes(u32 max_rows, u32 packed_cols)
{
    return (u64)divide_up(max_rows, PACKED_TILE_ROWS) * PACKED_TILE_ROWS * packed_cols * 2;
}
u64 packing_squares_bytes(u32 n_cols)
{
    return (u64)n_cols / 32 * 8 * 4;
}

// The packings that a product's matrices read: bits of enum packing.
static u32 forms_of(const struct cuda_plan *p, const struct gemm_plan *product)
{
    static const u32 reads[] = { [KERNEL_GEMM_INT8] = 1 << PACKING_INT8,
                                 [KERNEL_GEMM_TMA] = 1 << PACKING_BF16,
                                 [KERNEL_GEMM_STAGED_INT8] = 1 << PACKING_INT8_TILES,
                                 [KERNEL_GEMM_FEW] = 1 << PACKING_MMA,
                                 [KERNEL_GEMM_MANY] = 1 << PACKING_MMA };
    u32 forms = 0;

    for (u32 m = 0; m < gemm_n_matrices(&product->params); m++)
        forms |= reads[gemm_kernel_of(p, product, m)];
    return forms;
}

// PACKING_MMA in the tiles of gemm_hopper, not in those of gemm_few.
static bool reads_hopper_tiles(const struct cuda_plan *p, const struct gemm_plan *product)
{
    bool hopper = true;

    for (u32 m = 0; m < gemm_n_matrices(&product->params); m++)
        hopper = hopper && gemm_kernel_of(p, product, m) == KERNEL_GEMM_MANY &&
                 gemm_hopper_fits(p, product->params.w[m].format, product->params.n_cols);
    return hopper;
}

const struct tape_packing *gemm_packing_read(const struct cuda_plan *p, const struct gemm_plan *product)
{
    const struct gemm_params *params = &product->params;
    u32 forms = forms_of(p, product);

    if (params->norm && gemm_max_rows(p, params) > 8)
        return NULL;
    if (params->rows != ROWS_STEP && forms != 1 << PACKING_BF16)
        return NULL;
    if (forms == 1 << PACKING_MMA && params->n_cols % 128 == 0 && !gemm_wants_vendor(p, product) &&
        reads_hopper_tiles(p, product))
        return &gemm_packing_mma;
    if (forms == 1 << PACKING_BF16 && params->n_cols % 128 == 0 && !gemm_wants_vendor(p, product))
        return &gemm_packing_bf16;
    if (forms == 1 << PACKING_INT8_TILES && !gemm_wants_vendor(p, product))
        return gemm_staged_int8_reads(product);
    return forms == 1 << PACKING_INT8 ? &gemm_packing_int8 : NULL;
}

bool gemm_packing_written(const struct cuda_plan *p, const struct gemm_plan *product,
                          const struct tape_packing *packing)
{
    const struct gemm_params *params = &product->params;
    enum gemm_kernel kernel = gemm_kernel_of(p, product, 0);
    bool many = kernel == KERNEL_GEMM_MANY && gemm_hopper_fits(p, params->w[0].format, params->n_cols),
         hopper = many || (kernel == KERNEL_GEMM_TMA && packing != &gemm_packing_mma);

    if (params->rows != ROWS_STEP || gemm_wants_vendor(p, product))
        return false;
    if (kernel == KERNEL_GEMM_STAGED_INT8 || packing == &gemm_packing_int8_tiles ||
        packing == &gemm_packing_int8_wide)
        return kernel == KERNEL_GEMM_STAGED_INT8 && gemm_staged_int8_packs(params, packing);
    if (packing == &gemm_packing_int8)
        return params->mode == EPILOGUE_LINEAR && kernel == KERNEL_GEMM_INT8 && gemm_int8_packs(p, params);
    return hopper && !params->add && params->out_stride[0] % 2 == 0 &&
           (params->mode == EPILOGUE_LINEAR || params->mode == EPILOGUE_ACTIVATED ||
            (params->mode == EPILOGUE_GATED && packing != &gemm_packing_rows));
}

static u64 address_of(const struct operand *o)
{
    return (u64)(uintptr_t)o->buffer->native + o->offset;
}

struct packed_out gemm_packed_out(const struct cuda_plan *p, u32 out)
{
    const struct operand *o = fuse_packed_result(p->command, out);

    if (!o || !o->buffer) // none, or tape_seal has not placed it yet
        return (struct packed_out){ 0 };
    u32 n_cols = (u32)(p->command->operands[o->rows].row_bytes / 4);
    return (struct packed_out){ .at = address_of(o),
                                .norm = o->norm ? (u64)(uintptr_t)o->norm->buffer.native : 0,
                                .squares = o->norm
                                               ? address_of(o) + packing_int8_bytes(p->tape.max_rows, n_cols)
                                               : 0,
                                .form = o->packing == &gemm_packing_bf16         ? PACKING_BF16
                                        : o->packing == &gemm_packing_int8_tiles ? PACKING_INT8_TILES
                                        : o->packing == &gemm_packing_int8_wide  ? PACKING_INT8_WIDE
                                        : o->packing == &gemm_packing_mma        ? PACKING_MMA
                                        : o->packing == &gemm_packing_rows       ? PACKING_BF16_ROWS
                                                                                 : PACKING_INT8,
                                .n_cols = n_cols };
}

// The address of the next rows in a packing.
struct packing_room {
    u64 work, work_bytes, private_at;
};
static u64 take_room(struct cuda_plan *p, struct packing_room *room, u64 bytes)
{
    u64 at = room->work;

    bytes = (bytes + 255) / 256 * 256;
    if (bytes <= room->work_bytes) {
        room->work += bytes;
        room->work_bytes -= bytes;
        return at;
    }
    at = room->private_at;
    room->private_at += bytes;
    p->private_bytes = room->private_at - p->private_at;
    return at;
}

static void launch_mma(struct cuda_plan *p, struct gemm_params *params, struct packing_params *packing,
                       struct packing_room *room)
{
    u32 max_rows = gemm_max_rows(p, params);

    u32 rows = packing->tiled ? divide_up(max_rows, 8) * 8 : max_rows;
    u64 bytes =
        packing->tiled ? (u64)rows * params->packed_cols * 2 : packing_bf16_bytes(rows, params->packed_cols);
    packing->out = params->packed_mma = take_room(p, room, bytes);
    cuda_launch_add(p, "pack_mma", (struct cuda_shape){ { rows, 1, 1 }, 256, 0 }, packing, sizeof *packing);
}

// Up to eight rows are packed by many small blocks, which leave the norm's factor to gemm_int8.
static void launch_int8(struct cuda_plan *p, struct gemm_params *params, struct packing_params *packing,
                        struct packing_room *room)
{
    u32 max_rows = gemm_max_rows(p, params);
    bool split = max_rows <= 8;
    u32 blocks = divide_up(params->n_cols, split ? PACK_SPLIT_COLUMNS : 8 * PACK_INT8_THREADS);

    packing->out = params->packed_int8 = take_room(p, room, packing_int8_bytes(max_rows, params->n_cols));
    if (split && params->norm)
        packing->squares = params->squares = take_room(p, room, packing_squares_bytes(params->n_cols));
    else if (params->norm)
        blocks = 1;
    cuda_launch_add(
        p, split ? "pack_int8_split" : "pack_int8",
        (struct cuda_shape){ { max_rows, blocks, 1 }, split ? PACK_SPLIT_THREADS : PACK_INT8_THREADS, 0 },
        packing, sizeof *packing);
}

static void launch_bf16(struct cuda_plan *p, struct gemm_params *params, struct packing_params *packing,
                        struct packing_room *room)
{
    u32 max_rows = gemm_max_rows(p, params),
        blocks = params->norm ? 1 : divide_up(params->n_cols, 8 * PACK_BF16_THREADS);
    u32 most = divide_up(4 * p->device.n_sms, blocks);

    packing->out = params->packed_bf16 =
        take_room(p, room, packing_bf16_bytes(max_rows, params->packed_cols));
    cuda_launch_add(
        p, "pack_bf16",
        (struct cuda_shape){ { max_rows < most ? max_rows : most, blocks, 1 }, PACK_BF16_THREADS, 0 },
        packing, sizeof *packing);
}

static void launch_int8_tiles(struct cuda_plan *p, struct gemm_params *params, struct packing_params *packing,
                              struct packing_room *room)
{
    u32 max_rows = gemm_max_rows(p, params);

    packing->out = params->packed_int8 = take_room(p, room, int8_tiles_bytes(max_rows, params->n_cols));
    cuda_launch_add(p, "pack_int8_tiles",
                    (struct cuda_shape){ { max_rows, divide_up(params->n_cols, 4 * PACK_TILES_THREADS), 1 },
                                         PACK_TILES_THREADS,
                                         0 },
                    packing, sizeof *packing);
}

static void read_packed(const struct operand *packed, struct gemm_params *params)
{
    if (packed->packing == &gemm_packing_bf16)
        params->packed_bf16 = address_of(packed);
    else if (packed->packing == &gemm_packing_mma)
        params->packed_mma = address_of(packed);
    else
        params->packed_int8 = address_of(packed);
    if (packed->norm)
        params->squares = address_of(packed) + packing_int8_bytes(8, params->n_cols);
}

void gemm_packing_launch(struct cuda_plan *p, const struct gemm_plan *product, struct gemm_params *params)
{
    const struct operand *packed = fuse_packed(p->command, false);
    u32 forms = packed ? 0 : forms_of(p, product);
    struct packing_room room = { product->work, product->work_bytes, p->private_at };
    struct packing_params packing = { .in = params->in,
                                      .norm = params->norm,
                                      .n_cols = params->n_cols,
                                      .packed_cols = params->packed_cols,
                                      .rows = params->rows,
                                      .tiled = gemm_max_rows(p, params) <= FEW_ROWS || p->tape.invariant,
                                      .eps = params->eps,
                                      .wide = gemm_staged_int8_reads(product) == &gemm_packing_int8_wide };

    if (packed)
        read_packed(packed, params);
    if (forms & 1 << PACKING_MMA)
        launch_mma(p, params, &packing, &room);
    if (forms & 1 << PACKING_INT8)
        launch_int8(p, params, &packing, &room);
    if (forms & 1 << PACKING_INT8_TILES)
        launch_int8_tiles(p, params, &packing, &room);
    if (forms & 1 << PACKING_BF16)
        launch_bf16(p, params, &packing, &room);
    params->partial = room.private_at;
}
