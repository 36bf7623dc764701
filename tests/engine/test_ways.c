// test_ways.c - the ways out where a model does not fit: each of them fits, and a little more of it does not.
#include "engine/stage/ways.h"
#include "ingot.h"
#include "models/golden.h"

struct sized {
    struct model_file *file;
    struct model m;
    struct stage_shape shape;
};

static void bind(struct sized *b, const char *path)
{
    struct err err;

    assert_ok(model_file_open(&b->file, path, &err) && model_bind(&b->m, b->file, &err), &err);
    b->shape = (struct stage_shape){ .max_rows = 16,
                                     .max_outputs = 16,
                                     .n_slots = 4,
                                     .max_pages = 512,
                                     .n_pages = 2048,
                                     .history_stride = 8192,
                                     .k_format = KV_F16,
                                     .v_format = KV_F16 };
}

static void release(struct sized *b)
{
    model_release(&b->m);
    model_file_close(b->file);
}

static uint64_t need(const struct model *m, const struct stage_shape *shape)
{
    struct place_memory n = place_memory(m, shape, NULL);
    return n.weights + n.pages + n.scratch;
}

// One device whose room is what `shape` needs.
static void ask(const struct sized *b, const struct stage_shape *shape, char to[WAYS_BYTES])
{
    uint64_t room = need(&b->m, shape);

    ways_out(&(struct ways_request){ &b->m, &b->shape, &room, 1, 0, NULL }, to);
}

static void pages_that_fit_are_found_to_the_page(void **state)
{
    struct sized b;
    char text[WAYS_BYTES];
    (void)state;

    bind(&b, SOURCE_DIR "/models/ingot-7m-q8_0.gguf");
    struct stage_shape fits = b.shape;
    fits.n_pages = 4 * 100; // 100 pages a sequence
    ask(&b, &fits, text);
    assert_non_null(strstr(text, "or n_context 1600"));
    fits.n_pages = 4 * 100 - 1; // a page too few
    ask(&b, &fits, text);
    assert_non_null(strstr(text, "or n_context 1584"));
    fits.n_pages = 3 * 512;
    ask(&b, &fits, text);
    assert_non_null(strstr(text, "cache_type_k q8_0 cache_type_v q8_0; or 3 sequences; or n_context 6144"));
    fits.n_pages = 1024; // of fp16: 1088 of q8_0 would need more
    ask(&b, &fits, text);
    assert_non_null(strstr(text, "; or 2 sequences; or n_context 4096"));
    assert_non_null(strstr(text, "cache_type_k q8_0 cache_type_v q8_0 n_context 7"));
    b.shape.k_format = b.shape.v_format = fits.k_format = fits.v_format = KV_Q8_0;
    ask(&b, &fits, text);
    assert_string_equal(text, "2 sequences; or n_context 4096");
    release(&b);
}

// Both are the host's.
static void shared_memory_counts_once(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct devices devices = { 0 };
    uint64_t room[MAX_DEVICES] = { 0 };
    struct sized b;
    struct err err;
    (void)state;

    o.device = "cpu,cpu:plain";
    assert_ok(devices_open(&devices, &o, &err), &err);
    bind(&b, SOURCE_DIR "/models/ingot-7m-q8_0.gguf");
    ways_request_of(&devices, &b.m, &b.shape, room);
    assert_true(room[0] > 0);
    assert_int_equal(room[1], 0);
    release(&b);
    devices_close(&devices);
}

static void a_smaller_format_is_the_last_way(void **state)
{
    struct sized b;
    char text[WAYS_BYTES];
    (void)state;

    bind(&b, SOURCE_DIR "/models/ingot-7m-q8_0.gguf");
    uint64_t all = need(&b.m, &b.shape), room = all - b.m.weight_bytes / 2;
    b.shape.max_pages = 8; // too short to be shortened
    b.shape.n_pages = 8;
    b.shape.n_slots = 1;
    b.shape.k_format = b.shape.v_format = KV_Q8_0;
    all = need(&b.m, &b.shape);
    room = all - b.m.weight_bytes / 2;
    ways_out(&(struct ways_request){ &b.m, &b.shape, &room, 1, 0, NULL }, text);
    assert_non_null(strstr(text, "a format of at most 4.2 bits a weight (this one has 8.5)"));
    room = 1000;
    ways_out(&(struct ways_request){ &b.m, &b.shape, &room, 1, 0, NULL }, text);
    assert_string_equal(text, "");
    release(&b);
}

