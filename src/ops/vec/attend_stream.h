// attend_stream.h - a decoding row's attention over one split of BF16 pages, all KV heads at once. Included
// by attend_vec.h for vec_avx512_bf16.c alone; the bits are those of the loops there.
//
// A core reads memory at full speed only in the order of addresses: the KV heads of a page one after the
// other, then the next page. So the work is cut into units of two pages of one KV head, in that order, and a
// unit prefetches the lines AHEAD pages of a head later. They are still in L1 when they are read; the lines
// of a whole block would have gone to L2. A CPU drops prefetches when too many are in flight, so the rate has
// to be even: scores of a block become weights between the units of the next block's K.
enum {
    UNIT_KEYS = VEC_PAGES * PAGE_TOKENS,
    UNITS = ATTEND_KEYS / UNIT_KEYS,
    AHEAD = 8,
    SPLIT_PAGES = ATTEND_SPLIT / PAGE_TOKENS
};

// Pages of one head, in the order of reading: K of the split's first block, K of the second, V of the first,
// K of the third, ..., V of the last; then the next split's.
struct kv_flow {
    const struct attend_run *run;
    const unsigned char *at;
    size_t bytes;
    uint32_t kv, page, end; // of `at`: the run's KV head, the page; and the end of this K or V
    bool is_v;
    uint32_t turn, first, n_blocks; // the split's first page
    uint32_t n_pages;               // of the past
};

struct stream {
    struct columns *s;
    struct kv_flow flow;
    uint32_t base, n_blocks, from, end; // the first block's first key; keys [from, end) are seen
    // Of even and of odd blocks:
    const unsigned char *pages[2][2 * BLOCK_PAGES]; // of the first KV head: K, then V
    float *scores[2];                               // [n_kv][UNITS][columns][UNIT_KEYS]; then weights
    _Alignas(64) float row_maxes[2][ATTEND_MAX_COLUMNS][VF]; // the highest scores, by lane
};

struct unit {                                             // two pages of one KV head
    const unsigned char *at[VEC_PAGES], *then[VEC_PAGES]; // then: pages to prefetch
    const unsigned char *const *ask;                      // then; or at, where the lines are prefetched
                                                          // already
    uint32_t kv, head_dim;
    uint32_t seen; // a bit for each key
};

static const unsigned char *page_of(const struct attend_run *run, uint32_t page, bool is_v)
{
    const struct page_shape *shape = &run->args->pages;
    return (const unsigned char *)(is_v ? run->v_pages : run->k_pages) +
           page_place(shape, run->table[page], run->kv_head) * page_head_bytes(KV_BF16, shape->head_dim);
}

static void flow_turn(struct kv_flow *f, uint32_t turn)
{
    uint32_t last = 2 * f->n_blocks - 1;

    f->turn = turn;
    f->is_v = turn > 0 && (turn % 2 == 0 || turn == last);
    f->page = f->first + (turn == last ? f->n_blocks - 1
                          : f->is_v    ? turn / 2 - 1
                                       : (turn + 1) / 2) *
                             BLOCK_PAGES;
    f->end = f->page + BLOCK_PAGES < f->n_pages ? f->page + BLOCK_PAGES : f->n_pages;
}

static void flow_begin(struct kv_flow *f, uint32_t first)
{
    uint32_t end = (first / SPLIT_PAGES + 1) * SPLIT_PAGES;

    f->first = first;
    f->n_blocks = ((end < f->n_pages ? end : f->n_pages) - first + BLOCK_PAGES - 1) / BLOCK_PAGES;
    flow_turn(f, 0);
    f->at = page_of(f->run, f->page, false);
}

// After the last page it is repeated.
static void flow_page(struct kv_flow *f)
{
    uint32_t split_end = (f->first / SPLIT_PAGES + 1) * SPLIT_PAGES;

    f->kv = 0;
    if (++f->page == f->end) {
        if (f->turn + 1 < 2 * f->n_blocks)
            flow_turn(f, f->turn + 1);
        else if (split_end < f->n_pages)
            flow_begin(f, split_end);
        else
            f->page--;
    }
    f->at = page_of(f->run, f->page, f->is_v);
}

static inline const unsigned char *flow_next(struct kv_flow *f)
{
    const unsigned char *page = f->at;

    f->at += f->bytes;
    if (++f->kv == f->run->n_kv)
        flow_page(f);
    return page;
}

