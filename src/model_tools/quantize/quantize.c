// quantize.c - see quantize.h. Tensors are converted one after the other, in chunks of a few million
// elements: all threads decode and encode fixed ranges of a chunk, then the chunk is written. A tensor that
// already has its format is copied as it is.
#include "model_tools/quantize/quantize.h"
#include <math.h>
#include <sys/stat.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/thread_pool.h"
#include "model_tools/imatrix_file.h"
#include "model_tools/quantize/quantize_encode.h"
#include "model_tools/quantize/quantize_plan.h"
#include "models/binding/joined.h"

enum { PIECE = 4096, CHUNK_PIECES = 1024, MAX_THREADS = 256 }; // PIECE: elements, a multiple of every block

struct job {
    const struct quantize_options *options;
    const struct quantize_mix *mix;
    struct model_file *file;
    struct quantize_plan plan;
    struct gguf_writer w; // open when there is an output
    struct thread_pool *pool;
    unsigned char *chunk;
    float *scratch; // [threads, 2, PIECE]: elements, and their importance
    struct imatrix imatrix;
    float *importance; // [matrices, columns] of the tensor that is worked on; NULL: none
    uint64_t done, total, bytes_out, n_weighted;
    // the chunk that is being worked on
    const struct quantize_entry *entry;
    uint64_t first, n;
    uint64_t bad[MAX_THREADS]; // first element that cannot be stored, per thread; UINT64_MAX: none
};

// Source row of row `row` of a matrix whose heads have their rows reordered: GGUF's 2 r + a is r + a * half
// elsewhere.
static uint64_t paired_row(uint64_t row, uint64_t n_rows, uint32_t n_heads)
{
    uint64_t size = n_rows / n_heads, in_head = row % size;
    return row - in_head + in_head / 2 + in_head % 2 * (size / 2);
}

static void read_joined(const struct quantize_entry *e, uint64_t first, float *out, size_t n)
{
    unsigned char blocks[PIECE * sizeof(float)]; // no format takes more bytes

    CHECK(n <= PIECE);
    model_tensor_read(&e->joined->tensor, first, n, blocks);
    quant_info(e->from.format)->decode(blocks, out, n);
}

static void read_elements(const struct quantize_entry *e, uint64_t first, float *out, size_t n)
{
    const struct quant_rows rows = { e->from.format, e->from.data, e->from.dims[e->from.n_dims - 1] };
    uint64_t n_cols = e->from.n_dims == 1 ? 1 : rows.n_cols, n_rows = e->from.dims[0];

    if (e->joined) {
        read_joined(e, first, out, n);
        return;
    }
    if (!e->paired_heads) {
        quant_read(&rows, first, out, n);
        return;
    }
    for (size_t done = 0, take; done < n; done += take) { // plain numbers: only safetensors need reordering
        uint64_t row = (first + done) / n_cols, col = (first + done) % n_cols;
        take = n_cols - col < n - done ? (size_t)(n_cols - col) : n - done;
        uint64_t at = paired_row(row, n_rows, e->paired_heads) * n_cols + col;
        quant_read(&rows, at, out + done, take);
    }
}

// Of n elements from `first` on: that of their columns, in their matrix of a stack.
static void importance_of(const struct job *job, uint64_t first, float *to, uint64_t n)
{
    const struct file_tensor *t = &job->entry->from;
    uint64_t n_cols = t->dims[t->n_dims - 1], n_elements = t->n_dims == 3 ? t->dims[1] * n_cols : UINT64_MAX;

    for (uint64_t i = 0; i < n; i++)
        to[i] = job->importance[(first + i) / n_elements * n_cols + (first + i) % n_cols];
}

static bool encode_piece(const struct job *job, uint64_t at, float *scratch, size_t *bad)
{
    const struct quant_info *info = quant_info(job->entry->format);
    struct quantize_source from = { .x = scratch, .n = (size_t)(job->n - at < PIECE ? job->n - at : PIECE) };

    read_elements(job->entry, job->first + at, scratch, from.n);
    if (job->importance) {
        importance_of(job, job->first + at, scratch + PIECE, from.n);
        from.importance = scratch + PIECE;
    }
    return quantize_encode(job->entry->format, &from,
                           job->chunk + at / info->block_elements * info->block_bytes, bad);
}

