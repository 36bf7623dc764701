// batch.c - see batch.h.
#include "engine/stage/batch.h"
#include <string.h>
#include "base/mem.h"

bool batch_create(struct batch **b, uint32_t max_rows, uint32_t max_outputs, struct err *err)
{
    struct batch *n = mem_alloc(sizeof *n);

    *b = n;
    if (n) {
        n->max_rows = max_rows;
        n->max_outputs = max_outputs;
        n->rows = mem_alloc_array(max_rows, sizeof *n->rows);
        n->outputs = mem_alloc_array(max_outputs, sizeof *n->outputs);
        n->step = mem_alloc(step_bytes(max_rows, max_outputs));
        n->results = mem_alloc_array(max_outputs, sizeof *n->results);
        if (n->rows && n->outputs && n->step && n->results)
            return true;
    }
    batch_free(n);
    *b = NULL;
    return err_memory(err, "a batch");
}

void batch_free(struct batch *b)
{
    if (!b)
        return;
    mem_free(b->rows);
    mem_free(b->outputs);
    mem_free(b->step);
    mem_free(b->results);
    mem_free(b);
}

void batch_clear(struct batch *b)
{
    b->n_rows = b->n_outputs = b->n_decode = 0;
}

void batch_add_row(struct batch *b, struct batch_row row)
{
    CHECK(b->n_rows < b->max_rows);
    b->rows[b->n_rows++] = row;
}

void batch_add_output(struct batch *b, struct batch_output output)
{
    CHECK(b->n_outputs < b->max_outputs && b->n_rows > 0);
    output.row = b->n_rows - 1;
    b->outputs[b->n_outputs++] = output;
}

void batch_forget(struct batch *b, const struct request *r)
{
    for (uint32_t i = 0; i < b->n_outputs; i++)
        if (b->outputs[i].request == r) {
            b->outputs[i].request = NULL;
            b->outputs[i].constraint = NULL; // may be read after r is gone
        }
}

const struct step *batch_layout(struct batch *b, uint32_t bucket_rows, uint32_t bucket_outputs)
{
    uint32_t *words = (uint32_t *)b->step;

    memset(b->step, 0, step_bytes(bucket_rows, bucket_outputs));
    *b->step = (struct step){
        .n_rows = b->n_rows, .n_outputs = b->n_outputs, .max_rows = bucket_rows, .max_outputs = bucket_outputs
    };
    for (uint32_t i = 0; i < b->n_rows; i++) {
        words[step_at_tokens() + i] = b->rows[i].token;
        words[step_at_positions(bucket_rows) + i] = b->rows[i].position;
        words[step_at_slots(bucket_rows) + i] = b->rows[i].slot;
        words[step_at_states_from(bucket_rows) + i] = b->rows[i].state_from;
        words[step_at_states_to(bucket_rows) + i] = b->rows[i].state_to;
    }
    struct sample_params *samples =
        (struct sample_params *)(words + step_at_samples(bucket_rows, bucket_outputs));
    for (uint32_t i = 0; i < b->n_outputs; i++) {
        words[step_at_outputs(bucket_rows) + i] = b->outputs[i].row;
        samples[i] = b->outputs[i].params;
    }
    return b->step;
}
