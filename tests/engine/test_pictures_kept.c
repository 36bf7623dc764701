// test_pictures_kept.c - pictures beyond the request that showed them: in pages on disk, in sessions in
// files, and cut once for several requests.
#include "engine/tiles.h"
#include "folder.h"
#include "models/golden_pictures.h"

struct picture_answer {
    uint32_t n, tokens[8];
    struct ingot_result result;
};

static bool keep_token(void *arg, const struct ingot_event *event)
{
    struct picture_answer *a = arg;

    if (event->token != UINT32_MAX && a->n < 8)
        a->tokens[a->n++] = event->token;
    return true;
}

static struct picture_answer ask(struct ingot_engine *engine, struct case_of_pictures *c,
                                 struct ingot_session *session)
{
    struct ingot_request_options r = request_of(c, engine);
    struct ingot_error error = { 0 };
    struct picture_answer a = { 0 };

    r.session = session;
    r.max_tokens = 8;
    assert_ok(ingot_generate(engine, &r, keep_token, &a, &a.result, &error), &error);
    assert_int_equal(a.n, 8);
    return a;
}

static uint32_t first_place(const struct case_of_pictures *c)
{
    uint32_t i = 0;

    while (c->tokens[i] != INGOT_IMAGE_PLACE)
        i++;
    return i;
}

static struct ingot_engine *open_kept(const struct picture_files *files)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.cache_dir = folder;
    return open_eyes(files, o);
}

// A new process finds the pages of the same picture, whatever it has seen before, and of no other: not of one
// that differs in a pixel, and not of the same seen by another tower.
static void pages_of_a_picture_outlive_the_engine(void **state)
{
    struct case_of_pictures c;

    (void)state;
    case_open(&c, "smolvlm");
    uint32_t whole = (c.g.n - 1) / 16 * 16;
    struct ingot_engine *engine = open_kept(&picture_files[1]);
    struct picture_answer first = ask(engine, &c, NULL);
    assert_int_equal(first.result.n_reused, 0);
    ingot_engine_close(engine);

    engine = open_kept(&picture_files[1]);
    c.tiles[0] ^= 1;
    assert_true(ask(engine, &c, NULL).result.n_reused <= first_place(&c));
    c.tiles[0] ^= 1;
    uint64_t n_encoded = engine->inner.tiles->n_encoded;
    struct picture_answer again = ask(engine, &c, NULL);
    assert_int_equal(again.result.n_reused, whole);
    assert_int_equal(engine->inner.tiles->n_encoded, n_encoded);
    assert_memory_equal(first.tokens, again.tokens, sizeof first.tokens);
    ingot_engine_close(engine);

    engine = open_kept(&picture_files[2]);
    assert_true(ask(engine, &c, NULL).result.n_reused <= first_place(&c));
    ingot_engine_close(engine);
    case_close(&c);
}

static void a_session_with_a_picture_goes_through_a_file(void **state)
{
    struct case_of_pictures c;
    struct ingot_error error = { 0 };
    char path[128];
    uint32_t tokens[512];

    (void)state;
    case_open(&c, "smolvlm");
    snprintf(path, sizeof path, "%s/session", folder);
    struct ingot_engine *engine = open_eyes(&picture_files[1], ingot_engine_defaults());
    struct ingot_session *session = ingot_session_create(engine, &error);
    struct picture_answer first = ask(engine, &c, session);
    uint32_t n = ingot_session_n_tokens(session);
    assert_ok(ingot_session_save(session, path, &error), &error);
    ingot_session_free(session);
    ingot_engine_close(engine);

    engine = open_eyes(&picture_files[1], ingot_engine_defaults());
    c.tiles[0] ^= 1;
    (void)ask(engine, &c, NULL); // so that numbers of tiles differ
    c.tiles[0] ^= 1;
    session = ingot_session_load(engine, path, &error);
    assert_ok(session != NULL, &error);
    assert_int_equal(ingot_session_tokens(session, tokens, 512), n);
    assert_memory_equal(tokens, c.tokens, c.g.n * sizeof *tokens);
    struct picture_answer again = ask(engine, &c, session);
    assert_int_equal(again.result.n_reused, c.g.n - 1);
    assert_memory_equal(first.tokens, again.tokens, sizeof first.tokens);
    ingot_session_free(session);
    session = ingot_session_load(engine, path, &error);
    c.tiles[0] ^= 1;
    assert_true(ask(engine, &c, session).result.n_reused <= first_place(&c));
    ingot_session_free(session);
    ingot_engine_close(engine);

    struct picture_files blind = { "smolvlm", "/text.gguf", NULL };
    engine = open_eyes(&blind, ingot_engine_defaults());
    assert_null(ingot_session_load(engine, path, &error));
    assert_non_null(strstr(error.message, "this model has no eyes"));
    ingot_engine_close(engine);
    case_close(&c);
}