static void work(void *arg, unsigned thread)
{
    struct job *job = arg;
    uint64_t n_pieces = (job->n + PIECE - 1) / PIECE, n_threads = thread_pool_size(job->pool);
    size_t bad;

    job->bad[thread] = UINT64_MAX;
    for (uint64_t p = n_pieces * thread / n_threads; p < n_pieces * (thread + 1) / n_threads; p++)
        if (!encode_piece(job, p * PIECE, job->scratch + (size_t)thread * 2 * PIECE, &bad)) {
            job->bad[thread] = job->first + p * PIECE + bad;
            return;
        }
}

static bool check_chunk(struct job *job, struct err *err)
{
    uint64_t bad = UINT64_MAX;
    float x[256];

    for (unsigned t = 0; t < thread_pool_size(job->pool); t++)
        bad = job->bad[t] < bad ? job->bad[t] : bad;
    if (bad == UINT64_MAX)
        return true;
    const struct quant_info *from = quant_info(job->entry->from.format);
    read_elements(job->entry, bad / from->block_elements * from->block_elements, x, from->block_elements);
    return err_set(err, ERR_INPUT, "%s: element %llu of tensor '%.*s' is %g, which %s cannot hold%s",
                   job->options->input, (unsigned long long)bad, STR_ARG(job->entry->from.name),
                   (double)x[bad % from->block_elements], quant_info(job->entry->format)->name,
                   isfinite(x[bad % from->block_elements]) ? "; BF16 can" : "");
}

static bool advance(struct job *job, uint64_t bytes, struct err *err)
{
    const struct quantize_options *o = job->options;

    job->done += bytes;
    if (o->progress && !o->progress(o->progress_arg, job->done, job->total))
        return err_set(err, ERR_CANCELLED, "stopped; nothing was written");
    return job->w.out.first.code == ERR_NONE ? true : (*err = job->w.out.first, false);
}

static uint64_t elements_of(const struct file_tensor *t)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < t->n_dims; i++)
        n *= t->dims[i];
    return n;
}

// Of the tensor's bytes, those that lie before an element.
static uint64_t bytes_before(const struct file_tensor *t, uint64_t element)
{
    const struct quant_info *info = quant_info(t->format);
    return element / t->dims[t->n_dims - 1] * info->head_bytes +
           element / info->block_elements * info->block_bytes;
}

static bool copy_joined(struct job *job, struct err *err)
{
    const struct file_tensor *t = &job->entry->joined->tensor;
    const struct quant_info *info = quant_info(t->format);
    uint64_t total = t->bytes / info->block_bytes * info->block_elements;

    for (uint64_t first = 0, n; first < total; first += n) {
        n = total - first < (uint64_t)PIECE * CHUNK_PIECES ? total - first : (uint64_t)PIECE * CHUNK_PIECES;
        uint64_t bytes = n / info->block_elements * info->block_bytes;
        model_tensor_read(t, first, n, job->chunk);
        gguf_write_data(&job->w, job->chunk, bytes);
        if (!advance(job, bytes, err))
            return false;
    }
    return true;
}

static bool copy_tensor(struct job *job, struct err *err)
{
    enum { AT_ONCE = 8 << 20 };
    const struct file_tensor *t = &job->entry->from;

    for (uint64_t at = 0, n; at < t->bytes; at += n) {
        n = t->bytes - at < AT_ONCE ? t->bytes - at : AT_ONCE;
        gguf_write_data(&job->w, t->data + at, n);
        if (!advance(job, n, err))
            return false;
    }
    return true;
}

static bool is_weighted(const struct job *job)
{
    return quant_info(job->entry->format)->block_elements > 1 &&
           imatrix_find(&job->imatrix, job->entry->name);
}