// Pages after the past's end have no seen key: the last page replaces them.
static void find_block(struct stream *t, uint32_t block)
{
    uint32_t first = t->base / PAGE_TOKENS + block * BLOCK_PAGES, last = t->flow.n_pages - 1;

    for (uint32_t i = 0; i < BLOCK_PAGES; i++) {
        t->pages[block % 2][i] = page_of(t->flow.run, first + i < last ? first + i : last, false);
        t->pages[block % 2][BLOCK_PAGES + i] =
            page_of(t->flow.run, first + i < last ? first + i : last, true);
    }
}

// Unit i of a block, if any of its keys is seen.
static inline bool find_unit(struct stream *t, uint32_t block, uint32_t i, bool is_v, struct unit *u)
{
    const unsigned char *const *pages = t->pages[block % 2] + (is_v ? BLOCK_PAGES : 0) + VEC_PAGES * i;
    uint32_t first = t->base + block * ATTEND_KEYS + i * UNIT_KEYS,
             lo = t->from > first ? t->from - first : 0, hi = t->end - first;

    if (t->end <= first)
        return false;
    u->seen = lo < UNIT_KEYS ? UINT32_MAX << lo : 0;
    u->seen &= hi < UNIT_KEYS ? (UINT32_C(1) << hi) - 1 : UINT32_MAX;
    u->ask = u->then;
    for (uint32_t p = 0; p < VEC_PAGES; p++) {
        u->at[p] = pages[p] + u->kv * t->flow.bytes;
        u->then[p] = flow_next(&t->flow);
    }
    return u->seen;
}

// Scores of C columns, [C][UNIT_KEYS]; tops [C][VF].
VEC_INLINE void score_unit(const struct unit *u, const uint32_t *q, float *scores, float *row_maxes,
                           const int C)
{
    const unsigned char *k[VEC_PAGES] = { u->at[0], u->at[1] };
    vf sum[VEC_COLUMNS][VEC_PAGES];

    UNROLL for (int c = 0; c < C; c++) UNROLL for (int p = 0; p < VEC_PAGES; p++) sum[c][p] = vf_set(0);
    for (uint32_t half = 0; half < 2; half++) {
        const unsigned char *ask = u->ask[half];
        for (const uint32_t *end = q + u->head_dim / 4 * VEC_COLUMNS; q < end; q += VEC_COLUMNS, ask += 128) {
            __m512i x[VEC_PAGES];
            UNROLL for (int p = 0; p < VEC_PAGES; p++)
            {
                __builtin_prefetch(ask + p * 64);
                x[p] = _mm512_loadu_si512(k[p]);
                k[p] += 64;
            }
            UNROLL for (int c = 0; c < C; c++)
            {
                __m512i pair = _mm512_set1_epi32((int)q[c]);
                UNROLL for (int p = 0; p < VEC_PAGES; p++) sum[c][p] =
                    _mm512_dpbf16_ps(sum[c][p], pairs_of(x[p]), pairs_of(pair));
            }
        }
    }
    UNROLL for (int c = 0; c < C; c++)
    {
        vf row_max = vf_load(row_maxes + c * VF);
        UNROLL for (int p = 0; p < VEC_PAGES; p++)
        {
            if (u->seen != UINT32_MAX)
                sum[c][p] =
                    _mm512_mask_mov_ps(vf_set(-INFINITY), (__mmask16)(u->seen >> (p * VF)), sum[c][p]);
            vf_store(scores + c * UNIT_KEYS + p * VF, sum[c][p]);
            row_max = vf_max(row_max, sum[c][p]);
        }
        vf_store(row_maxes + c * VF, row_max);
    }
}

// Turns the scores of a block's column `at` of a KV head into weights.
VEC_INLINE void weigh_scores(struct stream *t, uint32_t block, uint32_t kv, uint32_t at)
{
    struct columns *s = t->s;
    const uint32_t base = t->base + block * ATTEND_KEYS, from = within(t->from, base),
                   to = within(t->end, base);
    const uint32_t column = kv * s->n + at, stride = s->n * UNIT_KEYS;
    float *row_maxes = t->row_maxes[block % 2][column],
          *scores = t->scores[block % 2] + kv * UNITS * stride + at * UNIT_KEYS;

    raise_max(s, column, vf_top(vf_max(vf_set(s->column[column].now.row_max), vf_load(row_maxes))));
    vf_store(row_maxes, vf_set(-INFINITY));
    vf shift = vf_set(-s->column[column].now.row_max), row_sum = vf_set(0);
    scores += from / UNIT_KEYS * stride;
    for (uint32_t i = from / UNIT_KEYS * UNIT_KEYS; i < to; i += UNIT_KEYS, scores += stride)
        UNROLL for (uint32_t p = 0; p < VEC_PAGES; p++)
        {
            vf w = vf_exp2_below(vf_add(vf_load(scores + p * VF), shift));
            row_sum = vf_add(row_sum, w);
            store_weights(s, scores, p * VF, w);
        }
    s->column[column].now.row_sum += vf_sum(row_sum);
}

