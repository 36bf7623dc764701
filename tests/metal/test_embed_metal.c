// test_embed_metal.c - encoders on Metal: attention with fewer K and V heads and a reach, rows added by
// position, and whole models against the reference's vectors, on the emulator.
#include "emu_modes.h"
#pragma GCC diagnostic ignored "-Wunused-function" // of the recorders there, those of other operations
#include "models/golden_embed.h"
#include "ops/vision_sides.h"

static void kernels_of_an_encoder(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_ENCODER_CASES; i++) {
        struct op_shape c = encoder_case(i);
        struct sides s;
        sides_open(&s, gpu, &c, record_encoder);
        fill_slots(&s.plain, encoder_slots[i % N_ENCODER_SLOTS]);
        fill_slots(&s.fast, encoder_slots[i % N_ENCODER_SLOTS]);
        sides_compare(&s, "encoder", &c);
        sides_close(&s);
    }
}

static void encoders_give_the_reference_vectors(void **state)
{
    const struct embed_way exact = { "/model.gguf", "metal", true }, half = { "", "metal", false };

    (void)state;
    check_embed("embed-bert", &exact, INGOT_EMBED_MODEL);
    check_embed("embed-bge", &half, INGOT_EMBED_MODEL);
    check_embed("embed-e5", &half, INGOT_EMBED_MODEL);
    check_embed("embed-nomic", &exact, INGOT_EMBED_MODEL);
    check_embed("embed-gemma", &half, INGOT_EMBED_MODEL);
    check_embed("rerank-bge", &exact, INGOT_EMBED_RANK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_of_an_encoder),
        cmocka_unit_test(encoders_give_the_reference_vectors),
    };

    return emu_run_in_modes(tests, sizeof tests / sizeof *tests);
}
