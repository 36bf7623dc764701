// verify.c - see verify.h.
//
// Every command gets the same inputs on both sides, so that its error is its own. Limits are normalised
// squared errors:
//   gemm with int8 activations              5e-4
//   gate_up, experts_up, moe                1e-3: they multiply two such sums
//   attention, stores to 16-bit pages       1e-6
//   attention with bf16 dot products        2e-5
//   everything else                         1e-9: fp32 in another order of summation
// Sampled ids must be equal.
//
// Ranks that have a part of every layer are compared one after the other. What they exchange is not a command
// then, and none gets the others' sums: numbers as good as any. Their devices try it when they are opened.
#include "engine/api/verify.h"
#include <string.h>
#include "base/mem.h"
#include "engine/api.h"
#include "engine/group/direct.h"
#include "engine/kv/kv_state.h"
#include "engine/kv_persist.h"
#include "engine/stage/away.h"
#include "engine/stage/batch.h"
#include "engine/stage/link.h"
#include "ops/ops.h"

struct walk {
    struct verification *v;
    struct engine *engine;
    uint32_t stage, rank;
    const struct stage *at; // that stage, or its experts elsewhere
    bool stopped;
};

static double limit_of(const struct stage *s, const char *name)
{
    const struct stage_shape *shape = &s->shape;
    bool exact = shape->exact, half = shape->k_format != KV_F32 || shape->v_format != KV_F32;
    bool product = strcmp(name, "matmul") == 0 || strcmp(name, "qkv") == 0 ||
                   strcmp(name, "matmul_normed") == 0 || strcmp(name, "experts_down") == 0 ||
                   strcmp(name, "latent_project") == 0 || strcmp(name, "latent_qk") == 0;
    bool gated = strcmp(name, "gate_up") == 0 || strcmp(name, "experts_up") == 0 ||
                 strcmp(name, "moe") == 0 || strcmp(name, "latent_block") == 0 ||
                 strcmp(name, "latent_prompt") == 0 || strcmp(name, "attend_block") == 0,
         attend = strcmp(name, "attend") == 0 || strcmp(name, "latent_attend") == 0,
         stores =
             strcmp(name, "qkv") == 0 || strcmp(name, "rope_store") == 0 || strcmp(name, "latent_store") == 0;

    if (!exact && product)
        return 5e-4;
    if (!exact && gated)
        return 1e-3;
    if (attend && (shape->k_format > KV_F16 || shape->v_format > KV_F16))
        return 2e-5;
    return half && (attend || stores) ? 1e-6 : 1e-9;
}

static bool on_difference(void *arg, const struct tape_difference *d)
{
    struct walk *w = arg;
    struct verify_finding f = {
        w->stage, w->rank, d->command, d->label, d->name, d->error, limit_of(w->at, d->name)
    };

    w->v->n_bad += !(f.error <= f.limit);
    w->stopped = w->v->on_command && !w->v->on_command(w->v->arg, &f);
    return !w->stopped;
}

// A step of one sequence, with scattered token ids or those that are given; the last row's logits are wanted.
static bool fill_batch(struct engine *e, const struct verification *v, struct err *err)
{
    struct batch *b = e->batch;
    uint32_t slot = kv_slot_take(&e->kv), n_rows = v->n_rows, n_vocab = e->loaded->model.config.n_vocab;

    if (n_rows == 0 || n_rows > b->max_rows || n_rows > e->loaded->n_context)
        return err_set(err, ERR_INPUT, "%u rows to verify with; want 1 to %u", n_rows,
                       b->max_rows < e->loaded->n_context ? b->max_rows : e->loaded->n_context);
    CHECK(engine_grow(e, slot, n_rows));
    for (uint32_t i = 0; i < n_rows; i++)
        batch_add_row(
            b, (struct batch_row){ .token = v->tokens ? v->tokens[i] : (i * 2654435761u + 12345u) % n_vocab,
                                   .position = i,
                                   .slot = slot,
                                   .state_from = i ? STATE_NEXT : STATE_ZERO,
                                   .state_to = i + 1 < n_rows ? STATE_NONE : kv_state_own(&e->kv, slot) });
    batch_add_output(b, (struct batch_output){ .params = { .repeat_penalty = 1 } });
    return true;
}

