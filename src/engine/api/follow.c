// follow.c - see follow.h.
#include "engine/api/follow.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/stage/remote.h"

static enum follow_end follow(struct engine *e, struct err *err)
{
    const struct engine_loaded *l = e->loaded;
    struct remote_player player = { &l->stages[0], e->batch };
    struct layer_range layers = remote_layers(l->remote);

    log_line(LOG_INFO, "ranks", "rank %u computes layers %u to %u on %s", ranks_rank(l->remote->ranks),
             layers.first, layers.last - 1, l->devices.at[0]->name);
    return remote_play(l->remote, &player, err) ? FOLLOW_CLOSED : FOLLOW_LOST;
}

enum follow_end engine_follow(const struct ingot_engine_options *options, struct err *err)
{
    struct engine *e = mem_alloc(sizeof *e);
    enum follow_end end = FOLLOW_FAILED;

    if (!e) {
        err_memory(err, "an engine");
        return end;
    }
    if (engine_load(e, options, err)) {
        end = follow(e, err);
        engine_unload(e);
    } else if (ranks_were_lost()) {
        end = FOLLOW_LOST;
    } else if (remote_was_open()) { // rank 0 prints it
        log_line(LOG_DEBUG, "ranks", "%s", err->message);
        end = FOLLOW_CLOSED;
    }
    mem_free(e);
    return end;
}
