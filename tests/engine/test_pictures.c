// test_pictures.c - requests with pictures: logits against the reference's from both file formats, prompts
// cut inside a picture, who shares what, and what is refused.
#include "engine/stage/batch.h"
#include "engine/tiles.h"
#include "models/golden_pictures.h"

// Batches of 7 rows cut prompts inside of pictures.
static void pictures_give_the_reference_logits(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_PICTURE_FILES; i++) {
        check_picture_logits(&picture_files[i],
                             &(struct golden_run){ .device = "cpu:plain", .n_batch = 512, .exact = true });
        check_picture_logits(&picture_files[i],
                             &(struct golden_run){ .device = "cpu", .n_batch = 512, .exact = true });
        check_picture_logits(&picture_files[i],
                             &(struct golden_run){ .device = "cpu", .n_batch = 7, .exact = true });
        check_picture_logits(&picture_files[i], &(struct golden_run){ .device = "cpu", .n_batch = 512 });
    }
}

// The tower is on the first rank; all ranks read what it has made.
static void ranks_of_a_layer_read_the_same_pictures(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_PICTURE_FILES; i++) {
        if (strcmp(picture_files[i].variant, "idefics3") == 0)
            continue; // one head of K and V
        struct golden_run whole = { .device = "cpu", .n_batch = 512, .exact = true },
                          cut = { .device = "cpu:plain", .n_batch = 7, .exact = true };
        check_picture_logits_over(2, &picture_files[i], &whole);
        check_picture_logits_over(2, &picture_files[i], &cut);
    }
}

static struct ingot_result ask(struct ingot_engine *engine, struct case_of_pictures *c, const char *salt)
{
    struct ingot_request_options r = request_of(c, engine);
    struct ingot_result result;
    struct ingot_error error = { 0 };

    r.cache_salt = salt;
    if (!ingot_generate(engine, &r, NULL, NULL, &result, &error))
        fail_msg("%s", error.message);
    return result;
}

static uint32_t first_place(const struct case_of_pictures *c)
{
    uint32_t i = 0;

    while (c->tokens[i] != INGOT_IMAGE_PLACE)
        i++;
    return i;
}

// The second time costs neither encoder nor prefill; one pixel more or less, and nothing from the picture on
// is shared.
static void one_pixel_makes_another_picture(void **state)
{
    struct case_of_pictures c;

    (void)state;
    case_open(&c, "smolvlm");
    struct ingot_engine *engine = open_eyes(&picture_files[0], ingot_engine_defaults());
    struct tile_cache *cache = engine->inner.tiles;
    struct ingot_result first = ask(engine, &c, NULL);
    assert_int_equal(first.n_tiles, c.n_tiles);
    assert_int_equal(first.n_reused, 0);
    assert_int_equal(cache->n_encoded, c.n_tiles);
    struct ingot_result again = ask(engine, &c, NULL);
    assert_int_equal(again.n_reused, (c.g.n - 1) / 16 * 16);
    assert_int_equal(cache->n_encoded, c.n_tiles);
    assert_true(first.encode_ms > first.patch_ms + first.connect_ms && again.encode_ms == 0);
    assert_true(first.patch_ms > 0 && first.connect_ms > 0 && again.patch_ms == 0 && again.connect_ms == 0);

    // pages are his own, embeddings of equal pixels are no secret
    struct ingot_result salted = ask(engine, &c, "another tenant");
    assert_int_equal(salted.n_reused, 0);
    assert_int_equal(salted.n_tiles_cached, c.n_tiles);

    c.tiles[0] ^= 1;
    struct ingot_result other = ask(engine, &c, NULL);
    assert_true(other.n_reused <= first_place(&c));
    assert_int_equal(cache->n_encoded, c.n_tiles + 1);
    assert_int_equal(other.n_tiles_cached, c.n_tiles - 1);
    for (uint32_t i = 0; i < cache->vision.n_places; i++)
        assert_int_equal(cache->places[i].n_holders, 0);
    ingot_engine_close(engine);
    case_close(&c);
}