static bool verify_tapes(struct walk *w, struct batch *batches[2], struct stage *stages[2], struct err *err)
{
    struct tape *tapes[2];
    const struct buffer *steps[2];

    for (int i = 0; i < 2; i++) {
        struct bucket *bucket = stage_bucket(stages[i], batches[i]->n_rows, batches[i]->n_outputs, err);
        if (!bucket)
            return false;
        const struct step *step = batch_layout(batches[i], bucket->max_rows, bucket->max_outputs);
        if (!stage_step_write(stages[i], step, err))
            return false;
        tapes[i] = bucket->tape;
        steps[i] = &stages[i]->step;
    }
    w->at = stages[0];
    return tape_diff(tapes[0], tapes[1], steps, on_difference, w, err);
}

// Experts elsewhere get what the stage has left in its block: numbers as good as any.
static bool verify_stage(struct walk *w, struct engine *engines[2], struct err *err)
{
    struct batch *batches[2] = { engines[0]->batch, engines[1]->batch };
    struct stage *stages[2] = { &engines[0]->loaded->stages[w->stage],
                                &engines[1]->loaded->stages[w->stage] };

    if (!verify_tapes(w, batches, stages, err))
        return false;
    for (uint32_t i = 0; i < stages[0]->n_others && !w->stopped; i++) {
        w->rank = i + 1;
        if (!verify_tapes(w, batches, (struct stage *[]){ &stages[0]->others[i], &stages[1]->others[i] },
                          err))
            return err_prefix(err, "rank %u", w->rank);
    }
    if (!stages[0]->away || w->stopped)
        return true;
    for (int i = 0; i < 2; i++)
        if (!link_pass(&stages[i]->away->there, batches[i]->n_rows, err))
            return false;
    return verify_tapes(w, batches, (struct stage *[]){ &stages[0]->away->stage, &stages[1]->away->stage },
                        err);
}

static bool verify_both(struct walk *w, struct engine *engines[2], struct err *err)
{
    for (int i = 0; i < 2; i++)
        if (!fill_batch(engines[i], w->v, err))
            return false;
    for (; w->stage < engines[0]->loaded->n_stages && !w->stopped; w->stage++) {
        for (int i = 0; i < 2 && w->stage > 0; i++)
            if (!link_pass(&engines[i]->loaded->links[w->stage - 1], w->v->n_rows, err))
                return false;
        if (!verify_stage(w, engines, err))
            return false;
    }
    return true;
}

// The borders of e's stages, as --stages takes them.
static void write_borders(const struct engine *e, char *to, size_t n)
{
    size_t at = 0;

    *to = 0;
    for (uint32_t i = 1; i < e->loaded->n_stages && at < n; i++)
        at += (size_t)snprintf(to + at, n - at, "%s%u", i > 1 ? "," : "", e->loaded->stages[i].parts.first);
}

static bool all_support(const struct devices *d, uint32_t op)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (!d->at[i]->ops->supports(d->at[i], op))
            return false;
    return true;
}

