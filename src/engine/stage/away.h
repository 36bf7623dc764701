// away.h - the experts of a stage's layers on another device: a stage of the experts alone, and the links to
// it.
//
// Experts are most of a mixture's bytes, of which a token uses few: they can stay in the host's memory while
// a GPU has the rest. The stage's tape has a border in each such layer, where the residual stream goes to the
// other device and comes back with the experts' sum added. Both wait for each other: the next layer needs it.
#pragma once
#include "engine/stage/link.h"

struct away {
    struct stage stage;
    struct link there, back;
};

// Sets s->away if plan->experts is to have some of its layers' experts.
bool away_create(struct stage *s, const struct stage_plan *plan, struct stage_progress *progress,
                 struct err *err);
void away_free(struct away *a); // NULL is allowed
// stage_play of such a stage, whose own step is written. Returns when the last experts have been played.
bool away_play(struct stage *s, const struct step *step, struct err *err);
// Which of the layers [first, last) have their experts away: the last ones of them; none: first == last.
struct layer_range away_layers(const struct model *m, uint32_t n_away, struct layer_range layers);