// The importance of the tensor's columns, into job->importance; none where the matrix has no such entry, or
// the format no use for it.
static bool find_importance(struct job *job, struct err *err)
{
    const struct file_tensor *t = &job->entry->from;
    const uint64_t sizes[2] = { t->n_dims == 3 ? t->dims[0] : 1, t->dims[t->n_dims - 1] };
    const struct imatrix_entry *e = imatrix_find(&job->imatrix, job->entry->name);

    mem_free(job->importance);
    job->importance = NULL;
    if (!is_weighted(job))
        return true;
    job->importance = mem_alloc_array(sizes[0] * sizes[1], sizeof *job->importance);
    if (!job->importance)
        return err_memory(err, "a tensor's importance");
    return imatrix_means(e, sizes, job->importance) ||
           err_set(err, ERR_INPUT,
                   "%s: %.*s has %llu sums and %u counts; the model's has %llu matrices of %llu columns: of "
                   "another model?",
                   job->options->imatrix, STR_ARG(e->name), (unsigned long long)e->n_sums, e->n_counts,
                   (unsigned long long)sizes[0], (unsigned long long)sizes[1]);
}

static bool encode_tensor(struct job *job, struct err *err)
{
    const struct file_tensor *t = &job->entry->from;
    const struct quant_info *to = quant_info(job->entry->format);
    uint64_t total = elements_of(t), done = 0;

    if (!find_importance(job, err))
        return false;
    for (job->first = 0; job->first < total; job->first += job->n) {
        job->n = total - job->first < (uint64_t)PIECE * CHUNK_PIECES ? total - job->first
                                                                     : (uint64_t)PIECE * CHUNK_PIECES;
        thread_pool_run(job->pool, work, job);
        if (!check_chunk(job, err))
            return false;
        gguf_write_data(&job->w, job->chunk, job->n / to->block_elements * to->block_bytes);
        uint64_t now = bytes_before(t, job->first + job->n);
        if (!advance(job, now - done, err))
            return false;
        done = now;
    }
    return true;
}

// Values that say how the input file was laid out, or that are written anew.
static bool is_dropped(struct str key)
{
    return str_starts(key, STR("split.")) || str_is(key, "general.alignment") ||
           str_is(key, "general.file_type") || str_is(key, "general.quantization_version");
}

static bool plan_gguf(struct job *job, struct err *err)
{
    for (size_t i = 0; i < model_file_n_metas(job->file); i++) {
        const struct meta *m = model_file_meta_at(job->file, i);
        if (!is_dropped(m->key))
            gguf_write_meta(&job->w, m);
    }
    for (size_t i = 0; i < model_file_n_tensors(job->file); i++) {
        const struct file_tensor *t = model_file_tensor_at(job->file, i);
        if (!quantize_plan_add(&job->plan, &(struct quantize_entry){ .from = *t, .name = t->name }, err))
            return false;
    }
    return true;
}

static void write_importance(struct job *job)
{
    const struct imatrix *m = &job->imatrix;

    if (!job->options->imatrix)
        return;
    gguf_write_str(&job->w, "quantize.imatrix.file", str_from(job->options->imatrix));
    if (m->text.n)
        gguf_write_str(&job->w, "quantize.imatrix.dataset", m->text);
    gguf_write_u32(&job->w, "quantize.imatrix.entries_count", (uint32_t)m->n);
    gguf_write_u32(&job->w, "quantize.imatrix.chunks_count", m->n_chunks);
}

static void describe_tensor(struct job *job, const struct quantize_entry *e)
{
    const struct quantize_options *o = job->options;
    struct quantize_tensor t = { .from = &e->from, .name = e->name, .format = e->format };
    uint64_t n_cols = e->from.dims[e->from.n_dims - 1];

    quant_bytes(e->format, elements_of(&e->from) / n_cols, n_cols, &t.bytes);
    job->bytes_out += t.bytes;
    job->entry = e;
    job->n_weighted += is_weighted(job);
    gguf_write_tensor(&job->w, e->name, e->format, e->from.dims, e->from.n_dims);
    job->total += e->from.bytes;
    if (o->on_tensor)
        o->on_tensor(o->on_tensor_arg, &t);
}

