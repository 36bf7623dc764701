// pipeline.h - threads for stages whose activations pass through the host, so that they compute at the same
// time: each has another step.
//
//   engine's thread   push ----------------------------------------------> take, play the last section
//                      |                                                   ^
//   section 0          +-> stages on one device -> slot, slot -+           |
//   section 1                                                  +-> ... -> slot, slot
//
// A section is a run of stages whose links need no host. Each but the last has a thread; the last is the
// engine's own. Between two of them are two slots of activations in the host's memory: while the one behind
// reads the first, the one before fills the second. Steps keep their order everywhere, so pages, tables and
// histories of a stage see one after the other. What is told to the stages (table entries, tokens, scales of
// adapters) travels with the next step and is written by the section's thread right before it: a step on its
// way sees none of it. One thread uses a device: while steps are on their way, nobody else may.
//
// A failure in a section ends the pipeline: take returns it. Nothing is played any more.
#pragma once
#include "engine/stage/link.h"
#include "engine/stage/step_message.h"

enum { PIPELINE_SLOTS = 2 };
// Besides the news of step_message.h: (PIPELINE_SCALES, slot, 0, n adapters), fp32.
enum { PIPELINE_SCALES = STEP_NEWS_WINDOWS + 1 };

struct pipeline;

// How many sections the stages form; 1: nothing for a pipeline to do.
uint32_t pipeline_n_sections(const struct link *links, uint32_t n_stages);
struct pipeline_plan {
    struct stage *stages; // [n_stages]
    struct link *links;   // [n_stages - 1]
    uint32_t n_stages;
    uint32_t most; // steps on their way
};
// Starts the threads. At least two sections.
bool pipeline_open(struct pipeline **pipeline, const struct pipeline_plan *plan, struct err *err);
// Waits for the plays that run; steps that have not begun are dropped. NULL is allowed.
void pipeline_close(struct pipeline *p);

// These are called by the thread that holds `stepping`.
void pipeline_tell(struct pipeline *p, const uint32_t head[4], const uint32_t *words);
// The step stays as it is until it is taken.
bool pipeline_push(struct pipeline *p, const struct step *step, struct err *err);
// Waits for the oldest step's activations, and puts them in the first stage of the last section, whose index
// is *first. Then the caller plays the stages from there, and says when it is done.
bool pipeline_take(struct pipeline *p, uint32_t *first, struct err *err);
void pipeline_done(struct pipeline *p);
// The caller's section failed.
void pipeline_fail(struct pipeline *p, const struct err *why);
// No step is on its way: writes to all stages what was told since the last one.
bool pipeline_flush(struct pipeline *p, struct err *err);

uint64_t pipeline_slot_bytes(const struct pipeline *p); // of activations in the host's memory
// How long a section has computed since pipeline_open.
uint64_t pipeline_busy_ns(struct pipeline *p, uint32_t section);
// How long it takes until each of n answers has another token, if they are divided among so many steps: by
// what steps of that size took lately. 0: not known.
uint64_t pipeline_round_ns(struct pipeline *p, uint32_t n_answers, uint32_t n_steps);
