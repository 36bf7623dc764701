// vision.c - see vision.h.
#include "engine/stage/vision.h"
#include <math.h>
#include <string.h>
#include "base/clock.h"
#include "base/divide.h"
#include "base/mem.h"
#include "engine/stage/take.h"
#include "quant/row_scales.h"

static const uint64_t LARGE_DEVICE_BYTES = 24ull << 30; // room for half a GiB between the operations

// Number i of a tensor of plain numbers: fp32, as converters leave the patch embedding, becomes bf16, by
// which GPUs multiply many rows.
static uint16_t half_at(const struct file_tensor *t, uint64_t i)
{
    float value;
    uint16_t half;

    if (t->format == QUANT_F32) {
        memcpy(&value, (const char *)t->data + i * sizeof value, sizeof value);
        return quant_float_to_bf16(value);
    }
    memcpy(&half, (const char *)t->data + i * sizeof half, sizeof half);
    return half;
}

static uint64_t n_cols_of(const struct file_tensor *t)
{
    return t->dims[1] * t->dims[2] * t->dims[3];
}

// Columns of the patch embedding, padded to a multiple of the device's product_cols: patches of 14 x 14
// pixels have 588. Not padded where that would add more than an eighth.
static uint64_t patch_cols(const struct device *d, uint64_t n_cols)
{
    uint64_t whole =
        d->product_cols ? (uint64_t)divide_up(n_cols, d->product_cols) * d->product_cols : n_cols;

    return whole - n_cols <= n_cols / 8 ? whole : n_cols;
}

// Loads a matrix of F32, F16 or BF16 as 16-bit numbers with n_cols columns; those beyond the file's are zero.
static bool take_halves(struct vision *v, const struct file_tensor *t, uint64_t n_cols, struct weight *w,
                        struct err *err)
{
    const struct take take = { v->device, v->names, NULL };
    struct file_tensor halves = *t;
    uint64_t n_rows = t->dims[0], n_own = n_cols_of(t), n = n_rows * n_cols;
    uint16_t *numbers = arena_alloc_array(v->names, n, sizeof *numbers);

    if (!numbers)
        return err_memory(err, "a rounded matrix");
    for (uint64_t i = 0; !v->device->outlines && i < n; i++)
        numbers[i] = i % n_cols < n_own ? half_at(t, i / n_cols * n_own + i % n_cols) : 0;
    halves.format = t->format == QUANT_F32 ? QUANT_BF16 : t->format;
    memcpy(halves.dims, (uint64_t[TENSOR_MAX_DIMS]){ n_rows, n_cols, 1, 1 }, sizeof halves.dims);
    halves.data = (const unsigned char *)numbers;
    halves.bytes = n * sizeof *numbers;
    return take_tensor(&take, &halves, WEIGHT_PRODUCT, w, err);
}

// A layer's matrix with one scale a row, for a device that copies it and multiplies many rows in integers.
static bool take_row_scales(struct vision *v, const struct file_tensor *t, struct weight *w, struct err *err)
{
    const struct take take = { v->device, v->names, NULL };
    struct file_tensor scaled = *t;
    uint32_t n_rows = (uint32_t)t->dims[0], n_cols = (uint32_t)t->dims[1];

    if (v->device->outlines)
        return take_tensor(&take, t, WEIGHT_ROW_SCALES, w, err);
    uint64_t row = t->bytes / n_rows;
    unsigned char *rows = mem_alloc(t->bytes);

    if (!rows)
        return err_memory(err, "a matrix with one scale a row");
    for (uint32_t r = 0; r < n_rows; r++)
        quant_row_scales(t->data + r * row, rows + r * row, n_cols);
    scaled.data = rows;
    bool ok = take_tensor(&take, &scaled, WEIGHT_ROW_SCALES, w, err);
    mem_free(rows);
    return ok;
}

static bool wants_row_scales(const struct vision *v, const struct file_tensor *t, const struct weight **place)
{
    const struct weight *const *globals = (const struct weight *const *)&v->parts.weights;
    bool in_layer = place < globals || place >= globals + N_TOWER_WEIGHTS;

    return in_layer && !v->exact && !v->invariant && t->format == QUANT_Q8_0 && t->n_dims == 2 &&
           v->device->row_scales_cols && t->dims[1] % v->device->row_scales_cols == 0;
}