bool engine_verify(const struct ingot_engine_options *options, struct verification *v, struct err *err)
{
    struct engine *engines[2] = { mem_alloc(sizeof(struct engine)), mem_alloc(sizeof(struct engine)) };
    struct ingot_engine_options own = *options, other = *options;
    bool loaded[2] = { false, false };
    uint32_t most_direct = direct_most_rows;
    char borders[MAX_STAGES * 6], experts[40];

    other.progress = NULL;
    if (v->against == VERIFY_VENDOR) {
        own.gemm = INGOT_GEMM_OWN;
        other.gemm = INGOT_GEMM_VENDOR;
    } else {
        other.device = "cpu:plain";
        other.cpu_features = 0;
        other.experts = NULL;
    }
    direct_most_rows = 0;
    if (!engines[0] || !engines[1])
        err_memory(err, "two engines");
    else if ((loaded[0] = engine_load(engines[0], &own, err))) {
        write_borders(engines[0], borders, sizeof borders);
        other.stages = borders;
        if (v->against != VERIFY_VENDOR && !all_support(&engines[0]->loaded->devices, OP_moe))
            other.device = DEVICE_PLAIN_PARTS; // the same commands on both sides
        if (v->against != VERIFY_VENDOR && engines[0]->loaded->devices.experts) {
            snprintf(experts, sizeof experts, DEVICE_PLAIN_PARTS ":%u", engines[0]->loaded->devices.n_away);
            other.experts = experts;
        }
        const struct stage_shape *shape = &engines[0]->loaded->stages[0].shape;
        other.cache_type_k = (enum ingot_kv)(shape->k_format + 1); // the same pages on both sides
        other.cache_type_v = (enum ingot_kv)(shape->v_format + 1);
        other.n_batch = engines[0]->batch->max_rows; // pages of a window are as many as a step may need
        loaded[1] = engine_load(engines[1], &other, err);
    }
    direct_most_rows = most_direct;
    v->n_bad = 0;
    bool ok = loaded[1] && verify_both(&(struct walk){ .v = v, .engine = engines[0] }, engines, err);
    for (int i = 0; i < 2; i++) {
        if (loaded[i])
            engine_unload(engines[i]);
        mem_free(engines[i]);
    }
    return ok;
}

bool engine_model_hash(const struct ingot_engine *engine, char hash[SHA256_HEX_BYTES], struct err *err)
{
    struct sha256 sum;

    if (!kv_persist_model(&engine->inner, &sum, err))
        return false;
    sha256_hex(&sum, hash);
    return true;
}

static void print_counters(const struct device *d, FILE *to)
{
    const struct device_counters *c = &d->counters;

    fprintf(to,
            "%s: %llu plays, %llu commands, %llu dispatches, %llu barriers, %llu submissions, %llu waits, "
            "%llu bytes read back, "
            "%llu written, %llu buffers, %llu pipelines\n",
            d->name, (unsigned long long)c->plays, (unsigned long long)c->commands,
            (unsigned long long)c->dispatches, (unsigned long long)c->barriers,
            (unsigned long long)c->submissions, (unsigned long long)c->waits,
            (unsigned long long)c->read_bytes, (unsigned long long)c->write_bytes,
            (unsigned long long)c->buffers, (unsigned long long)c->pipelines);
}

static void print_tapes(const struct stage *s, FILE *to)
{
    for (uint32_t b = 0; b < N_BUCKETS; b++)
        if (s->buckets[b].tape)
            tape_print(s->buckets[b].tape, to);
}

void engine_trace(const struct ingot_engine *engine, FILE *to)
{
    const struct engine *e = &engine->inner;

    for (uint32_t i = 0; i < e->loaded->n_stages; i++) {
        fprintf(to, "stage %u: layers %u to %u on %s\n", i, e->loaded->stages[i].parts.first,
                e->loaded->stages[i].parts.last - 1, e->loaded->stages[i].device->name);
        print_tapes(&e->loaded->stages[i], to);
        for (uint32_t k = 0; k < e->loaded->stages[i].n_others; k++) {
            fprintf(to, "rank %u of these layers\n", k + 1);
            print_tapes(&e->loaded->stages[i].others[k], to);
        }
        if (!e->loaded->stages[i].away)
            continue;
        const struct stage *experts = &e->loaded->stages[i].away->stage;
        fprintf(to, "experts of layers %u to %u on %s\n", experts->parts.first, experts->parts.last - 1,
                experts->device->name);
        print_tapes(experts, to);
    }
    for (uint32_t i = 0; i < e->loaded->devices.n; i++)
        print_counters(e->loaded->devices.at[i], to);
    if (e->loaded->devices.experts)
        print_counters(e->loaded->devices.experts, to);
    fprintf(to, "process: %llu allocations\n", (unsigned long long)mem_n_allocations());
}