// What the device is asked for: memory once, when the engine opens; a play for each group of tiles and for
// each step, each waited for once; and logits of one row, though the prompt is long.
static void what_a_picture_costs(void **state)
{
    struct case_of_pictures c;
    struct ingot_error error = { 0 };
    bool busy = true;

    (void)state;
    case_open(&c, "smolvlm");
    struct ingot_engine_options o = ingot_engine_defaults();
    o.speculate = INGOT_SPECULATE_OFF; // by measured times, and steps are counted here
    o.n_batch = 16;
    struct ingot_engine *engine = open_eyes(&picture_files[0], o);
    const struct engine *e = &engine->inner;
    struct ingot_request_options r = request_of(&c, engine);
    const struct device_counters before = e->loaded->devices.at[0]->counters;
    uint32_t n_steps = 0;

    r.max_tokens = 4;
    struct ingot_request *request = ingot_submit(engine, &r, &error);
    assert_non_null(request);
    while (busy) {
        assert_true(ingot_step(engine, &busy, &error));
        assert_true(e->batch->n_outputs <= 1);
        n_steps += e->batch->n_rows > 0;
    }
    const struct device_counters after = e->loaded->devices.at[0]->counters;
    assert_int_equal(after.buffers, before.buffers);
    assert_int_equal(e->tiles->n_encoded, c.n_tiles);
    assert_int_equal(e->tiles->n_plays, (c.n_tiles + 3) / 4);
    assert_int_equal(n_steps, (c.g.n + 15) / 16 + 3);
    assert_int_equal(after.plays - before.plays, n_steps + e->tiles->n_plays);
    ingot_request_free(request);
    ingot_engine_close(engine);
    case_close(&c);
}

struct first_tokens {
    uint32_t n, at[8];
};

static bool keep_tokens(void *arg, const struct ingot_event *event)
{
    struct first_tokens *list = arg;

    if (event->token != UINT32_MAX && list->n < 8)
        list->at[list->n++] = event->token;
    return true;
}

// The same request gives the same tokens: alone, again with everything kept, and in small steps.
static void answers_do_not_depend_on_what_is_kept(void **state)
{
    struct first_tokens lists[3] = { 0 };
    struct case_of_pictures c;
    struct ingot_error error = { 0 };

    (void)state;
    case_open(&c, "smolvlm");
    for (uint32_t i = 0; i < 3; i++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        o.n_batch = i == 2 ? 5 : 512;
        struct ingot_engine *engine = open_eyes(&picture_files[1], o);
        struct ingot_request_options r = request_of(&c, engine);
        r.max_tokens = 8;
        for (uint32_t k = 0; k <= (i == 1); k++) {
            lists[i].n = 0;
            assert_true(ingot_generate(engine, &r, keep_tokens, &lists[i], NULL, &error));
        }
        ingot_engine_close(engine);
    }
    assert_int_equal(lists[0].n, 8);
    assert_memory_equal(&lists[0], &lists[1], sizeof lists[0]);
    assert_memory_equal(&lists[0], &lists[2], sizeof lists[0]);
    case_close(&c);
}

// A picture with a gradient and a frame.
static struct ingot_picture *drawn(uint32_t width, uint32_t height)
{
    uint8_t *rgb = malloc((size_t)width * height * 3);
    struct ingot_error error = { 0 };

    for (uint32_t i = 0; i < width * height; i++)
        for (uint32_t c = 0; c < 3; c++)
            rgb[3 * i + c] = (uint8_t)(i % width * (c + 2) + i / width * 5);
    struct ingot_picture *p = ingot_picture_from_rgb(rgb, width, height, 0, &error);
    assert_non_null(p);
    free(rgb);
    return p;
}

struct last_logits {
    float at[512];
    uint32_t n;
};

static bool keep_logits(void *arg, const struct ingot_event *event)
{
    struct last_logits *l = arg;

    if (event->logits)
        memcpy(l->at, event->logits, l->n * sizeof *l->at);
    return true;
}

static struct last_logits logits_of(struct ingot_engine *engine, struct ingot_request_options r,
                                    struct ingot_result *result)
{
    struct last_logits l = { .n = 331 };
    struct ingot_error error = { 0 };

    r.n_logits = 1;
    r.max_tokens = 1;
    r.ignore_eos = true;
    if (!ingot_generate(engine, &r, keep_logits, &l, result, &error))
        fail_msg("%s", error.message);
    return l;
}