static bool take_into(struct vision *v, const struct take *k, const struct file_tensor *t,
                      const struct weight **place, struct err *err)
{
    struct weight *w = &v->weights[v->n_weights++];
    bool position = place == &v->parts.weights.position, patch = place == &v->parts.weights.patch,
         plain = !v->exact && !position && t->n_dims > 1 && t->format <= QUANT_BF16;
    uint64_t n_cols = patch ? patch_cols(v->device, n_cols_of(t)) : n_cols_of(t);
    bool halves = plain && (t->format == QUANT_F32 || n_cols != n_cols_of(t));

    *place = w;
    return (halves ? take_halves(v, t, n_cols, w, err)
            : wants_row_scales(v, t, place)
                ? take_row_scales(v, t, w, err)
                : take_tensor(k, t, position ? WEIGHT_ROWS : WEIGHT_PRODUCT, w, err)) ||
           err_prefix(err, "tensor %.*s", STR_ARG(t->name));
}

// With a class token these three are one table of rows.
static bool is_in_positions(const struct tower *t, const struct weight **place, struct tower_weights *w)
{
    return t->config.n_class &&
           (place == &w->patch_bias || place == &w->class_token || place == &w->position);
}

static bool take_positions(struct vision *v, struct err *err)
{
    const struct tower *t = &v->tower;
    uint32_t n_rows = tower_tile_rows(t), n_cols = t->config.n_cols;
    float *table = arena_alloc_array(v->names, (size_t)n_rows * n_cols, sizeof *table);
    struct weight *w = &v->weights[v->n_weights++];
    struct weight_source source = {
        table, (uint64_t)n_rows * n_cols * sizeof *table, n_rows, n_cols, QUANT_F32, WEIGHT_ROWS, "positions"
    };

    v->parts.weights.position = w;
    return (table || err_memory(err, "a tower's positions")) && tower_positions(t, table, err) &&
           weight_create(v->device, &source, w, err);
}

static bool take_weights(struct vision *v, struct err *err)
{
    const struct tower *t = &v->tower;
    uint32_t n_layers = t->config.n_layers;
    float table[3][256];

    v->weights =
        mem_alloc_array((size_t)n_layers * N_TOWER_LAYER_WEIGHTS + N_TOWER_WEIGHTS, sizeof *v->weights);
    v->layers = mem_alloc_array(n_layers, sizeof *v->layers);
    v->names = arena_create((size_t)1 << 32);
    if (!v->weights || !v->layers || !v->names)
        return err_memory(err, "a tower's weights");
    const struct take take = { v->device, v->names, t->file };
    const struct weight **globals = (const struct weight **)&v->parts.weights,
                        **layers = (const struct weight **)v->layers;
    v->parts.layers = v->layers;
    for (uint32_t i = 0; i < N_TOWER_WEIGHTS; i++)
        if (t->tensors[i] && !is_in_positions(t, &globals[i], &v->parts.weights) &&
            !take_into(v, &take, t->tensors[i], &globals[i], err))
            return false;
    for (size_t i = 0; i < (size_t)n_layers * N_TOWER_LAYER_WEIGHTS; i++)
        if (t->layers[i] && !take_into(v, &take, t->layers[i], &layers[i], err))
            return false;
    if (t->config.n_class && !take_positions(v, err))
        return false;
    image_normal_table(&t->config.processor, table);
    v->parts.weights.pixels = &v->weights[v->n_weights];
    return take_numbers(&take, &table[0][0], 3 * 256, "pixels", &v->weights[v->n_weights++], err);
}

uint64_t vision_tile_bytes(const struct vision *v)
{
    return 3ull * v->tower.config.processor.tile * v->tower.config.processor.tile;
}

uint32_t vision_most_tiles(const struct vision *v)
{
    return v->buckets[v->n_buckets - 1];
}

// A device whose plays run on by themselves is a GPU: few rows leave most of it idle. Returns their number.
static uint32_t choose_buckets(const struct tower *t, struct device *device,
                               uint32_t buckets[VISION_MOST_BUCKETS])
{
    uint32_t most = image_most_tiles(&t->config.processor), n = 0;
    struct device_info info = { 0 };

    for (uint32_t tiles = 1; tiles <= 4; tiles *= 2)
        buckets[n++] = tiles;
    if (!device->queue || most <= 4)
        return n;
    device->ops->info(device, &info);
    if (info.memory_bytes >= LARGE_DEVICE_BYTES)
        buckets[n++] = most < VISION_MOST_TILES ? most : VISION_MOST_TILES;
    return n;
}

uint64_t vision_scratch_bytes(const struct vision *v)
{
    uint64_t bytes = v->pixels.bytes + v->places.bytes + v->pool.bytes + v->history.bytes + v->step.bytes +
                     v->encoded.bytes;

    for (uint32_t i = 0; i < v->n_buckets; i++)
        bytes += tape_scratch_bytes(v->tapes[i]);
    return bytes;
}

