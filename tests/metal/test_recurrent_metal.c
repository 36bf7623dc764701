// test_recurrent_metal.c - the Metal kernels of operations that carry a state against the plain loops, on the
// emulator.
#include "emu_modes.h"
#pragma GCC diagnostic ignored "-Wunused-function" // of the recorders there, those of other operations
#include "models/golden.h"
#include "ops/recurrent_sides.h"

static void states_and_outputs_of_every_shape(void **state)
{
    static const struct {
        uint32_t rows, most, past, decode;
    } rows[] = { { 1, 1, 0, 0 }, { 1, 16, 9, 0 }, { 23, 30, 5, 4 }, { 12, 12, 0, 3 } };

    (void)state;
    for (uint32_t o = 0; o < N_RECURRENT_OPS; o++) {
        if (recurrent_ops[o].record == record_delta_step) // here its parts, which are compared by themselves
            continue;
        for (uint32_t i = 0; i < recurrent_ops[o].n; i++)
            for (uint32_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                struct op_shape c = recurrent_ops[o].shapes[i];
                c.rows = rows[r].rows;
                c.most_rows = rows[r].most;
                c.past = rows[r].past;
                c.decode = rows[r].decode;
                c.limit = recurrent_ops[o].limit;
                sides_check(gpu, recurrent_ops[o].name, &c, recurrent_ops[o].record);
            }
    }
}

static void models_give_the_reference_logits(void **state)
{
    (void)state;
    check_golden(&(struct golden_run){ "lfm2", "/model.gguf", "metal", 30, true });
    check_golden(&(struct golden_run){ "qwen35", "", "metal", 30, true });
    check_golden(&(struct golden_run){ "nemotronh", "/model.gguf", "metal", 30, true });
    check_golden(&(struct golden_run){ "nemotronh-moe", "", "metal", 9, true });
    check_golden(&(struct golden_run){ "lfm2moe", "/model.gguf", "metal", 9, true });
    check_golden(&(struct golden_run){ "qwen35moe", "/model.gguf", "metal", 9, true });
    check_golden(&(struct golden_run){ "granitehybrid", "/model.gguf", "metal", 9, true });
    check_golden(&(struct golden_run){ "granitehybrid-moe", "", "metal", 9, true });
}

static void invariant_logits_in_any_chunks_and_from_what_is_kept(void **state)
{
    (void)state;
    check_invariant("qwen35", NULL, "metal", false);
    check_invariant("lfm2", NULL, "metal", true);
    check_invariant("granitehybrid", NULL, "metal", false);
    check_kept("qwen35", "metal");
    check_kept("nemotronh", "metal");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_and_outputs_of_every_shape),
        cmocka_unit_test(models_give_the_reference_logits),
        cmocka_unit_test(invariant_logits_in_any_chunks_and_from_what_is_kept),
    };

    return emu_run_in_modes(tests, sizeof tests / sizeof *tests);
}
