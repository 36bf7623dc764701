// memory_use.c - see memory_use.h.
#include "engine/api/memory_use.h"
#include "engine/api.h"
#include "engine/flight/pipeline.h"
#include "engine/group/group.h"
#include "engine/speculate/draft_stage.h"
#include "engine/stage/away.h"
#include "engine/stage/outline.h"
#include "engine/tiles.h"

// The rows of a tied matrix may be the file's own bytes: beside the form that is multiplied, or the same
// ones. A stage without the head counts them, as it counts those of a matrix of its own.
static bool is_of_file(const struct stage *s, const struct weight *w)
{
    const struct model_weights *all = &s->parts.weights;

    return s->parts.model->tied && all->head && w == all->embed && w->buffer.host &&
           (!w->buffer.native || w->buffer.host == all->head->buffer.host);
}

// Like what was predicted (struct place_memory: far).
static bool is_of_host(const struct stage *s, const struct weight *w)
{
    return s->shape.far_rows && w == s->parts.weights.input_embed && w->buffer.host;
}

static uint64_t weights_of(const struct stage *s)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < s->n_weights; i++)
        if (!is_of_file(s, &s->weights[i]) && !is_of_host(s, &s->weights[i]))
            bytes += s->weights[i].buffer.bytes;
    return bytes;
}

static uint64_t tower_of(const struct vision *v)
{
    uint64_t bytes = vision_scratch_bytes(v);

    for (uint32_t w = 0; w < v->n_weights; w++)
        bytes += v->weights[w].buffer.bytes;
    return bytes;
}

static void add_stage(struct memory_use *use, const struct stage *s)
{
    use->weights += weights_of(s);
    for (uint32_t k = 0; k < s->parts.last - s->parts.first; k++)
        use->pages += s->state_buffers ? s->state_buffers[k].bytes : 0;
    use->scratch += stage_scratch_bytes(s);
    for (uint32_t k = 0; k < s->n_others; k++)
        add_stage(use, &s->others[k]);
    if (s->away)
        add_stage(use, &s->away->stage);
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
    use.scratch += engine->inner.pipeline ? pipeline_slot_bytes(engine->inner.pipeline) : 0;
    use.scratch += l->group ? group_inbox_bytes(l->group) : 0;
    use.tower = engine->inner.tiles ? tower_of(&engine->inner.tiles->vision) : 0;
    use.tower += l->group ? group_pool_bytes(l->group) : 0;
    return use;
}
