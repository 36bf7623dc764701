// trellis_write.c - see trellis_write.h.
#include "model_tools/trellis/trellis_write.h"
#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/buf_json.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/stage/devices.h"
#include "model_tools/trellis/trellis_encode.h"
#include "models/arch.h"
#include "models/binding/joined.h"
#include "text/json_memory.h"

enum { MAX_COPIED = 1 << 28, MOST_BYTES = 1 << 30 }; // of matrices that are coded side by side
#define NO_LAYER UINT32_MAX

// A tensor of the output's file: copied, or coded from a matrix.
struct trellis_entry {
    const struct file_tensor *from;
    size_t at;                    // in the input
    const struct weight_key *key; // what the matrix is
    uint32_t layer, bits;         // NO_LAYER: the head; 0 bits: copied
};

struct write_job {
    const struct trellis_options *options;
    struct model_file *file;
    struct model model;
    struct trellis_entry *entries; // one for each tensor of the input: what is copied, layers, the head
    struct moments moments;        // of the layers that are being coded
    struct thread_pool *pool;
    struct devices devices; // the first one searches
    struct file_writer out;
    struct trellis_result result;
    uint64_t done, total, current;  // weights: of all matrices, and of those that are being coded
    float gains[EXL3_MAX_BITS + 1]; // by bits, once they are needed
    bool made_folder;
};

// ---- what is coded

static void code_tensor(struct write_job *job, const struct file_tensor *t, const struct weight_key *k,
                        uint32_t layer)
{
    struct trellis_entry *e = &job->entries[t - model_file_tensor_at(job->file, 0)];

    if (t->n_dims != 2 || t->format > QUANT_BF16 || !str_ends(t->name, STR(".weight")))
        return;
    e->key = k;
    e->layer = k->per_layer ? layer : NO_LAYER;
    e->bits = k->per_layer ? job->options->bits : job->options->head_bits;
    job->total += t->dims[0] * t->dims[1];
}

// Matrices that products multiply, each in one tensor or an expert's; the router, which decides by small
// differences, is none of them, nor is a matrix that the model takes in slices.
static bool is_coded(const struct weight_key *k)
{
    bool head = !k->per_layer && strcmp(k->gguf, "output.weight") == 0;

    return (k->per_layer || head) && k->rows != DIM_ONE && k->cols != DIM_ONE && !k->slice && !k->half &&
           !(k->flags & (WEIGHT_TRANSPOSED | WEIGHT_MXFP4)) && !strstr(k->gguf, "ffn_gate_inp");
}

static void choose(struct write_job *job, const struct weight_key *k, uint32_t layer)
{
    const struct model *m = &job->model;
    const struct file_tensor *t = k->per_layer ? model_layer(m, layer)[k->place] : m->tensors[k->place];
    const struct joined_tensor *j = (const struct joined_tensor *)t;

    if (!t || !is_coded(k) || ((k->flags & WEIGHT_TIED) && m->tied))
        return;
    if (t->data)
        code_tensor(job, t, k, layer);
    for (uint32_t i = 0; !t->data && !j->trellis && i < j->n_parts; i++)
        code_tensor(job, j->parts[i], k, layer);
}

// Of a layer those of one shape follow each other: they are coded side by side.
static int by_layer(const void *a, const void *b)
{
    const struct trellis_entry *x = a, *y = b;
    uint64_t of_x[] = { x->bits ? (uint64_t)x->layer + 1 : 0, x->from->dims[0], x->from->dims[1], x->at },
             of_y[] = { y->bits ? (uint64_t)y->layer + 1 : 0, y->from->dims[0], y->from->dims[1], y->at };

    for (int i = 0; i < 4; i++)
        if (of_x[i] != of_y[i] && (i == 0 || i == 3 || x->bits))
            return of_x[i] < of_y[i] ? -1 : 1;
    return 0;
}

static bool choose_all(struct write_job *job, struct err *err)
{
    const struct arch *arch = job->model.arch;

    job->entries = mem_alloc_array(model_file_n_tensors(job->file), sizeof *job->entries);
    if (!job->entries)
        return err_memory(err, "a list of tensors");
    for (size_t i = 0; i < model_file_n_tensors(job->file); i++)
        job->entries[i] = (struct trellis_entry){ .from = model_file_tensor_at(job->file, i), .at = i };
    for (uint32_t i = 0; i < arch->n_weights; i++)
        for (uint32_t l = 0; l < (arch->weights[i].per_layer ? job->model.config.n_layers : 1); l++)
            choose(job, &arch->weights[i], l);
    qsort(job->entries, model_file_n_tensors(job->file), sizeof *job->entries, by_layer);
    return job->total > 0 || err_set(err, ERR_INPUT, "%s: no matrix in F32, F16 or BF16 that could be coded",
                                     job->options->input);
}

