// memory_parts.h - what was predicted before an engine was opened, held against what it then has, by part.
#pragma once
#include "engine/api.h"
#include "engine/api/memory_use.h"
#include "engine/group/group.h"
#include "engine/tiles.h"
#include "open_engine.h"

static void check_within(const char *model, const char *part, uint64_t taken, uint64_t predicted)
{
    if (taken > predicted + predicted / 50 || taken < predicted - predicted / 50)
        fail_msg("%s: %llu bytes of %s; predicted were %llu", model, (unsigned long long)taken, part,
                 (unsigned long long)predicted);
}

// Pages and scratch to the byte; weights within 2 %. Those of a model with odd sizes are padded on the CPU,
// whose panels have 32 rows, by more than that: `odd`.
static void check_memory_parts(const struct ingot_engine_options *o, bool odd)
{
    struct ingot_memory m;
    struct ingot_error error = { 0 };

    assert_ok(ingot_engine_estimate(o, &m, &error), &error);
    struct ingot_engine *engine = open_or_fail(o);
    const struct tile_cache *tiles = engine->inner.tiles;
    const struct rank_group *group = engine->inner.loaded->group;
    struct memory_use use = memory_use_of(engine);
    assert_int_equal(use.pages, m.page_bytes);
    assert_int_equal(use.scratch, m.scratch_bytes - m.tower_scratch_bytes);
    assert_int_equal((tiles ? vision_scratch_bytes(&tiles->vision) : 0) +
                         (group ? group_pool_bytes(group) : 0),
                     m.tower_scratch_bytes);
    assert_true(use.scratch > 0);
    if (!odd) {
        check_within(o->model, "weights", use.weights, m.weight_bytes - m.tower_weight_bytes);
        check_within(o->model, "the tower", use.tower, m.tower_weight_bytes + m.tower_scratch_bytes);
    }
    ingot_engine_close(engine);
}