// The tokens and tiles that a request with pictures becomes, put together by hand, give the same bits.
static void check_parts(struct ingot_engine *engine, struct ingot_request_options r, uint32_t n_tiles)
{
    struct ingot_result result;
    struct ingot_error error = { 0 };
    struct err err = { 0 };
    struct image_processor processor = engine->inner.tiles->vision.tower.config.processor;
    struct ingot_request_options by_hand = ingot_request_defaults();
    struct last_logits whole = logits_of(engine, r, &result);
    uint32_t n_cut = 0;
    uint8_t *all = NULL;
    size_t bytes = 0;

    assert_int_equal(result.n_tiles, n_tiles);
    processor.split = !r.no_split;
    for (size_t i = 0; i < r.n_pictures; i++) {
        struct image_tiles tiles = { 0 };
        assert_ok(image_split(&tiles, &processor, &r.pictures[i]->inner, &(struct image_work){ 0 }, &err),
                  &err);
        size_t n = (size_t)tiles.n_tiles * tiles.side * tiles.side * 3;
        all = realloc(all, bytes + n);
        memcpy(all + bytes, tiles.rgb, n);
        bytes += n;
        n_cut += tiles.n_tiles;
        image_tiles_free(&tiles);
    }
    struct ingot_prompt *prompt = ingot_prompt_render(engine, &r, &error);
    assert_non_null(prompt);
    by_hand.tokens = ingot_prompt_tokens(prompt, &by_hand.n_tokens, &error);
    struct ingot_picture *cut = picture_of_tiles(engine, all, n_cut);
    by_hand.pictures = (const struct ingot_picture *const *)&cut;
    by_hand.n_pictures = 1;
    assert_int_equal(n_cut, n_tiles);
    assert_int_equal(by_hand.n_tokens, result.n_prompt);
    by_hand.cache_salt = "apart";
    struct last_logits parts = logits_of(engine, by_hand, &result);
    assert_memory_equal(whole.at, parts.at, 331 * sizeof(float));
    ingot_prompt_free(prompt);
    ingot_picture_free(cut);
    free(all);
}

static void pictures_find_their_places_in_prompts(void **state)
{
    struct ingot_engine *engine = open_eyes(&picture_files[0], ingot_engine_defaults());
    struct ingot_picture *pictures[2] = { drawn(60, 20), drawn(7, 31) };
    const struct ingot_message plain = { .role = "user", .content = "<image> is what I typed" };
    const struct ingot_message parts[] = {
        { .role = "user",
          .fields = "{\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image\"}]}" },
        { .role = "assistant", .content = "b" },
        { .role = "user",
          .fields = "{\"content\":[{\"type\":\"image\"},{\"type\":\"text\",\"text\":\"c\"}]}" }
    };
    struct ingot_request_options r = ingot_request_defaults();

    (void)state;
    r.pictures = (const struct ingot_picture *const *)pictures;
    r.n_pictures = 1;
    r.messages = &plain;
    r.n_messages = 1;
    check_parts(engine, r, 9); // 120 x 40 pixels, then 120 x 60: 2 x 4 tiles and the whole
    r.no_split = true;
    check_parts(engine, r, 1);
    r.n_pictures = 2;
    r.messages = parts;
    r.n_messages = 3;
    check_parts(engine, r, 2);
    r.messages = NULL;
    r.text = "what are these?";
    check_parts(engine, r, 2);
    for (int i = 0; i < 2; i++)
        ingot_picture_free(pictures[i]);
    ingot_engine_close(engine);
}