static bool make_buffers(struct vision *v, const struct vision_plan *plan, struct err *err)
{
    const struct tower *t = &v->tower;
    uint32_t n_tiles = vision_most_tiles(v), max_rows = n_tiles * tower_tile_rows(t),
             max_outputs = n_tiles * tower_rows(t);
    struct tower_stage *p = &v->parts;

    p->tower = t;
    p->pixels = &v->pixels;
    p->places = &v->places;
    p->pool = &v->pool;
    p->history = &v->history;
    p->encoded = plan->keeps_encoded ? &v->encoded : NULL;
    v->host_step = mem_alloc(step_bytes(max_rows, max_outputs));
    v->host_places = mem_alloc_array(max_outputs, sizeof *v->host_places);
    if (!v->host_step || !v->host_places)
        return err_memory(err, "a tower's step");
    return buffer_alloc(v->device, n_tiles * vision_tile_bytes(v), &v->pixels, err) &&
           buffer_alloc(v->device, max_outputs * 4ull, &v->places, err) &&
           buffer_alloc(v->device, (uint64_t)plan->n_places * tower_rows(t) * plan->n_out * 4, &v->pool,
                        err) &&
           buffer_alloc(v->device, 4, &v->history, err) &&
           buffer_alloc(v->device, step_bytes(max_rows, max_outputs), &v->step, err) &&
           (!plan->keeps_encoded ||
            buffer_alloc(v->device, (uint64_t)max_rows * t->config.n_cols * 4, &v->encoded, err));
}

static bool make_tapes(struct vision *v, const struct vision_plan *plan, struct err *err)
{
    for (uint32_t i = 0; i < v->n_buckets; i++) {
        struct tape_limits limits = { .max_rows = v->buckets[i] * tower_tile_rows(&v->tower),
                                      .max_outputs = v->buckets[i] * tower_rows(&v->tower),
                                      .exact = plan->exact,
                                      .invariant = plan->invariant };
        v->tapes[i] = tape_create(v->device, limits);
        if (!v->tapes[i])
            return err_memory(err, "a tower's tape");
        v->tape_parts = tower_record(v->tapes[i], &v->parts);
        if (!tape_seal(v->tapes[i], err))
            return false;
    }
    return true;
}

bool vision_create(struct vision *v, const struct vision_plan *plan, struct err *err)
{
    *v = (struct vision){
        .device = plan->device, .n_places = plan->n_places, .exact = plan->exact, .invariant = plan->invariant
    };
    bool ok = tower_bind(&v->tower, plan->file, plan->n_out, err);
    if (ok)
        v->n_buckets = choose_buckets(&v->tower, v->device, v->buckets);
    if (ok && make_buffers(v, plan, err) && take_weights(v, err) && make_tapes(v, plan, err))
        return true;
    vision_release(v);
    return false;
}

void vision_release(struct vision *v)
{
    struct buffer *buffers[] = { &v->pixels, &v->places, &v->pool, &v->history, &v->step, &v->encoded };

    for (uint32_t i = 0; i < v->n_buckets; i++)
        tape_destroy(v->tapes[i]);
    for (uint32_t i = 0; i < v->n_weights; i++)
        weight_release(&v->weights[i]);
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        buffer_release(buffers[i]);
    arena_destroy(v->names);
    mem_free(v->weights);
    mem_free(v->layers);
    mem_free(v->host_step);
    mem_free(v->host_places);
    tower_release(&v->tower);
    *v = (struct vision){ 0 };
}

// Rows of n tiles: a full tile's patches in order, and the upper left patch of each square as an output. The
// step on the device serves all plays of as many tiles.
static bool write_step(struct vision *v, uint32_t n, struct err *err)
{
    const struct tower_config *c = &v->tower.config;
    uint32_t tile_rows = tower_tile_rows(&v->tower), n_rows = tower_rows(&v->tower),
             across = c->side / c->scale;
    uint32_t max_rows = v->buckets[v->bucket] * tile_rows, *words = (uint32_t *)v->host_step;

    if (v->n_step_tiles == n)
        return true;
    *v->host_step = (struct step){ .n_rows = n * tile_rows,
                                   .n_outputs = n * n_rows,
                                   .max_rows = max_rows,
                                   .max_outputs = v->buckets[v->bucket] * n_rows };
    for (uint32_t tile = 0, r = 0; tile < n; tile++)
        for (uint32_t i = 0; i < tile_rows; i++, r++) {
            words[step_at_tokens() + r] = words[step_at_positions(max_rows) + r] = i;
            words[step_at_slots(max_rows) + r] = tile;
        }
    for (uint32_t o = 0; o < n * n_rows; o++) {
        uint32_t tile = o / n_rows, line = o % n_rows / across * c->scale, column = o % across * c->scale;
        words[step_at_outputs(max_rows) + o] = tile * tile_rows + line * c->side + column;
    }
    bool ok = buffer_write(&v->step, 0, v->host_step,
                           step_at_samples(max_rows, v->host_step->max_outputs) * 4ull, err);
    v->n_step_tiles = ok ? n : 0;
    return ok;
}

