// far_rows.c - a matrix of which a step reads a few rows lies in pinned memory, where kernels read it over
// the bus. Pinning takes 1.5 s a GB (bench/results/2026-11-29-h200-models.md), so only the repacked bytes
// are pinned. The file's bytes are uploaded in pieces and repacked on the GPU.
#include <string.h>
#include "device/cuda/cuda_internal.h"

enum { PIECE_BYTES = 4 << 20 }; // of the file, copied by several threads (staging.c)

struct pieces {
    struct cuda *c;
    const struct weight_source *source;
    struct buffer from, to; // on the GPU, of a piece
    unsigned char *host;    // the pinned memory of the whole matrix
    struct cuda_pack whole;
    uint64_t row_bytes; // in the file
    uint32_t n_rows;    // of a piece, but for the last one
};

bool cuda_far_rows_pin(struct cuda *c, const struct weight_source *source, struct weight *w)
{
    struct cuda_pack pack;

    c->table->pack(source, 0, 0, &pack);
    uint64_t bytes = pack.bytes ? pack.bytes : source->bytes;
    void *host = c->device.queue->pin(&c->device, bytes);
    if (!host)
        return false;
    w->buffer = (struct buffer){ .device = &c->device, .host = host, .bytes = bytes, .native = host };
    w->bytes = bytes;
    w->layout = pack.bytes ? LAYOUT_PLANES : LAYOUT_FILE;
    return true;
}

// The same rows of every plane.
static bool bring_planes(const struct pieces *p, const struct cuda_pack *pack, uint32_t first, uint32_t n,
                         struct err *err)
{
    for (uint32_t i = 0; i < CUDA_PLANES; i++) {
        uint64_t row = p->whole.planes[i].row_bytes;
        unsigned char *to = p->host + p->whole.planes[i].at + first * row;
        cu_address from = (cu_address)(uintptr_t)p->to.native + pack->planes[i].at;
        if (row > 0 &&
            !cuda_check(p->c, p->c->cu->read(to, from, n * row, p->c->stream), "a copy to the host", err))
            return false;
    }
    return true;
}

static bool pass_piece(struct pieces *p, uint32_t first, struct err *err)
{
    uint32_t left = p->source->n_rows - first;
    struct weight_source piece = *p->source;
    struct cuda_pack pack;

    piece.n_rows = left < p->n_rows ? left : p->n_rows;
    p->c->table->pack(&piece, (uint64_t)(uintptr_t)p->from.native, (uint64_t)(uintptr_t)p->to.native, &pack);
    return buffer_write(&p->from, 0, (const unsigned char *)piece.data + first * p->row_bytes,
                        piece.n_rows * p->row_bytes, err) &&
           cuda_pack_run(p->c, &pack, err) && bring_planes(p, &pack, first, piece.n_rows, err);
}

static bool pass_pieces(struct pieces *p, struct err *err)
{
    struct weight_source piece = *p->source;
    struct cuda_pack pack;

    piece.n_rows = p->n_rows;
    p->c->table->pack(&piece, 0, 0, &pack);
    bool ok = buffer_alloc(&p->c->device, p->n_rows * p->row_bytes, &p->from, err) &&
              buffer_alloc(&p->c->device, pack.bytes, &p->to, err);
    for (uint64_t first = 0; ok && first < p->source->n_rows; first += p->n_rows)
        ok = pass_piece(p, (uint32_t)first, err);
    ok = ok && cuda_check(p->c, p->c->cu->stream_wait(p->c->stream), "a copy to the host", err);
    buffer_release(&p->from);
    buffer_release(&p->to);
    return ok;
}

bool cuda_far_rows_fill(struct cuda *c, const struct weight_source *source, struct weight *w, struct err *err)
{
    uint64_t row_bytes = source->bytes / source->n_rows, most = PIECE_BYTES / row_bytes;
    struct pieces p = { .c = c,
                        .source = source,
                        .host = w->buffer.host,
                        .row_bytes = row_bytes,
                        .n_rows = most == 0               ? 1
                                  : most < source->n_rows ? (uint32_t)most
                                                          : source->n_rows };

    c->table->pack(source, 0, 0, &p.whole);
    if (p.whole.bytes > 0)
        return pass_pieces(&p, err);
    memcpy(w->buffer.host, source->data, source->bytes);
    return true;
}