// ---- the header

static bool add_header(json_t *header, const char *name, const char *dtype, json_t *shape, uint64_t bytes[2])
{
    json_t *t = json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", shape, "data_offsets",
                          (json_int_t)bytes[0], (json_int_t)(bytes[0] + bytes[1]));
    bytes[0] += bytes[1];
    return t && json_object_set_new(header, name, t) == 0;
}

static bool describe_code(json_t *header, const struct trellis_entry *e, uint64_t *at)
{
    const uint64_t in = exl3_padded((uint32_t)e->from->dims[1]),
                   out = exl3_padded((uint32_t)e->from->dims[0]);
    char base[256], name[272];

    snprintf(base, sizeof base, "%.*s", (int)(e->from->name.n - strlen(".weight")), e->from->name.at);
    uint64_t bytes[2] = { *at, in * out * e->bits / 8 };
    snprintf(name, sizeof name, "%s.trellis", base);
    bool ok = add_header(header, name, "I16",
                         json_pack("[I, I, i]", (json_int_t)in / 16, (json_int_t)out / 16, (int)e->bits * 16),
                         bytes);
    bytes[1] = 2 * in;
    snprintf(name, sizeof name, "%s.suh", base);
    ok = ok && add_header(header, name, "F16", json_pack("[I]", (json_int_t)in), bytes);
    bytes[1] = 2 * out;
    snprintf(name, sizeof name, "%s.svh", base);
    ok = ok && add_header(header, name, "F16", json_pack("[I]", (json_int_t)out), bytes);
    bytes[1] = 4;
    snprintf(name, sizeof name, "%s.mul1", base);
    ok = ok && add_header(header, name, "I32", json_array(), bytes);
    *at = bytes[0];
    return ok;
}

static bool describe_copy(json_t *header, const struct trellis_entry *e, uint64_t *at)
{
    static const char *const dtypes[] = { [QUANT_F32] = "F32", [QUANT_F16] = "F16", [QUANT_BF16] = "BF16",
                                          [QUANT_I32] = "I32", [QUANT_I16] = "I16", [QUANT_U8] = "U8" };
    uint64_t bytes[2] = { *at, e->from->bytes };
    json_t *shape = json_array();
    char name[272];

    for (uint32_t i = 0; i < e->from->n_dims; i++)
        json_array_append_new(shape, json_integer((json_int_t)e->from->dims[i]));
    snprintf(name, sizeof name, "%.*s", STR_ARG(e->from->name));
    bool ok = add_header(header, name, dtypes[e->from->format], shape, bytes);
    *at = bytes[0];
    return ok;
}

static bool write_header(struct write_job *job, struct err *err)
{
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    uint64_t at = 0, n;
    bool ok = header != NULL;

    for (size_t i = 0; i < model_file_n_tensors(job->file) && ok; i++)
        ok = (job->entries[i].bits ? describe_code : describe_copy)(header, &job->entries[i], &at);
    struct buf text = { 0 };
    ok = ok && buf_json(&text, header, JSON_COMPACT);
    json_decref(header);
    n = (text.n + 7) / 8 * 8;
    file_write(&job->out, &n, sizeof n);
    file_write(&job->out, text.at, text.n);
    file_write(&job->out, "       ", n - text.n);
    buf_free(&text);
    job->result.bytes_out = at;
    return ok || err_memory(err, "a safetensors header");
}

// ---- the data

static bool goes_on(void *arg, uint32_t done, uint32_t n_blocks)
{
    const struct write_job *job = arg;
    const struct trellis_options *o = job->options;

    return !o->progress ||
           o->progress(o->progress_arg, job->done + job->current * done / n_blocks, job->total);
}

static bool find_gain(struct write_job *job, uint32_t bits, struct err *err)
{
    return job->gains[bits] > 0 || trellis_gain(bits, EXL3_MUL1, &job->gains[bits], err);
}

static const double *moments_of(const struct write_job *job, const struct trellis_entry *e)
{
    const char *gguf = e->key->gguf, *mark = strstr(gguf, "%u");
    char name[128];

    if (e->layer == NO_LAYER || e->key->stack || !mark)
        return NULL;
    snprintf(name, sizeof name, "%.*s%u%s", (int)(mark - gguf), gguf, e->layer, mark + 2);
    const struct moments_entry *m = moments_find(&job->moments, str_from(name));
    return m ? m->sums : NULL;
}

static bool read_source(const struct write_job *job, const struct trellis_entry *e,
                        struct trellis_source *source, struct err *err)
{
    const uint64_t n = e->from->dims[0] * e->from->dims[1];
    float *w = mem_alloc_array(n, sizeof *w);

