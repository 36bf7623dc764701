// test_cuda_latent_prompt.c - attention of prompts in a latent space whose keys and values are expanded,
// against its plain loop, which absorbs: sizes of real models, every weight format, sequences that are
// expanded beside such that are not, pasts that take several turns, and shapes that are left to the parts.
#define SIDES_PAGES 288
#include "device/cuda_sides.h"
#include "ops/latent_sides.h"

static bool launches(const struct cuda_tape *t, const char *kernel)
{
    for (uint32_t i = 0; i < t->plan.n_launches; i++)
        if (strcmp(t->plan.launches[i].kernel, kernel) == 0)
            return true;
    return false;
}

struct sizes_of_head {
    record *record;
    const char *kernel; // NULL: left to the parts
};
static const struct sizes_of_head glm = { record_latent_prompt_256, "latent_prompt_attend_256_256" },
                                  deepseek = { record_latent_prompt_192, "latent_prompt_attend_192_128" },
                                  mistral = { record_latent_prompt_128, "latent_prompt_attend_128_128" };

static void check(const struct sizes_of_head *head, const struct op_shape *c)
{
    struct sides s;

    sides_open(&s, gpu, c, head->record);
    struct cuda_tape *native = s.fast.tape->native;
    assert_true(head->kernel ? launches(native, head->kernel) : !launches(native, "latent_prompt_runs"));
    sides_compare(&s, "latent_prompt", c);
    check_graph(&s.fast);
    sides_close(&s);
}

static struct op_shape shape_of(uint32_t rows, uint32_t past)
{
    return (struct op_shape){ .format = QUANT_Q4_0,
                              .rows = rows,
                              .most_rows = rows,
                              .past = past,
                              .head_dim = 576,
                              .n_out = 512,
                              .n_heads = 2,
                              .n_kv_heads = 1,
                              .k_format = KV_F16,
                              .limit = 5e-5 };
}

// The kernels are for one compute capability.
static void skip_without_kernels(void)
{
    skip_without_gpu();
    if (((struct cuda *)gpu)->limits.capability != 90)
        skip();
}

// Two runs of rows, one of which may be too short; two rows between them; decode rows before.
static void prompts_of_every_length(void **state)
{
    static const uint32_t rows[][2] = { { 514, 514 },
                                        { 517, 600 },
                                        { 700, 1024 },
                                        { 900, 900 },
                                        { 300, 512 } },
                          pasts[] = { 0, 1, 63, 64, 200, 1001 };
    static const struct sizes_of_head *const heads[] = { &glm, &deepseek, &mistral };

    (void)state;
    skip_without_kernels();
    for (uint32_t i = 0, n = 0; i < sizeof rows / sizeof *rows; i++)
        for (uint32_t k = 0; k < sizeof pasts / sizeof *pasts; k++, n++) {
            struct op_shape c = shape_of(rows[i][0], pasts[k]);
            c.most_rows = rows[i][1];
            c.decode = n % 2 ? 3 : 0;
            c.n_heads = 1 + n % 3;
            c.pairs = n % 2 ? ROPE_HALVES : ROPE_ADJACENT;
            check(heads[n % 3], &c);
        }
}

static void matrices_of_every_format(void **state)
{
    static const struct sizes_of_head *const heads[] = { &glm, &deepseek, &mistral };

    (void)state;
    skip_without_kernels();
    for (uint32_t f = 0; f < N_FORMATS; f++) {
        struct op_shape c = shape_of(520, 70);
        c.format = formats[f];
        if (quant_info(c.format)->block_elements <= 32)
            check(heads[f % 3], &c);
    }
}

// Keys of both sequences have no room together, and those of one have none alone.
static void pasts_in_turns(void **state)
{
    (void)state;
    skip_without_kernels();
    for (uint32_t past = 3500; past <= 4000; past += 250) {
        struct op_shape c = shape_of(515, past);
        c.n_heads = 1;
        check(past == 3750 ? &deepseek : &glm, &c);
    }
}

static void shapes_for_the_parts(void **state)
{
    static const struct sizes_of_head narrow = { record_latent_prompt_odd, NULL };

    (void)state;
    skip_without_kernels();
    struct op_shape c = shape_of(514, 30);
    check(&narrow, &c);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_of_every_length),
        cmocka_unit_test(matrices_of_every_format),
        cmocka_unit_test(pasts_in_turns),
        cmocka_unit_test(shapes_for_the_parts),
    };
    return cuda_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
