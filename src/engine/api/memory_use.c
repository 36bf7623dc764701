// memory_use.c - see memory_use.h.
#include "engine/api/memory_use.h"
#include "engine/api.h"
#include "engine/speculate/draft_stage.h"
#include "engine/tiles.h"

static uint64_t scratch_of(const struct stage *s)
{
    uint64_t bytes = s->logits.bytes + s->results.bytes + s->mask_bias.bytes + s->step.bytes + s->sums.bytes +
                     s->head_part.bytes + (s->borrows_block ? 0 : s->block.bytes);

    for (uint32_t b = 0; b < N_BUCKETS; b++)
        bytes += s->buckets[b].tape ? tape_scratch_bytes(s->buckets[b].tape) : 0;
    return bytes;
}

// The rows of a tied matrix may be the file's own bytes, beside the form that is multiplied.
static bool is_of_file(const struct stage *s, const struct weight *w)
{
    return s->parts.model->tied && w == s->parts.weights.embed && w->buffer.host && !w->buffer.native;
}

static uint64_t weights_of(const struct stage *s)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < s->n_weights; i++)
        bytes += is_of_file(s, &s->weights[i]) ? 0 : s->weights[i].buffer.bytes;
    return bytes;
}

static uint64_t tower_of(const struct vision *v)
{
    uint64_t bytes = v->pixels.bytes + v->places.bytes + v->pool.bytes + v->history.bytes + v->step.bytes +
                     v->encoded.bytes;

    for (uint32_t w = 0; w < v->n_weights; w++)
        bytes += v->weights[w].buffer.bytes;
    for (uint32_t i = 0; i < v->n_buckets; i++)
        bytes += tape_scratch_bytes(v->tapes[i]);
    return bytes;
}

static void add_stage(struct memory_use *use, const struct stage *s)
{
    use->weights += weights_of(s);
    for (uint32_t k = 0; k < s->parts.last - s->parts.first; k++)
        use->pages += s->state_buffers ? s->state_buffers[k].bytes : 0;
    use->scratch += scratch_of(s);
    for (uint32_t k = 0; k < s->n_others; k++)
        add_stage(use, &s->others[k]);
}

struct memory_use memory_use_of(const struct ingot_engine *engine)
{
    const struct engine_loaded *l = engine->inner.loaded;
    struct memory_use use = { 0 };

    for (uint32_t i = 0; i < l->n_stages + (engine->inner.draft_stage != NULL); i++) {
        const struct stage *s = i < l->n_stages ? &l->stages[i] : draft_stage_of(engine->inner.draft_stage);
        use.pages += stage_page_bytes(s);
        add_stage(&use, s);
    }
    use.tower = engine->inner.tiles ? tower_of(&engine->inner.tiles->vision) : 0;
    return use;
}