static void the_fewest_experts_leave(void **state)
{
    struct sized b;
    char text[WAYS_BYTES], want[40];
    (void)state;

    bind(&b, SOURCE_DIR "/tests/golden/deepseek3/model.gguf");
    b.shape.n_slots = 1;
    b.shape.max_pages = b.shape.n_pages = 8;
    for (uint32_t n = 1; n <= b.m.config.n_layers - b.m.config.n_dense; n++) {
        struct stage_shape away = b.shape;
        away.n_away = n;
        uint64_t room = need(&b.m, &away);
        snprintf(want, sizeof want, "experts cpu:%u", n);
        ways_out(&(struct ways_request){ &b.m, &b.shape, &room, 1, 1ull << 40, NULL }, text);
        assert_non_null(strstr(text, want));
        ways_out(&(struct ways_request){ &b.m, &b.shape, &room, 1, 1000, NULL }, text); // no memory for them
        assert_null(strstr(text, "experts"));
    }
    release(&b);
}

// Two devices that hold a layer and the embedding, and the rest: the way is what both hold together.
static void devices_are_filled_in_their_order(void **state)
{
    struct sized b;
    char text[WAYS_BYTES];
    uint64_t room[2] = { 0, 0 };
    (void)state;

    bind(&b, SOURCE_DIR "/models/ingot-7m-q8_0.gguf");
    struct stage_shape fits = b.shape;
    fits.n_pages = 4 * 100;
    struct place_memory parts[2] = { place_range_memory(&b.m, &fits, (struct layer_range){ 0, 3 }),
                                     place_range_memory(&b.m, &fits, (struct layer_range){ 3, 8 }) };
    for (int i = 0; i < 2; i++)
        room[i] = parts[i].weights + parts[i].pages + parts[i].scratch;
    ways_out(&(struct ways_request){ &b.m, &b.shape, room, 2, 0, NULL }, text);
    assert_non_null(strstr(text, "n_context 1600"));
    room[1]--;
    ways_out(&(struct ways_request){ &b.m, &b.shape, room, 2, 0, NULL }, text);
    assert_null(strstr(text, "n_context 1600"));
    release(&b);
}

// The context that stages can really have, where the rough sum says less or more.
static void scratch_is_counted_to_the_byte(void **state)
{
    static const char *const models[] = { SOURCE_DIR "/models/ingot-7m-q8_0.gguf",
                                          SOURCE_DIR "/tests/golden/granitemoe/model.gguf" };
    struct ingot_engine_options o = ingot_engine_defaults();
    struct devices d = { 0 };
    struct err err = { 0 };
    (void)state;

    o.device = "cpu";
    o.n_threads = 2;
    assert_ok(devices_open(&d, &o, &err), &err);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct sized b;
        struct outline found;
        char text[WAYS_BYTES];
        bind(&b, models[i]);
        struct placement all = { .layers = { { 0, b.m.config.n_layers } }, .n = 1 };
        struct stage_shape fits = b.shape;
        fits.max_pages = 100;
        fits.n_pages = 4 * 100;
        fits.history_stride = 1600;
        struct outline_request r = { .model = &b.m, .devices = &d, .shape = &fits, .placement = &all };
        assert_ok(outline_stages(&r, &found, &err), &err);
        struct place_memory rough = place_memory(&b.m, &fits, NULL);
        uint64_t room = rough.weights + rough.pages + found.scratch[0];
        assert_true(rough.scratch != found.scratch[0]);
        ways_out(&(struct ways_request){ &b.m, &b.shape, &room, 1, 0, &r }, text);
        assert_non_null(strstr(text, "n_context 1600"));
        room--;
        ways_out(&(struct ways_request){ &b.m, &b.shape, &room, 1, 0, &r }, text);
        assert_non_null(strstr(text, "n_context 1584"));
        release(&b);
    }
    devices_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_that_fit_are_found_to_the_page),
        cmocka_unit_test(shared_memory_counts_once),
        cmocka_unit_test(a_smaller_format_is_the_last_way),
        cmocka_unit_test(the_fewest_experts_leave),
        cmocka_unit_test(devices_are_filled_in_their_order),
        cmocka_unit_test(scratch_is_counted_to_the_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