static void requests_share_what_a_picture_was_cut_into(void **state)
{
    struct case_of_pictures c;
    struct ingot_error error = { 0 };
    struct ingot_request *requests[3];
    bool busy = true;

    (void)state;
    case_open(&c, "smolvlm");
    struct ingot_engine *engine = open_eyes(&picture_files[0], ingot_engine_defaults());
    struct ingot_request_options r = request_of(&c, engine);
    const struct picture_tiles *cut = c.picture->cut->last;
    for (int i = 0; i < 3; i++) {
        requests[i] = ingot_submit(engine, &r, &error);
        assert_ok(requests[i] != NULL, &error);
    }
    assert_ptr_equal(c.picture->cut->last, cut);
    assert_int_equal(cut->n_holders, 4);
    ingot_picture_free(c.picture); // the requests hold what they need
    c.picture = NULL;
    while (busy)
        assert_ok(ingot_step(engine, &busy, &error), &error);
    assert_int_equal(engine->inner.tiles->n_encoded, c.n_tiles);
    for (int i = 0; i < 3; i++)
        ingot_request_free(requests[i]);
    ingot_engine_close(engine);
    case_close(&c);
}

// Of two pictures one is read as a single tile, and each is cut anew where it is asked for otherwise.
static void each_picture_is_split_or_not(void **state)
{
    const uint8_t grey[3] = { 90, 90, 90 };
    struct ingot_error error = { 0 };
    struct ingot_engine *engine = open_eyes(&picture_files[0], ingot_engine_defaults());
    struct ingot_picture *pictures[2] = { ingot_picture_from_rgb(grey, 1, 1, 0, &error),
                                          ingot_picture_from_rgb(grey, 1, 1, 0, &error) };
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_result result;
    bool no_splits[2] = { false, false };
    uint32_t n_tiles[4];

    (void)state;
    r.pictures = (const struct ingot_picture *const *)pictures;
    r.n_pictures = 2;
    r.no_splits = no_splits;
    r.text = "what are these?";
    r.max_tokens = 1;
    for (int i = 0; i < 4; i++) {
        no_splits[0] = i & 1;
        no_splits[1] = i & 2;
        assert_ok(ingot_generate(engine, &r, NULL, NULL, &result, &error), &error);
        n_tiles[i] = result.n_tiles;
    }
    assert_int_equal(n_tiles[0], 34);
    assert_int_equal(n_tiles[1], 18);
    assert_int_equal(n_tiles[2], 18);
    assert_int_equal(n_tiles[3], 2);
    ingot_picture_free(pictures[0]);
    ingot_picture_free(pictures[1]);
    ingot_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pages_of_a_picture_outlive_the_engine, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(a_session_with_a_picture_goes_through_a_file, folder_make,
                                        folder_remove),
        cmocka_unit_test(requests_share_what_a_picture_was_cut_into),
        cmocka_unit_test(each_picture_is_split_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
