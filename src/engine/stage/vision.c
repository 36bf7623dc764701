// vision.c - see vision.h.
#include "engine/stage/vision.h"
#include "base/clock.h"
#include "base/mem.h"
#include "engine/stage/take.h"

static const uint64_t LARGE_DEVICE_BYTES = 24ull << 30; // room for half a GiB between the operations

static bool take_into(struct vision *v, const struct take *k, const struct file_tensor *t,
                      const struct weight **place, struct err *err)
{
    struct weight *w = &v->weights[v->n_weights++];
    bool position = place == &v->parts.weights.position;

    *place = w;
    return take_tensor(k, t, position ? WEIGHT_ROWS : WEIGHT_PRODUCT, w, err) ||
           err_prefix(err, "tensor %.*s", STR_ARG(t->name));
}

static bool take_weights(struct vision *v, struct err *err)
{
    const struct tower *t = &v->tower;
    uint32_t n_layers = t->config.n_layers;
    float table[3][256];

    v->weights =
        mem_alloc_array((size_t)n_layers * N_TOWER_LAYER_WEIGHTS + N_TOWER_WEIGHTS, sizeof *v->weights);
    v->layers = mem_alloc_array(n_layers, sizeof *v->layers);
    v->names = arena_create((size_t)1 << 26);
    if (!v->weights || !v->layers || !v->names)
        return err_memory(err, "a tower's weights");
    const struct take take = { v->device, v->names, t->file };
    const struct weight **globals = (const struct weight **)&v->parts.weights,
                        **layers = (const struct weight **)v->layers;
    v->parts.layers = v->layers;
    for (uint32_t i = 0; i < N_TOWER_WEIGHTS; i++)
        if (t->tensors[i] && !take_into(v, &take, t->tensors[i], &globals[i], err))
            return false;
    for (size_t i = 0; i < (size_t)n_layers * N_TOWER_LAYER_WEIGHTS; i++)
        if (t->layers[i] && !take_into(v, &take, t->layers[i], &layers[i], err))
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

// A device whose plays run on by themselves is a GPU: few rows leave most of it idle.
static void choose_buckets(struct vision *v)
{
    const struct image_processor *p = &v->tower.config.processor;
    uint32_t across = (p->longest_edge + p->tile - 1) / p->tile, most = image_n_tiles(across, across);
    struct device_info info = { 0 };

    for (uint32_t tiles = 1; tiles <= 4; tiles *= 2)
        v->buckets[v->n_buckets++] = tiles;
    if (!v->device->queue || most <= 4)
        return;
    v->device->ops->info(v->device, &info);
    if (info.memory_bytes >= LARGE_DEVICE_BYTES)
        v->buckets[v->n_buckets++] = most < VISION_MOST_TILES ? most : VISION_MOST_TILES;
}

static bool make_buffers(struct vision *v, const struct vision_plan *plan, struct err *err)
{
    const struct tower *t = &v->tower;
    uint32_t n_tiles = vision_most_tiles(v), max_rows = n_tiles * tower_patches(t),
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
        struct tape_limits limits = { .max_rows = v->buckets[i] * tower_patches(&v->tower),
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
    *v = (struct vision){ .device = plan->device, .n_places = plan->n_places };
    bool ok = tower_bind(&v->tower, plan->file, plan->n_out, err);
    if (ok)
        choose_buckets(v);
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

// Rows of n tiles: a full tile's patches in order, and the upper left patch of each square as an output.
static void fill_step(struct vision *v, const struct vision_tile *tiles, uint32_t n, uint32_t bucket)
{
    const struct tower_config *c = &v->tower.config;
    uint32_t n_patches = tower_patches(&v->tower), n_rows = tower_rows(&v->tower),
             across = c->side / c->scale;
    uint32_t max_rows = v->buckets[bucket] * n_patches, *words = (uint32_t *)v->host_step;

    *v->host_step = (struct step){ .n_rows = n * n_patches,
                                   .n_outputs = n * n_rows,
                                   .max_rows = max_rows,
                                   .max_outputs = v->buckets[bucket] * n_rows };
    for (uint32_t r = 0; r < n * n_patches; r++) {
        words[step_at_tokens() + r] = words[step_at_positions(max_rows) + r] = r % n_patches;
        words[step_at_slots(max_rows) + r] = r / n_patches;
    }
    for (uint32_t o = 0; o < n * n_rows; o++) {
        uint32_t tile = o / n_rows, line = o % n_rows / across * c->scale, column = o % across * c->scale;
        words[step_at_outputs(max_rows) + o] = tile * n_patches + line * c->side + column;
        v->host_places[o] = tiles[tile].place * n_rows + o % n_rows;
    }
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

static bool play_part(struct vision *v, struct tape *t, uint32_t first, uint32_t end, double *ms,
                      struct err *err)
{
    uint64_t begun = clock_ns();
    bool ok =
        v->device->ops->play(v->device, t, &v->step, first, end, err) && v->device->ops->wait(v->device, err);

    *ms = (double)(clock_ns() - begun) * 1e-6;
    return ok;
}

// On a processor a part of a tape costs nothing more; a GPU plays all of it as one graph.
static bool play_parts(struct vision *v, struct tape *t, struct vision_times *times, struct err *err)
{
    uint32_t n_embed = v->tape_parts.n_embed, n_encode = v->tape_parts.n_encode;
    double encode;

    if (v->device->queue && !v->times_parts)
        return tape_play(t, &v->step, err) && v->device->ops->wait(v->device, err);
    v->device->counters.plays++;
    return play_part(v, t, 0, n_embed, &times->embed, err) &&
           play_part(v, t, n_embed, n_embed + n_encode, &encode, err) &&
           play_part(v, t, n_embed + n_encode, tape_n_commands(t), &times->connect, err);
}

bool vision_encode(struct vision *v, const struct vision_tile *tiles, uint32_t n, struct vision_times *times,
                   struct err *err)
{
    uint64_t begun = clock_ns();
    uint32_t bucket = 0;

    CHECK(n > 0 && n <= vision_most_tiles(v));
    while (n > v->buckets[bucket])
        bucket++;
    fill_step(v, tiles, n, bucket);
    uint64_t step_length = step_at_samples(v->host_step->max_rows, v->host_step->max_outputs) * 4ull;
    if (!copy_pixels(v, tiles, n, err) ||
        !buffer_write(&v->places, 0, v->host_places, n * tower_rows(&v->tower) * 4ull, err) ||
        !buffer_write(&v->step, 0, v->host_step, step_length, err))
        return false;
    if (!times)
        return tape_play(v->tapes[bucket], &v->step, err);
    *times = (struct vision_times){ 0 };
    bool ok = play_parts(v, v->tapes[bucket], times, err);
    times->all = (double)(clock_ns() - begun) * 1e-6;
    return ok;
}