static void expect_refusal(struct ingot_engine *engine, const struct ingot_request_options *r,
                           const char *part)
{
    struct ingot_error error = { 0 };

    assert_false(ingot_generate(engine, r, NULL, NULL, NULL, &error));
    if (!strstr(error.message, part) || strchr(error.message, '\n'))
        fail_msg("\"%s\" should say \"%s\" in one line", error.message, part);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct case_of_pictures c;
    struct picture_files blind = { "smolvlm", "/text.gguf", NULL };

    (void)state;
    case_open(&c, "smolvlm");
    struct ingot_engine *engine = open_eyes(&blind, ingot_engine_defaults());
    struct ingot_request_options r = request_of(&c, engine);
    expect_refusal(engine, &r, "this model has no eyes");
    ingot_engine_close(engine);
    engine = open_eyes(&picture_files[0], ingot_engine_defaults());
    c.n_tiles--;
    r = request_of(&c, engine);
    expect_refusal(engine, &r, "image places");
    r.n_pictures = 0;
    expect_refusal(engine, &r, "is 4294967295");
    c.n_tiles++;
    r = request_of(&c, engine);
    c.tokens[first_place(&c)] = 0x80000001; // a number of the engine's own
    expect_refusal(engine, &r, "is 2147483649");

    struct ingot_picture *pictures[2] = { drawn(4, 4), drawn(5, 4) };
    const struct ingot_message asks = {
        .role = "user", .fields = "{\"content\":[{\"type\":\"image\"},{\"type\":\"text\",\"text\":\"?\"}]}"
    };
    r = ingot_request_defaults();
    r.messages = &asks;
    r.n_messages = 1;
    expect_refusal(engine, &r, "1 places for pictures, and there are 0 pictures");
    r.pictures = (const struct ingot_picture *const *)pictures;
    r.n_pictures = 2;
    expect_refusal(engine, &r, "1 places for pictures, and there are 2 pictures");
    for (int i = 0; i < 2; i++)
        ingot_picture_free(pictures[i]);
    ingot_engine_close(engine);
    case_close(&c);
}

// A request that is cancelled while its tiles wait holds nothing afterwards.
static void cancelling_frees_the_places(void **state)
{
    struct case_of_pictures c;
    struct ingot_error error = { 0 };
    struct ingot_engine_options o = ingot_engine_defaults();
    bool busy = true;

    (void)state;
    case_open(&c, "smolvlm");
    o.n_batch = 4;
    struct ingot_engine *engine = open_eyes(&picture_files[0], o);
    struct ingot_request_options r = request_of(&c, engine);
    struct ingot_request *request = ingot_submit(engine, &r, &error);
    assert_non_null(request);
    assert_true(ingot_step(engine, &busy, &error));
    uint32_t n_held = 0;
    for (uint32_t i = 0; i < engine->inner.tiles->vision.n_places; i++)
        n_held += engine->inner.tiles->places[i].n_holders;
    assert_true(n_held > 0);
    ingot_cancel(request);
    while (busy)
        assert_true(ingot_step(engine, &busy, &error));
    for (uint32_t i = 0; i < engine->inner.tiles->vision.n_places; i++)
        assert_int_equal(engine->inner.tiles->places[i].n_holders, 0);
    ingot_request_free(request);
    ingot_engine_close(engine);
    case_close(&c);
}

static struct ingot_request *begin(struct ingot_engine *engine, const struct ingot_request_options *r)
{
    struct ingot_error error = { 0 };
    struct ingot_request *request = ingot_submit(engine, r, &error);

    assert_ok(request != NULL, &error);
    return request;
}

// An answer that never ends, and as slow as a test wants it: a step may not get longer at all, so that the
// encoder has one command in each.
static struct ingot_request *begin_slow_answer(struct ingot_engine *engine)
{
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_error error = { 0 };
    bool busy;

    r.tokens = (const uint32_t[]){ 1, 20, 30 };
    r.n_tokens = 3;
    r.ignore_eos = true;
    struct ingot_request *answer = begin(engine, &r);
    for (int i = 0; i < 4; i++)
        assert_ok(ingot_step(engine, &busy, &error), &error);
    engine->inner.prefill_budget.decode_ns = 1e12;
    return answer;
}

static uint32_t steps_while_encoding(struct ingot_engine *engine, uint64_t n_encoded)
{
    struct ingot_error error = { 0 };
    uint32_t n = 0;
    bool busy;

    while (engine->inner.tiles->n_encoded < n_encoded && n < 2000) {
        assert_ok(ingot_step(engine, &busy, &error), &error);
        n++;
    }
    return n;
}

static struct ingot_engine_options without_stretch(void)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.step_stretch = 1;
    o.n_sequences = 3;
    return o;
}