struct values { // sums of some columns, and their weights
    float *out;
    const uint32_t *weights;
    uint32_t dims, d; // sums of a column; the first of 64 to add to
    // Lines of the unit's first page to prefetch, and of its second page where there are more.
    const unsigned char *ask, *then;
};

// out += weights * v for C columns, at most 4, and 64 dims; with each pair of keys n_ask lines are
// prefetched.
VEC_INLINE void add_dims(const struct unit *u, const struct values v, const int C, const int n_ask,
                         const bool whole)
{
    enum { D = 4 };
    const unsigned char *at = u->at[0] + v.d * 4, *second = u->at[1] + v.d * 4, *ask = v.ask;
    const uint32_t *w = v.weights, *turn = w + PAGE_TOKENS / 2, *end = turn + PAGE_TOKENS / 2;
    const size_t row_bytes = u->head_dim * 4;
    float *out = v.out + v.d;
    vf sum[4][D];

    UNROLL for (int c = 0; c < C; c++) UNROLL for (int d = 0; d < D; d++) sum[c][d] =
        vf_load(out + c * v.dims + d * VF);
    for (uint32_t seen = u->seen; w < end; w++, seen >>= 2, at += row_bytes, ask += 64 * n_ask) {
        if (w == turn) {
            at = second;
            if (n_ask > 2)
                ask = v.then;
        }
        UNROLL for (int j = 0; j < n_ask; j++) __builtin_prefetch(ask + 64 * j);
        if (!whole && !(seen & 3)) // the other key may be anything
            continue;
        UNROLL for (int d = 0; d < D; d++)
        {
            __m512i x = _mm512_loadu_si512(at + d * 64);
            if (!whole)
                x = _mm512_maskz_mov_epi16((seen & 1 ? 0x55555555u : 0) | (seen & 2 ? 0xaaaaaaaau : 0), x);
            UNROLL for (int c = 0; c < C; c++) sum[c][d] =
                _mm512_dpbf16_ps(sum[c][d], pairs_of(_mm512_set1_epi32((int)w[c * UNIT_KEYS])), pairs_of(x));
        }
    }
    UNROLL for (int c = 0; c < C; c++) UNROLL for (int d = 0; d < D; d++)
        vf_store(out + c * v.dims + d * VF, sum[c][d]);
}

VEC_INLINE void add_columns(const struct unit *u, struct values v, const int C, const int n_ask)
{
    for (; v.d < u->head_dim; v.d += 64, v.ask += 32 * 64, v.then += 32 * 64)
        if (u->seen == UINT32_MAX)
            add_dims(u, v, C, n_ask, true);
        else
            add_dims(u, v, C, n_ask, false);
}

// Four columns at a time: a pair of keys is read without rearrangement.
VEC_INLINE void add_unit(const struct unit *u, struct values v, const int C)
{
    v.ask = u->ask[0];
    v.then = u->ask[1];
    if (C <= 4) {
        add_columns(u, v, C, 4);
        return;
    }
    add_columns(u, v, 4, 2);
    v.out += 4 * v.dims;
    v.weights += 4 * UNIT_KEYS;
    v.ask = v.then;
    add_columns(u, v, C - 4, 2);
}