    if (!w)
        return err_memory(err, "a matrix");
    quant_read(&(struct quant_rows){ e->from->format, e->from->data, e->from->dims[1] }, 0, w, n);
    *source = (struct trellis_source){ .w = w,
                                       .moments = moments_of(job, e),
                                       .rows = (uint32_t)e->from->dims[0],
                                       .cols = (uint32_t)e->from->dims[1],
                                       .bits = e->bits,
                                       .codebook = EXL3_MUL1,
                                       .gain = job->gains[e->bits],
                                       .seed = e->at };
    return true;
}

static void write_code(struct write_job *job, const struct trellis_code *code, uint32_t bits)
{
    const uint32_t mark = EXL3_MARK_MUL1;

    file_write(&job->out, code->codes, exl3_codes_bytes(code->n_in, code->n_out, bits));
    file_write(&job->out, code->suh, 2 * (size_t)code->n_in);
    file_write(&job->out, code->svh, 2 * (size_t)code->n_out);
    file_write(&job->out, &mark, sizeof mark);
    job->result.error += code->error;
    job->result.n_coded++;
}

static bool write_codes(struct write_job *job, const struct trellis_entry *e, uint32_t n, struct err *err)
{
    struct trellis_source sources[TRELLIS_TOGETHER] = { 0 };
    struct trellis_code codes[TRELLIS_TOGETHER] = { 0 };
    const struct trellis_workers workers = { job->devices.at[0], job->pool, goes_on, job };
    bool ok = find_gain(job, e->bits, err);

    job->current = n * e->from->dims[0] * e->from->dims[1];
    for (uint32_t i = 0; i < n && ok; i++)
        ok = read_source(job, &e[i], &sources[i], err);
    ok = ok && trellis_encode(sources, n, &workers, codes, err);
    for (uint32_t i = 0; i < n; i++) {
        if (ok)
            write_code(job, &codes[i], e->bits);
        trellis_code_free(&codes[i]);
        mem_free((void *)(uintptr_t)sources[i].w);
    }
    job->done += job->current;
    return ok;
}

// The entries from one on that are coded side by side.
static uint32_t n_together(const struct write_job *job, size_t first)
{
    const struct trellis_entry *e = &job->entries[first], *o = e + 1;
    const uint64_t bytes = trellis_encode_bytes((uint32_t)e->from->dims[0], (uint32_t)e->from->dims[1]);
    const size_t left = model_file_n_tensors(job->file) - first;
    uint32_t n = 1;

    while (n < left && n < TRELLIS_TOGETHER && (n + 1) * bytes <= MOST_BYTES && o->layer == e->layer &&
           o->bits == e->bits && o->from->dims[0] == e->from->dims[0] && o->from->dims[1] == e->from->dims[1])
        n++, o++;
    return n;
}

// The moments of a layer, and of those behind it that have room.
static bool calibrate(struct write_job *job, uint32_t layer, struct err *err)
{
    const struct trellis_options *o = job->options;

    if (!o->calibrate || layer == NO_LAYER || layer < job->moments.limits.last)
        return true;
    moments_free(&job->moments);
    return o->calibrate(o->calibrate_arg, layer, &job->moments, err);
}

static bool write_tensors(struct write_job *job, struct err *err)
{
    const size_t n_tensors = model_file_n_tensors(job->file);
    uint32_t n;

    for (size_t i = 0; i < n_tensors; i += n) {
        const struct trellis_entry *e = &job->entries[i];
        n = e->bits ? n_together(job, i) : 1;
        for (uint32_t k = 0; k < n; k++)
            job->result.bytes_in += e[k].from->bytes;
        job->result.n_tensors += n;
        if (!e->bits) {
            file_write(&job->out, e->from->data, e->from->bytes);
            continue;
        }
        if (!calibrate(job, e->layer, err))
            return false;
        if (!write_codes(job, e, n, err))
            return err_prefix(err, "tensor %.*s", STR_ARG(e->from->name));
    }
    return true;
}

// ---- the folder

static bool write_file(const char *folder, const char *name, struct str text, struct err *err)
{
    char path[4096];

    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return err_set(err, ERR_INPUT, "%s/%s: the path is too long", folder, name);
    return file_save(path, text, err);
}