// Beside an answer a tile takes as many steps as the tower has commands, each with a token of that answer;
// and the picture's own answer has the same tokens as alone.
static void a_picture_does_not_hold_up_answers(void **state)
{
    struct first_tokens alone = { 0 }, beside = { 0 };
    struct case_of_pictures c;
    struct ingot_error error = { 0 };
    struct ingot_event event;
    bool busy;

    (void)state;
    case_open(&c, "smolvlm");
    struct ingot_engine *engine = open_eyes(&picture_files[1], without_stretch());
    struct ingot_request_options r = request_of(&c, engine);
    r.max_tokens = 8;
    assert_ok(ingot_generate(engine, &r, keep_tokens, &alone, NULL, &error), &error);
    ingot_engine_close(engine);

    engine = open_eyes(&picture_files[1], without_stretch());
    struct ingot_request *answer = begin_slow_answer(engine), *asks = begin(engine, &r);
    size_t before = ingot_request_n_events(answer, &busy);
    uint32_t n = steps_while_encoding(engine, 1);
    assert_true(n >= tape_n_commands(engine->inner.tiles->vision.tapes[0]));
    assert_int_equal(ingot_request_n_events(answer, &busy) - before, n);
    // a prompt without pictures is read meanwhile
    r.n_pictures = 0;
    r.tokens = (const uint32_t[]){ 1, 21, 31 };
    r.n_tokens = 3;
    r.max_tokens = 1;
    struct ingot_request *other = begin(engine, &r);
    for (int i = 0; i < 200 && !(ingot_request_n_events(other, &busy), busy); i++)
        assert_ok(ingot_step(engine, &busy, &error), &error);
    assert_true(engine->inner.tiles->n_encoded < c.n_tiles);
    ingot_cancel(answer);
    while (beside.n < 8) {
        assert_ok(ingot_step(engine, &busy, &error), &error);
        while (ingot_poll(asks, &event))
            keep_tokens(&beside, &event);
    }
    assert_memory_equal(&alone, &beside, sizeof alone);
    ingot_request_free(other);
    ingot_request_free(asks);
    ingot_request_free(answer);
    ingot_engine_close(engine);
    case_close(&c);
}

// A tile whose only request ends is given up, and its place is free; one that another request wants too is
// not.
static void cancelling_gives_up_what_was_begun(void **state)
{
    struct case_of_pictures c;
    struct ingot_error error = { 0 };
    bool busy;

    (void)state;
    case_open(&c, "smolvlm");
    struct ingot_engine *engine = open_eyes(&picture_files[1], without_stretch());
    struct ingot_request_options r = request_of(&c, engine);
    struct tile_cache *cache = engine->inner.tiles;
    struct ingot_request *answer = begin_slow_answer(engine), *first = begin(engine, &r);
    for (int i = 0; i < 10; i++)
        assert_ok(ingot_step(engine, &busy, &error), &error);
    assert_true(cache->is_begun && cache->vision.n_played > 0 && cache->n_planned == 1);
    uint32_t place = cache->planned[0].place;
    ingot_request_free(first);
    assert_ok(ingot_step(engine, &busy, &error), &error);
    assert_true(!cache->is_begun && cache->n_planned == 0 && cache->places[place].number == 0);

    first = begin(engine, &r);
    r.cache_salt = "another";
    struct ingot_request *second = begin(engine, &r);
    for (int i = 0; i < 10; i++)
        assert_ok(ingot_step(engine, &busy, &error), &error);
    assert_true(cache->is_begun);
    ingot_request_free(first);
    assert_true(steps_while_encoding(engine, 1) < 2000);
    ingot_request_free(second);
    ingot_request_free(answer);
    for (uint32_t i = 0; i < cache->vision.n_places; i++)
        assert_int_equal(cache->places[i].n_holders, 0);
    ingot_engine_close(engine);
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_give_the_reference_logits),
        cmocka_unit_test(ranks_of_a_layer_read_the_same_pictures),
        cmocka_unit_test(one_pixel_makes_another_picture),
        cmocka_unit_test(what_a_picture_costs),
        cmocka_unit_test(answers_do_not_depend_on_what_is_kept),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(pictures_find_their_places_in_prompts),
        cmocka_unit_test(cancelling_frees_the_places),
        cmocka_unit_test(a_picture_does_not_hold_up_answers),
        cmocka_unit_test(cancelling_gives_up_what_was_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
