// batch.h - collects the rows of one step and lays them out for a bucket.
#pragma once
#include "device/device_queue.h"
#include "device/step.h"
#include "engine/kv/kv.h"

struct request;
struct constraint;

// Places of copies of results: of the step that runs and the one ahead, then of steps in flight.
enum { FETCH_BATCH, FETCH_AHEAD, FETCH_FLIGHTS, MOST_FLIGHTS = DEVICE_FETCHES - FETCH_FLIGHTS };

struct batch_row {
    uint32_t token, position, slot;
    struct request *pooled_by;     // the request that wants the row's hidden state, or NULL
    uint32_t state_from, state_to; // see step_states_from
};

struct batch_output {
    uint32_t row;
    struct sample_params params;
    struct request *request;             // that the output belongs to
    const struct constraint *constraint; // of that request
    bool wants_logits;                   // on the host
};

struct batch {
    uint32_t max_rows, max_outputs, n_rows, n_outputs;
    uint32_t n_decode; // decode rows; prefill rows follow
    uint32_t fetch;    // its place among the copies of results in flight
    bool is_over;      // its results are here, though others in flight are older
    uint64_t played_ns;
    uint64_t sequence; // among the steps that were sent to other ranks
    struct batch_row *rows;
    struct batch_output *outputs;
    struct step *step; // as large as the largest bucket needs
    uint32_t *results; // [max_outputs], read back
};

bool batch_create(struct batch **b, uint32_t max_rows, uint32_t max_outputs, struct err *err);
void batch_free(struct batch *b); // NULL is allowed
void batch_clear(struct batch *b);
void batch_add_row(struct batch *b, struct batch_row row);
void batch_add_output(struct batch *b, struct batch_output output); // of the row added last
void batch_forget(struct batch *b, const struct request *r);        // drops the outputs of this request
const struct step *batch_layout(struct batch *b, uint32_t bucket_rows, uint32_t bucket_outputs);
