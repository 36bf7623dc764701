// model_info.c - see model_info.h.
#include "model_tools/model_info.h"
#include "engine/embedded.h"
#include "engine/speculate/speculate.h"
#include "engine/stage/outline.h"
#include "engine/tiles.h"
#include "models/arch.h"

enum { DEFAULT_CONTEXT = 8192, DEFAULT_ROWS = 512, DEFAULT_OUTPUTS = 16 };

enum { N_TABLES = 2 };

// Of which a token reads one row: the embedding, where it is not the head too, and what layers get of each
// token. NULL: the model has none.
static void find_tables(const struct model *m, const struct file_tensor *tables[N_TABLES])
{
    tables[0] = m->tied ? NULL : MODEL_TENSOR(m, embed);
    tables[1] = MODEL_TENSOR(m, input_embed);
}

static uint64_t active_parameters(const struct model *m)
{
    uint64_t n = m->n_parameters - m->n_idle;
    const struct file_tensor *tables[N_TABLES];

    find_tables(m, tables);
    for (uint32_t i = 0; i < N_TABLES; i++)
        n -= tables[i] ? (tables[i]->dims[0] - 1) * tables[i]->dims[1] : 0; // of other tokens
    return n;
}

// Bytes that decoding reads per token, of weights, but for the rows of tables: every weight once, the chosen
// experts only.
static uint64_t read_bytes(const struct model *m)
{
    uint64_t bytes = m->weight_bytes - m->idle_bytes;
    const struct file_tensor *tables[N_TABLES];

    find_tables(m, tables);
    for (uint32_t i = 0; i < N_TABLES; i++)
        bytes -= tables[i] ? tables[i]->bytes : 0;
    return bytes;
}

static struct stage_shape shape_of(const struct model_info *s)
{
    uint32_t n_pages = (s->n_context + PAGE_TOKENS - 1) / PAGE_TOKENS;
    bool whole = s->model.arch->is_encoder && s->n_context > DEFAULT_ROWS; // a text is one step
    struct stage_shape shape = { .max_rows = whole ? s->n_context : DEFAULT_ROWS,
                                 .max_outputs = DEFAULT_OUTPUTS,
                                 .n_slots = 1,
                                 .n_pages = n_pages,
                                 .n_states = place_states(&s->model, 1, SPECULATE_MOST, n_pages),
                                 .drafts = s->model.drafts,
                                 .k_format = KV_F16,
                                 .v_format = KV_F16 };
    shape.max_pages = n_pages;
    shape.history_stride = s->n_context;
    shape.n_windows = place_windows(&s->model, &shape, true);
    return shape;
}

static void count(struct model_info *s, uint32_t n_context)
{
    const struct model_config *c = &s->model.config;
    uint32_t most = c->n_context < DEFAULT_CONTEXT ? c->n_context : DEFAULT_CONTEXT;

    s->n_context = n_context ? n_context : most;
    struct stage_shape shape = shape_of(s);
    s->memory = place_memory(&s->model, &shape, NULL);
    s->n_active = active_parameters(&s->model);
    s->read_bytes = read_bytes(&s->model);
    s->kv_bytes = model_pages_bytes(&s->model, 0, c->n_layers, KV_F16, KV_F16) / PAGE_TOKENS;
}

// On a processor. A model whose steps cannot be recorded keeps the rough sum: opening says why.
static void count_scratch(struct model_info *s)
{
    struct ingot_engine_options options = { .device = "cpu", .n_threads = 1 };
    struct placement whole = { .layers = { { 0, s->model.config.n_layers } }, .n = 1 };
    struct stage_shape shape = shape_of(s);
    struct devices devices = { 0 };
    struct outline outline;
    struct err ignored;

    if (!devices_open(&devices, &options, &ignored)) {
        devices_close(&devices);
        return;
    }
    struct outline_request r = {
        .model = &s->model, .devices = &devices, .shape = &shape, .placement = &whole
    };
    struct vision_plan tower = { .file = s->eyes.file ? s->eyes.file : s->file,
                                 .device = devices.at[0],
                                 .n_out = s->model.config.n_cols };
    if (outline_stages(&r, &outline, &ignored))
        s->memory.scratch = outline.scratch[0];
    if (s->eyes.known && tiles_scratch_need(tower, &s->memory.tower_scratch, &ignored)) {
        s->memory.tower_weights = s->eyes.tower.weight_bytes;
        s->memory.weights += s->memory.tower_weights;
        s->memory.scratch += s->memory.tower_scratch;
    }
    devices_close(&devices);
}

bool model_info_open(struct model_info *s, const char *path, uint32_t n_context, struct err *err)
{
    *s = (struct model_info){ 0 };
    if (!embedded_or_file(&s->file, path, err))
        return false;
    s->known = model_bind(&s->model, s->file, &s->unknown);
    if (s->known)
        count(s, n_context);
    model_eyes_find(&s->eyes, path, s->file, s->known ? s->model.config.n_cols : 0);
    if (s->known)
        count_scratch(s);
    return true;
}

void model_info_close(struct model_info *s)
{
    model_eyes_close(&s->eyes);
    if (s->known)
        model_release(&s->model);
    model_file_close(s->file);
    *s = (struct model_info){ 0 };
}