static bool write_config(const struct trellis_options *o, struct str text, struct err *err)
{
    json_error_t problem;
    json_t *config = json_memory_read(text, 0, &problem);
    json_t *how = json_pack("{s:s, s:s, s:i, s:i, s:s}", "quant_method", "exl3", "version", "0.0.2", "bits",
                            (int)o->bits, "head_bits", (int)o->head_bits, "codebook", "mul1");
    bool ok = config && json_object_set_new(config, "quantization_config", how) == 0;
    struct buf out = { 0 };

    ok = ok && buf_json(&out, config, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(config);
    ok = ok ? write_file(o->output, "config.json", buf_as_str(&out), err) : err_memory(err, "config.json");
    buf_free(&out);
    return ok;
}

static bool is_copied(const char *name)
{
    struct str s = str_from(name);
    return name[0] != '.' && !str_ends(s, STR(".safetensors")) &&
           !str_ends(s, STR(".safetensors.index.json")) && !str_ends(s, STR(".bin")) &&
           !str_ends(s, STR(".gguf")) && !str_ends(s, STR(".part"));
}

static bool copy_file(const struct trellis_options *o, const char *name, struct err *err)
{
    struct buf text = { 0 };
    char path[4096];

    if (snprintf(path, sizeof path, "%s/%s", o->input, name) >= (int)sizeof path)
        return err_set(err, ERR_INPUT, "%s/%s: the path is too long", o->input, name);
    if (file_is_directory(path))
        return true;
    bool ok = file_read(&text, path, MAX_COPIED, err) &&
              (strcmp(name, "config.json") == 0 ? write_config(o, buf_as_str(&text), err)
                                                : write_file(o->output, name, buf_as_str(&text), err));
    buf_free(&text);
    return ok;
}

static bool copy_files(const struct trellis_options *o, struct err *err)
{
    DIR *dir = opendir(o->input);
    bool ok = true;

    if (!dir)
        return err_set(err, ERR_IO, "%s: cannot list the folder", o->input);
    for (struct dirent *d; ok && (d = readdir(dir));)
        if (is_copied(d->d_name))
            ok = copy_file(o, d->d_name, err);
    closedir(dir);
    return ok;
}

// What a folder that this work made has in it: nothing of it is of use without the weights.
static void remove_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    char path[4096];

    for (struct dirent *d; dir && (d = readdir(dir));)
        if (snprintf(path, sizeof path, "%s/%s", folder, d->d_name) < (int)sizeof path)
            unlink(path);
    if (dir)
        closedir(dir);
    rmdir(folder);
}

static bool open_output(struct write_job *job, struct err *err)
{
    const struct trellis_options *o = job->options;
    char path[4096];

    if (snprintf(path, sizeof path, "%s/model.safetensors", o->output) >= (int)sizeof path)
        return err_set(err, ERR_INPUT, "%s: the path is too long", o->output);
    job->made_folder = mkdir(o->output, 0777) == 0;
    if (!job->made_folder && errno != EEXIST)
        return err_set(err, ERR_IO, "%s: %s; want a new folder", o->output, strerror(errno));
    if (file_exists(path))
        return err_set(err, ERR_INPUT, "%s is there already; name a new folder", path);
    return file_create(&job->out, path, err);
}

// The first of the devices that are named; the processor where that one has no kernel for the search.
static bool open_device(struct write_job *job, struct err *err)
{
    struct ingot_engine_options options = ingot_engine_defaults();

    options.device = job->options->device;
    options.n_threads = job->options->n_threads;
    if (!devices_open(&job->devices, &options, err) || trellis_blocks_supported(job->devices.at[0]))
        return job->devices.n > 0;
    log_line(LOG_WARN, "quantize", "%s does not search a trellis; the processor does",
             job->devices.at[0]->name);
    devices_close(&job->devices);
    options.device = "cpu";
    return devices_open(&job->devices, &options, err);
}

static bool run(struct write_job *job, struct err *err)
{
    const struct trellis_options *o = job->options;

    if (!file_is_directory(o->input))
        return err_set(err, ERR_INPUT, "%s: EXL3 is made from a folder of safetensors", o->input);
    if (!model_file_open(&job->file, o->input, err) || !model_bind(&job->model, job->file, err) ||
        !choose_all(job, err))
        return false;
    job->pool = thread_pool_create(thread_count_capped(o->n_threads));
    if (!job->pool)
        return err_memory(err, "threads");
    if (!open_device(job, err) || !open_output(job, err))
        return false;
    if (!write_header(job, err) || !write_tensors(job, err) || !copy_files(o, err)) {
        file_abort(&job->out);
        return false;
    }
    return file_commit(&job->out, err);
}

bool trellis_write(const struct trellis_options *options, struct trellis_result *result, struct err *err)
{
    struct write_job job = { .options = options };
    bool ok = run(&job, err);

    if (!ok && job.made_folder)
        remove_folder(options->output);
    if (ok && job.result.n_coded)
        job.result.error /= job.result.n_coded;
    *result = job.result;
    moments_free(&job.moments);
    thread_pool_destroy(job.pool);
    devices_close(&job.devices);
    mem_free(job.entries);
    model_release(&job.model);
    model_file_close(job.file);
    return ok;
}