static bool write_places(struct vision *v, const struct vision_tile *tiles, uint32_t n, struct err *err)
{
    uint32_t n_rows = tower_rows(&v->tower);

    for (uint32_t o = 0; o < n * n_rows; o++)
        v->host_places[o] = tiles[o / n_rows].place * n_rows + o % n_rows;
    return buffer_write(&v->places, 0, v->host_places, n * n_rows * 4ull, err);
}

// Tiles that lie together travel together.
static bool copy_pixels(struct vision *v, const struct vision_tile *tiles, uint32_t n, struct err *err)
{
    uint64_t bytes = vision_tile_bytes(v);

    for (uint32_t first = 0, i = 1; i <= n; i++) {
        CHECK(tiles[i - 1].place < v->n_places);
        if (i < n && tiles[i].rgb == tiles[i - 1].rgb + bytes)
            continue;
        if (!buffer_write(&v->pixels, first * bytes, tiles[first].rgb, (i - first) * bytes, err))
            return false;
        first = i;
    }
    return true;
}

static bool play_part(struct vision *v, uint32_t first, uint32_t end, double *ms, struct err *err)
{
    uint64_t begun = clock_ns();
    bool ok = v->device->ops->play(v->device, v->tapes[v->bucket], &v->step, first, end, err) &&
              v->device->ops->wait(v->device, err);
    double took = (double)(clock_ns() - begun) * 1e-6;

    *ms += took;
    v->times.all += took;
    return ok;
}

// The part of the tape that a command belongs to: where it ends, and whose time it counts as.
static uint32_t part_of(struct vision *v, uint32_t command, double **ms, double *rest)
{
    uint32_t n_embed = v->tape_parts.n_embed, n_encode = v->tape_parts.n_encode;

    *ms = command < n_embed ? &v->times.embed : command < n_embed + n_encode ? rest : &v->times.connect;
    return command < n_embed              ? n_embed
           : command < n_embed + n_encode ? n_embed + n_encode
                                          : tape_n_commands(v->tapes[v->bucket]);
}

// A GPU plays a tape as one graph.
static bool play_whole(struct vision *v, struct err *err)
{
    uint64_t begun = clock_ns();
    bool ok = tape_play(v->tapes[v->bucket], &v->step, err) && v->device->ops->wait(v->device, err);

    v->times.all += (double)(clock_ns() - begun) * 1e-6;
    return ok;
}

bool vision_begin(struct vision *v, const struct vision_tile *tiles, uint32_t n, struct err *err)
{
    uint64_t begun = clock_ns();

    CHECK(n > 0 && n <= vision_most_tiles(v));
    for (v->bucket = 0; n > v->buckets[v->bucket];)
        v->bucket++;
    v->n_played = 0;
    v->times = (struct vision_times){ 0 };
    bool ok = copy_pixels(v, tiles, n, err) && write_places(v, tiles, n, err) && write_step(v, n, err);
    v->times.all = (double)(clock_ns() - begun) * 1e-6;
    return ok;
}

bool vision_continue(struct vision *v, double budget_ns, bool *done, struct err *err)
{
    uint32_t n = tape_n_commands(v->tapes[v->bucket]);
    bool graph = v->device->queue && !v->times_parts, sliced = !v->device->queue && budget_ns < INFINITY,
         ok = true;
    double rest = 0, *ms, until = (double)clock_ns() + budget_ns;

    if (v->n_played == 0 && !graph)
        v->device->counters.plays++;
    if (graph && v->n_played == 0) {
        ok = play_whole(v, err);
        v->n_played = n;
    }
    while (ok && v->n_played < n) {
        uint32_t end = part_of(v, v->n_played, &ms, &rest);
        end = sliced ? v->n_played + 1 : end;
        ok = play_part(v, v->n_played, end, ms, err);
        v->n_played = end;
        if (sliced && (double)clock_ns() >= until)
            break;
    }
    *done = ok && v->n_played == n;
    return ok;
}

bool vision_encode(struct vision *v, const struct vision_tile *tiles, uint32_t n, struct err *err)
{
    return vision_begin(v, tiles, n, err) && tape_play(v->tapes[v->bucket], &v->step, err);
}