// Separate functions: in one function the compiler would keep addresses in vector registers, and all stores
// would wait for them.
#define UNITS_OF(C)                                                                                       \
    SIMD static __attribute__((noinline)) void VEC(score_##C)(const struct unit *u, const float *q,       \
                                                              float *scores, float *row_maxes)            \
    {                                                                                                     \
        score_unit(u, (const uint32_t *)(const void *)q, scores, row_maxes, C);                           \
    }                                                                                                     \
    SIMD static __attribute__((noinline)) void VEC(add_##C)(const struct unit *u, const struct values *v) \
    {                                                                                                     \
        add_unit(u, *v, C);                                                                               \
    }
UNITS_OF(1)
UNITS_OF(2)
UNITS_OF(3)
UNITS_OF(4)
UNITS_OF(5)
UNITS_OF(6)
UNITS_OF(7)
UNITS_OF(8)
#undef UNITS_OF

// Number i of a block of K or V.
VEC_INLINE void do_unit(struct stream *t, uint32_t block, uint32_t i, uint32_t kv, const bool is_v)
{
    static void (*const scorers[])(const struct unit *u, const float *q, float *scores,
                                   float *row_maxes) = { NULL,         VEC(score_1), VEC(score_2),
                                                         VEC(score_3), VEC(score_4), VEC(score_5),
                                                         VEC(score_6), VEC(score_7), VEC(score_8) };
    static void (*const adds[])(const struct unit *u, const struct values *v) = {
        NULL, VEC(add_1), VEC(add_2), VEC(add_3), VEC(add_4), VEC(add_5), VEC(add_6), VEC(add_7), VEC(add_8)
    };
    struct columns *s = t->s;
    struct unit u = { .kv = kv, .head_dim = s->run->args->pages.head_dim };
    float *scores = t->scores[block % 2] + (kv * UNITS + i) * s->n * UNIT_KEYS;
    uint32_t n_groups = (s->n + VEC_COLUMNS - 1) / VEC_COLUMNS;
    const float *q = s->q + (size_t)kv * n_groups * u.head_dim * VEC_COLUMNS;

    if (!find_unit(t, block, i, is_v, &u))
        return;
    for (uint32_t first = 0, n; first < s->n; first += n, q += u.head_dim * VEC_COLUMNS) {
        struct values v = { .out = s->out + (kv * s->n + first) * s->dims,
                            .weights = (const uint32_t *)(scores + first * UNIT_KEYS),
                            .dims = s->dims };
        n = columns_of_group(s->n, first);
        if (is_v)
            adds[n](&u, &v);
        else
            scorers[n](&u, q, scores + first * UNIT_KEYS, t->row_maxes[block % 2][kv * s->n + first]);
        u.ask = u.at;
    }
}

// K of a block, while the scores of the block before become weights; then V of the block before.
VEC_INLINE void do_block(struct stream *t, uint32_t block)
{
    const uint32_t n_kv = t->s->run->n_kv, n = t->s->n;

    if (block < t->n_blocks)
        find_block(t, block);
    for (uint32_t i = 0; i < UNITS; i++)
        for (uint32_t kv = 0; kv < n_kv; kv++) {
            if (block < t->n_blocks)
                do_unit(t, block, i, kv, false);
            for (uint32_t c = n * i / UNITS; block > 0 && c < n * (i + 1) / UNITS; c++)
                weigh_scores(t, block - 1, kv, c);
        }
    for (uint32_t i = 0; block > 0 && i < UNITS; i++)
        for (uint32_t kv = 0; kv < n_kv; kv++)
            do_unit(t, block - 1, i, kv, true);
}

// The first lines are not prefetched: a burst of requests would be dropped.
static void read_ahead(struct kv_flow *f)
{
    for (uint32_t i = 0; i < AHEAD; i++) {
        const unsigned char *page = flow_next(f);
        for (uint32_t at = 0; at < f->bytes; at += 64)
            (void)*(const volatile unsigned char *)(page + at);
    }
}

SIMD static void VEC(attend_stream)(struct columns *s, uint32_t split)
{
    const struct attend_run *run = s->run;
    uint32_t first = first_key(run, run->position), begin = split * ATTEND_SPLIT, end = run->position + 1;
    struct stream t = { .s = s,
                        .from = first > begin ? first : begin,
                        .end = end < begin + ATTEND_SPLIT ? end : begin + ATTEND_SPLIT };

    start_sums(s);
    if (t.from >= t.end)
        return;
    t.base = t.from / ATTEND_KEYS * ATTEND_KEYS;
    t.n_blocks = (t.end - t.base + ATTEND_KEYS - 1) / ATTEND_KEYS;
    t.scores[0] = (float *)(void *)s->converted;
    t.scores[1] = t.scores[0] + ATTEND_MAX_COLUMNS * ATTEND_KEYS;
    for (uint32_t c = 0; c < ATTEND_MAX_COLUMNS; c++) {
        vf_store(t.row_maxes[0][c], vf_set(-INFINITY));
        vf_store(t.row_maxes[1][c], vf_set(-INFINITY));
    }
    t.flow = (struct kv_flow){ .run = run,
                               .bytes = page_head_bytes(KV_BF16, run->args->pages.head_dim),
                               .n_pages = run->position / PAGE_TOKENS + 1 };
    flow_begin(&t.flow, t.base / PAGE_TOKENS);
    read_ahead(&t.flow);
    for (uint32_t block = 0; block <= t.n_blocks; block++)
        do_block(&t, block);
}