static bool describe(struct job *job, struct err *err)
{
    const struct quantize_options *o = job->options;
    bool gguf = model_file_format(job->file) == MODEL_GGUF;
    size_t n_again = 0;

    if (gguf ? !plan_gguf(job, err) : !quantize_convert(&job->plan, &job->w, job->file, err))
        return false;
    quantize_plan_formats(&job->plan, job->mix);
    if (!quantize_plan_override(&job->plan, o->overrides, o->n_overrides, err))
        return false;
    gguf_write_u32(&job->w, "general.file_type", job->mix->file_type);
    gguf_write_u32(&job->w, "general.quantization_version", 2);
    write_importance(job);
    for (size_t i = 0; i < job->plan.n; i++) {
        const struct quantize_entry *e = &job->plan.entries[i];
        describe_tensor(job, e);
        n_again += quant_info(e->from.format)->block_elements > 1 && e->format != e->from.format;
    }
    if (n_again)
        log_line(LOG_WARN, "quantize",
                 "quantized already: %zu tensor%s; doing it again loses more than once from the original",
                 n_again, str_plural(n_again));
    if (o->imatrix && job->n_weighted == 0)
        return err_set(err, ERR_INPUT,
                       "%s: none of its %zu entries is of a matrix that is quantised; of another model?",
                       o->imatrix, job->imatrix.n);
    return true;
}

static bool run(struct job *job, struct err *err)
{
    unsigned n_threads = job->options->n_threads ? job->options->n_threads : thread_count_available();

    job->pool = thread_pool_create(n_threads < MAX_THREADS ? n_threads : MAX_THREADS);
    job->chunk = mem_alloc((size_t)PIECE * CHUNK_PIECES * sizeof(float));
    job->scratch =
        job->pool ? mem_alloc_array((size_t)2 * PIECE * thread_pool_size(job->pool), sizeof(float)) : NULL;
    if (!job->chunk || !job->scratch)
        return err_memory(err, "quantizing");
    gguf_write_begin(&job->w);
    for (size_t i = 0; i < job->plan.n; i++) {
        job->entry = &job->plan.entries[i];
        bool same = job->entry->format == job->entry->from.format && !job->entry->paired_heads;
        if (!same                ? !encode_tensor(job, err)
            : job->entry->joined ? !copy_joined(job, err)
                                 : !copy_tensor(job, err))
            return false;
    }
    return true;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool quantize_type_check(const char *type, struct err *err)
{
    struct buf known = { 0 };

    if (quantize_mix_find(type))
        return true;
    for (size_t i = 0; quantize_type(i); i++)
        buf_printf(&known, " %s", quantize_type(i));
    err_set(err, ERR_INPUT, "unknown type '%.32s'; known are%s", type, known.at ? known.at : " none");
    buf_free(&known);
    return false;
}

static bool quantize_open(struct job *job, struct err *err)
{
    const struct quantize_options *o = job->options;

    if (!quantize_type_check(o->type, err))
        return false;
    job->mix = quantize_mix_find(o->type);
    if (o->output && same_file(o->input, o->output))
        return err_set(err, ERR_INPUT, "%s: input and output are the same file; name another output",
                       o->output);
    job->plan.arena = arena_create((size_t)1 << 30);
    if (!job->plan.arena)
        return err_memory(err, "quantizing");
    return model_file_open(&job->file, o->input, err) && model_file_guard(job->file, err) &&
           (!o->imatrix || imatrix_file_read(&job->imatrix, o->imatrix, err)) &&
           (!o->output || gguf_write_create(&job->w, o->output, err));
}

bool quantize_file(const struct quantize_options *options, struct quantize_result *result, struct err *err)
{
    struct err unused;
    struct job *job = mem_alloc(sizeof *job);

    err = err ? err : &unused;
    if (!job)
        return err_memory(err, "quantizing");
    job->options = options;
    bool ok = quantize_open(job, err) && describe(job, err) && (!options->output || run(job, err));
    if (ok && result)
        *result = (struct quantize_result){ job->total,           job->bytes_out,
                                            job->plan.n,          job->plan.n_quantized,
                                            job->plan.n_fallback, job->n_weighted };
    ok = ok && !model_file_lost(job->file, err) && (!options->output || gguf_write_commit(&job->w, err));
    gguf_write_abort(&job->w);
    thread_pool_destroy(job->pool);
    mem_free(job->chunk);
    mem_free(job->scratch);
    mem_free(job->importance);
    imatrix_free(&job->imatrix);
    quantize_plan_release(&job->plan);
    model_file_close(job->file);
    mem_free(job);
    return ok;
}
