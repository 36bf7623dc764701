// test_cuda_faults.c - what an engine on an NVIDIA GPU does when the device fails, and in what order it asks
// for work. On a fake driver.
#include "base/clock.h"
#include "engine/api.h"
#include "engine/flight/flight_run.h"
#include "engine/kv/prefix.h"
#include "engine/kv_persist.h"
#include "engine/stage/link.h"
#include "engine/stage/plan.h"
#include "fake_driver.h"
#include "ops/cuda_table.h"

#define MODEL SOURCE_DIR "/tests/golden/llama3/model.gguf"

static struct ingot_engine *open_engine(struct ingot_error *error)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    fake.memory_bytes = fake.memory_bytes ? fake.memory_bytes : 1ull << 32;
    driver_replace(&driver);
    o.model = MODEL;
    o.device = fake.n_devices > 1 ? "cuda:0,cuda:1" : "cuda";
    o.stages = fake.n_devices > 1 ? "1" : NULL;
    o.n_sequences = 2;
    o.n_context = 128; // small buffers: a thousand engines are opened
    o.n_batch = 16;
    o.speculate = INGOT_SPECULATE_OFF; // by measured times, and steps are counted here
    return ingot_engine_open(&o, error);
}

static bool begin(struct ingot_engine **engine)
{
    struct ingot_error error = { 0 };

    memset(&fake, 0, sizeof fake);
    if (cuda_n_images == 0) {
        print_message("skipped: this build holds no CUDA kernels\n");
        return false;
    }
    *engine = open_engine(&error);
    if (!*engine)
        fail_msg("%s", error.message);
    return true;
}

static void every_image_is_loaded(void **state)
{
    (void)state;
    struct ingot_engine *engine = NULL;
    if (!begin(&engine))
        skip();
    assert_int_equal(fake.modules, cuda_n_images);
    ingot_engine_close(engine);
}

// One submission, one wait and four bytes a token; every step but the last is launched before the one ahead
// of it is waited for.
static void the_next_step_is_queued_before_this_one_is_read(void **state)
{
    (void)state;
    struct ingot_engine *engine = NULL;
    if (!begin(&engine))
        skip();
    struct ingot_request_options r = request();
    struct ingot_result result;
    struct device *d = engine->inner.loaded->devices.at[0];
    assert_true(ingot_generate(engine, &r, NULL, NULL, NULL, NULL)); // the graphs are made
    fake.waits = 0;
    struct device_counters before = d->counters;
    unsigned launches = fake.launches;
    assert_true(ingot_generate(engine, &r, NULL, NULL, &result, NULL));
    assert_int_equal(result.n_generated, 20);
    assert_int_equal(d->counters.submissions - before.submissions, 20);
    assert_int_equal(d->counters.waits - before.waits, 20);
    assert_int_equal(d->counters.read_bytes - before.read_bytes, 80);
    assert_int_equal(d->counters.buffers - before.buffers, 0);
    assert_int_equal(d->counters.pipelines - before.pipelines, 0);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(fake.launches_at_wait[i] - launches, i < 19 ? i + 2 : 20);
    ingot_engine_close(engine);
}

// So is a step with a prompt that comes while another request is answered: nothing but the last step is read
// before the next one is launched.
static void a_prompt_is_queued_beside_an_answer(void **state)
{
    (void)state;
    struct ingot_engine *engine = NULL;
    if (!begin(&engine))
        skip();
    const struct engine *e = &engine->inner;
    struct ingot_request_options r = request();
    struct ingot_request *requests[2] = { ingot_submit(engine, &r, NULL) };
    uint32_t n_alone = 0, n[2] = { 0 };
    struct ingot_event event;
    bool busy = true;
    for (int i = 0; i < 3; i++)
        assert_true(ingot_step(engine, &busy, NULL));
    assert_true(e->is_ahead && e->ahead->n_rows == 1);
    requests[1] = ingot_submit(engine, &r, NULL);
    assert_true(ingot_step(engine, &busy, NULL));
    assert_true(e->is_ahead && e->ahead->n_decode == 1 && e->ahead->n_rows > 1);
    while (busy) {
        assert_true(ingot_step(engine, &busy, NULL));
        n_alone += !e->is_ahead;
    }
    assert_int_equal(n_alone, 1);
    for (int i = 0; i < 2; i++) {
        while (ingot_poll(requests[i], &event) && !event.done)
            n[i]++;
        assert_int_equal(n[i], 20);
        ingot_request_free(requests[i]);
    }
    ingot_engine_close(engine);
}

static void check_lost(struct ingot_engine *engine)
{
    struct ingot_request_options r = request();
    struct ingot_request *requests[] = { ingot_submit(engine, &r, NULL), ingot_submit(engine, &r, NULL) };
    struct ingot_error error = { 0 };
    struct ingot_event event;
    uint64_t from = clock_ns();
    bool busy = true;

    while (busy && ingot_step(engine, &busy, &error))
        ;
    assert_int_equal(error.code, INGOT_DEVICE);
    for (int i = 0; i < 2; i++) {
        do
            assert_true(ingot_poll(requests[i], &event));
        while (!event.done);
        assert_int_equal(event.result->finish, INGOT_FINISH_ERROR);
        assert_int_equal(event.result->error.code, INGOT_DEVICE);
        assert_non_null(strstr(event.result->error.message, "cuda:0"));
        ingot_request_free(requests[i]);
    }
    assert_true(clock_ns() - from < 1000000000u);      // the promise; some ms here
    assert_int_equal(fake.waits, fake.waits_at_fault); // a lost device is not waited for
    assert_false(ingot_generate(engine, &r, NULL, NULL, NULL, &error));
    assert_int_equal(error.code, INGOT_DEVICE);
    ingot_engine_close(engine);
}

static void a_lost_device_ends_its_requests(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct ingot_engine *engine = NULL;
        if (!begin(&engine))
            skip();
        unsigned nth = i < 2 ? 1 : 7; // of those behind the question at the start
        *(i % 2 ? &fake.fail_wait : &fake.fail_launch) = (i % 2 ? fake.waits : fake.launches) + nth;
        check_lost(engine);
    }
}

static void too_little_memory_is_told_before_loading(void **state)
{
    (void)state;
    struct ingot_error error = { 0 };

    if (cuda_n_images == 0)
        skip();
    memset(&fake, 0, sizeof fake);
    fake.memory_bytes = 1 << 16;
    assert_null(open_engine(&error));
    assert_int_equal(error.code, INGOT_MEMORY);
    assert_non_null(strstr(error.message, "KV pages"));
    assert_int_equal(fake.allocs, 0);
    fake.memory_bytes = 1ull << 32;
    fake.used_bytes = fake.memory_bytes - (1 << 16); // other programs'
    assert_null(open_engine(&error));
    assert_int_equal(error.code, INGOT_MEMORY);
    assert_non_null(strstr(error.message, "0.00 free of 4.00"));
    assert_int_equal(fake.allocs, 0);
}

static struct ingot_engine_options found_options(uint32_t n_batch)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.model = MODEL;
    o.n_sequences = 2;
    o.n_batch = n_batch;
    return o;
}

static uint64_t need_of(uint32_t n_batch, uint64_t *scratch)
{
    struct ingot_engine_options o = found_options(n_batch);
    struct ingot_memory m = { 0 };
    struct ingot_error error = { 0 };

    assert_ok(ingot_engine_estimate(&o, &m, &error), &error);
    *scratch = m.scratch_bytes;
    return m.weight_bytes + m.page_bytes + m.scratch_bytes;
}

// Of an engine that nobody told them; the estimate and the plan have the same.
static void expect_rows(uint32_t n_rows)
{
    struct plan *p = calloc(1, sizeof *p);
    struct err err = { 0 };
    struct ingot_engine_options o = found_options(0);
    struct ingot_error error = { 0 };
    struct ingot_engine_info info;
    uint64_t predicted, scratch;

    need_of(0, &predicted);
    need_of(n_rows, &scratch);
    assert_int_equal(predicted, scratch);
    struct ingot_engine *engine = ingot_engine_open(&o, &error);
    assert_ok(engine, &error);
    ingot_engine_info(engine, &info);
    assert_int_equal(info.n_batch, n_rows);
    assert_int_equal(info.n_stages, 1);
    ingot_engine_close(engine);
    assert_ok(engine_plan(&o, 0, p, &err), &err);
    assert_int_equal(p->need[0].scratch, scratch);
    free(p);
}

// With fewer rows one GPU is enough; two have room for more.
static void the_memory_chooses_the_rows(void **state)
{
    uint64_t few, many, ignored;
    (void)state;

    if (cuda_n_images == 0)
        skip();
    memset(&fake, 0, sizeof fake);
    fake.memory_bytes = 1ull << 34;
    fake.n_devices = 2;
    driver_replace(&driver);
    few = need_of(512, &ignored);
    many = need_of(2048, &ignored);
    expect_rows(2048);
    fake.memory_bytes = (few + many) / 2;
    expect_rows(512);
    fake.memory_bytes = few;
    expect_rows(512);
}

static void an_allocation_that_fails_is_an_error(void **state)
{
    (void)state;
    if (cuda_n_images == 0)
        skip();
    for (unsigned n = 1;; n++) {
        struct ingot_error error = { 0 };
        memset(&fake, 0, sizeof fake);
        fake.fail_alloc = n;
        struct ingot_engine *engine = open_engine(&error);
        if (engine) {
            assert_true(n > 20);
            ingot_engine_close(engine);
            return;
        }
        assert_int_equal(error.code, INGOT_MEMORY);
    }
}

// Opens, answers and closes with one call that fails. Returns how many calls there were.
static unsigned answer_with_fault(int n_devices, unsigned fail_call)
{
    struct ingot_error error = { 0 };
    struct ingot_request_options r = request();

    memset(&fake, 0, sizeof fake);
    fake.n_devices = n_devices;
    fake.has_peers = n_devices > 1;
    fake.fail_call = fail_call;
    struct ingot_engine *engine = open_engine(&error);
    bool ok = engine && ingot_generate(engine, &r, NULL, NULL, NULL, &error);
    ingot_engine_close(engine);
    assert_true(ok || (error.code != 0 && strlen(error.message) > 10));
    assert_int_equal(fake.n_live, 0);
    return fake.calls;
}

static void drop_line(void *arg, int level, const char *tag, const char *message)
{
    (void)arg, (void)level, (void)tag, (void)message;
}

static void every_call_fails_in_turn(void **state)
{
    (void)state;
    if (cuda_n_images == 0)
        skip();
    ingot_log_set(INGOT_LOG_ERROR, drop_line, NULL); // a line for each fault
    for (int n_devices = 1; n_devices <= 2; n_devices++) {
        unsigned n = answer_with_fault(n_devices, 0);
        for (unsigned i = 1; i <= n; i++)
            answer_with_fault(n_devices, i);
        print_message("%u fault points of the driver, with %d devices\n", n, n_devices);
    }
    ingot_log_set(INGOT_LOG_WARNING, NULL, NULL);
}

// Kernels do nothing here: in place of the tokens that the last stage would draw for the slot.
static void put_tokens(const struct stage *last, uint32_t slot, uint32_t first)
{
    uint32_t *history = (uint32_t *)last->history.native + (uint64_t)slot * last->shape.history_stride;

    for (uint32_t i = 0; i < last->shape.history_stride; i++)
        history[i] = first + i;
}

static void check_returned(const struct stage *first, uint32_t slot, uint32_t first_token)
{
    const uint32_t *history =
        (const uint32_t *)first->history.native + (uint64_t)slot * first->shape.history_stride;

    for (uint32_t i = 0; i < first->shape.history_stride; i++) // 3 of the prompt; the last one is not fed
        assert_int_equal(history[i], i >= 3 && i < 3 + 19 ? first_token + i : 0);
}

// A step's activations go from device to device, and the tokens back: the host reads the token alone, waits
// once, and has submitted the next step before.
static void two_devices_need_no_host_between_them(void **state)
{
    (void)state;
    struct ingot_error error = { 0 };
    struct ingot_result result;

    if (cuda_n_images == 0)
        skip();
    memset(&fake, 0, sizeof fake);
    fake.n_devices = 2;
    fake.has_peers = true;
    struct ingot_engine *engine = open_engine(&error);
    assert_non_null(engine);
    assert_int_equal(fake.n_enabled, 2);
    const struct engine_loaded *l = engine->inner.loaded;
    assert_int_equal(l->links[0].kind, LINK_DIRECT);
    struct ingot_request_options r = request();
    assert_true(ingot_generate(engine, &r, NULL, NULL, NULL, NULL)); // the graphs are made
    struct device_counters first = l->devices.at[0]->counters, last = l->devices.at[1]->counters;
    unsigned copies = fake.n_copies, follows = fake.n_follows, launches = fake.launches;
    put_tokens(&l->stages[1], 0, 1000);
    fake.waits = 0;
    assert_true(ingot_generate(engine, &r, NULL, NULL, &result, NULL));
    assert_int_equal(result.n_generated, 20);
    check_returned(&l->stages[0], 0, 1000);
    assert_int_equal(fake.n_copies - copies, 20 + 19);
    assert_int_equal(fake.n_follows - follows, 2 * (20 + 19));
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(fake.launches_at_wait[i] - launches, 2 * (i < 19 ? i + 2 : 20));
    assert_int_equal(l->devices.at[0]->counters.waits, first.waits);
    assert_int_equal(l->devices.at[1]->counters.sent_bytes - last.sent_bytes, 4 * 19);
    assert_int_equal(l->devices.at[0]->counters.read_bytes, first.read_bytes);
    assert_int_equal(l->devices.at[1]->counters.waits - last.waits, 20);
    assert_int_equal(l->devices.at[1]->counters.read_bytes - last.read_bytes, 80);
    ingot_engine_close(engine);
}

// Places that results are copied to: of the step that runs, the one ahead and those in flight.
static void check_places(const struct engine *e)
{
    bool taken[DEVICE_FETCHES] = { [0] = false };
    const struct batch *all[2 + MOST_FLIGHTS] = { e->batch, e->ahead };

    memcpy(all + 2, e->flight.at, e->flight.most * sizeof *all);
    for (uint32_t i = 0; i < 2 + e->flight.most; i++) {
        assert_true(all[i]->fetch < DEVICE_FETCHES && !taken[all[i]->fetch]);
        taken[all[i]->fetch] = true;
    }
}

// Two answers are a step each, in flight at once; who is left goes on ahead of the host.
static void one_is_left_of_two_in_flight(void **state)
{
    (void)state;
    struct ingot_error error = { 0 };
    struct ingot_event event;
    bool busy = true;

    if (cuda_n_images == 0)
        skip();
    memset(&fake, 0, sizeof fake);
    fake.n_devices = 2;
    struct ingot_engine *engine = open_engine(&error);
    assert_non_null(engine);
    const struct engine *e = &engine->inner;
    assert_int_equal(e->loaded->links[0].kind, LINK_DRIVER);
    assert_int_equal(e->flight.most, 2);
    struct ingot_request_options r = request();
    struct ingot_request *requests[2] = { ingot_submit(engine, &r, NULL) };
    r.max_tokens = 7;
    requests[1] = ingot_submit(engine, &r, NULL);
    uint32_t most = 0, n_ahead = 0, n[2] = { 0 };
    while (busy) {
        assert_true(ingot_step(engine, &busy, NULL));
        most = e->flight.n > most ? e->flight.n : most;
        n_ahead += e->is_ahead;
        assert_false(e->is_ahead && e->flight.n > 0);
        check_places(e);
    }
    for (int i = 0; i < 2; i++) {
        while (ingot_poll(requests[i], &event) && !event.done)
            n[i]++;
        ingot_request_free(requests[i]);
    }
    assert_true(most == 1 && n_ahead >= 10 && n[0] == 20 && n[1] == 7);
    ingot_engine_close(engine);
}

static void copies_that_arrive_changed_go_through_the_host(void **state)
{
    (void)state;
    struct ingot_error error = { 0 };

    if (cuda_n_images == 0)
        skip();
    memset(&fake, 0, sizeof fake);
    fake.n_devices = 2;
    fake.has_peers = fake.spoils_direct = true;
    struct ingot_engine *engine = open_engine(&error);
    assert_non_null(engine);
    assert_int_equal(fake.n_enabled, 0);
    assert_int_equal(engine->inner.loaded->links[0].kind, LINK_DRIVER);
    ingot_engine_close(engine);
    fake.spoils_all = true;
    assert_null(open_engine(&error));
    assert_int_equal(error.code, INGOT_DEVICE);
    assert_non_null(strstr(error.message, "copies from cuda:0 to cuda:1 arrive changed"));
}

// Devices that fail one after the other, each in another step: the batches of a new flight, and the one ahead
// where a device is left alone, copy to places of their own.
static void devices_may_be_lost_until_one_is_left(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_error error = { 0 };
    (void)state;

    if (cuda_n_images == 0)
        skip();
    for (unsigned nth = 0; nth < 12; nth++) {
        memset(&fake, 0, sizeof fake);
        fake.n_devices = 3;
        fake.has_peers = true;
        fake.memory_bytes = 1ull << 32;
        driver_replace(&driver);
        o.model = SOURCE_DIR "/models/ingot-7m-q8_0.gguf";
        o.device = "cuda:0,cuda:1,cuda:2";
        o.stages = "2,5";
        o.n_context = 256;
        o.n_sequences = 6;
        o.speculate = INGOT_SPECULATE_OFF;
        struct ingot_engine *engine = ingot_engine_open(&o, &error);
        if (!engine)
            fail_msg("%s", error.message);
        struct engine *e = &engine->inner;
        struct ingot_request_options r = request();
        while (e->loaded->devices.n > 1) {
            struct ingot_request *requests[6];
            bool busy = true;
            for (int i = 0; i < 6; i++)
                assert_non_null(requests[i] = ingot_submit(engine, &r, &error));
            fake.fail_launch = fake.launches + 2 + nth;
            while (busy)
                ingot_step(engine, &busy, NULL);
            for (int i = 0; i < 6; i++)
                ingot_request_free(requests[i]);
            for (uint32_t i = 0; i < e->flight.most && e->flight.most > 1; i++)
                assert_true(e->flight.at[i]->fetch < DEVICE_FETCHES);
        }
        assert_int_not_equal(e->batch->fetch, e->ahead->fetch);
        ingot_engine_close(engine);
    }
}

// A failure of one of two ends its requests, and the other takes its layers.
static void a_lost_device_leaves_the_other(void **state)
{
    static const struct {
        bool at_wait;
        const char *left;
    } cases[] = { { false, "cuda:1: a fake device" }, { true, "cuda:0: a fake device" } };

    (void)state;
    if (cuda_n_images == 0)
        skip();
    for (int i = 0; i < 2; i++) {
        struct ingot_error error = { 0 };
        struct ingot_result result;
        struct ingot_engine_info info;
        memset(&fake, 0, sizeof fake);
        fake.n_devices = 2;
        fake.has_peers = true;
        struct ingot_engine *engine = open_engine(&error);
        assert_non_null(engine);
        struct ingot_request_options r = request();
        assert_true(ingot_generate(engine, &r, NULL, NULL, NULL, NULL));
        // the first device launches first, and the last one's results are waited for
        *(cases[i].at_wait ? &fake.fail_wait : &fake.fail_launch) =
            cases[i].at_wait ? fake.waits + 2 : fake.launches + 3;
        assert_false(ingot_generate(engine, &r, NULL, NULL, &result, &error));
        assert_int_equal(error.code, INGOT_DEVICE);
        ingot_engine_info(engine, &info);
        assert_true(strncmp(info.device, cases[i].left, strlen(cases[i].left)) == 0);
        assert_int_equal(info.n_stages, 1);
        assert_int_equal(engine->inner.loaded->devices.n, 1);
        assert_int_not_equal(engine->inner.batch->fetch, engine->inner.ahead->fetch);
        assert_true(ingot_generate(engine, &r, NULL, NULL, &result, &error));
        assert_int_equal(result.n_generated, 20);
        ingot_engine_close(engine);
    }
}

static void a_device_that_computes_wrong_is_not_opened(void **state)
{
    struct ingot_error error = { 0 };

    (void)state;
    if (cuda_n_images == 0)
        skip();
    memset(&fake, 0, sizeof fake);
    fake.computes_wrong = true;
    assert_null(open_engine(&error));
    assert_int_equal(error.code, INGOT_DEVICE);
    assert_non_null(strstr(error.message, "cuda:0 computes wrong"));
}

// ---- pages that come while steps run

enum { N_MOVED = 4 };

static const uint32_t *prompt_of_pages(void)
{
    static uint32_t tokens[N_MOVED * PAGE_TOKENS + 1];

    for (uint32_t i = 0; i <= N_MOVED * PAGE_TOKENS; i++)
        tokens[i] = 3 + i * 7 % 90;
    return tokens;
}

// The numbers of the prompt's pages on both GPUs; `put`: other ones for each of them.
static void page_numbers(struct ingot_engine *engine, bool put, unsigned char *numbers)
{
    struct engine *e = &engine->inner;
    struct sha256 root = prefix_root(e->kv.prefix, "salt");
    struct prefix_walk walk = prefix_begin(&root);
    struct err err = { 0 };

    for (uint32_t i = 0; i < N_MOVED; i++) {
        uint32_t page = prefix_next(&e->kv, &walk, prompt_of_pages() + i * PAGE_TOKENS);
        assert_int_not_equal(page, KV_NONE);
        for (uint32_t k = 0; put && k < kv_persist_page_bytes(e); k++)
            numbers[k] = (unsigned char)(i * 31 + k * 7 + k / 256);
        unsigned char *at = numbers;
        for (uint32_t s = 0; s < e->loaded->n_stages; s++)
            assert_ok(stage_page_move(&e->loaded->stages[s], page, &at, put, &err), &err);
        numbers = at;
    }
}

// Pieces that fill the pinned room together, alone and several times over come back whole, with few waits.
static void pieces_are_gathered(void **state)
{
    static const uint64_t bytes[] = { 3, 1000, 9 << 20, 64 << 10, 4 << 20, (4 << 20) - 7, 8, 1 };
    enum { N = sizeof bytes / sizeof *bytes };
    struct buffer buffers[N];
    struct device_piece pieces[N];
    struct err err = { 0 };
    (void)state;

    if (cuda_n_images == 0)
        skip();
    memset(&fake, 0, sizeof fake);
    driver_replace(&driver);
    struct device *d = cuda_open(0, &cuda_table, &err);
    assert_non_null(d);
    for (uint32_t i = 0; i < N; i++) {
        assert_ok(buffer_alloc(d, bytes[i] + i, &buffers[i], &err), &err);
        pieces[i] = (struct device_piece){ &buffers[i], i, bytes[i], malloc(bytes[i]) };
        for (uint64_t k = 0; k < bytes[i] + i; k++)
            ((unsigned char *)buffers[i].native)[k] = (unsigned char)(k * 7 + k / 256 + i * 31);
    }
    fake.waits = 0;
    assert_ok(device_gather(d, pieces, N, &err), &err);
    assert_int_equal(fake.waits, 5); // of 4 MiB each
    for (uint32_t i = 0; i < N; i++) {
        assert_memory_equal(pieces[i].host, (unsigned char *)buffers[i].native + i, bytes[i]);
        free(pieces[i].host);
        buffer_release(&buffers[i]);
    }
    device_close(d);
    assert_int_equal(fake.n_live, 0);
}

// On a stream of their own, with a thread that sleeps; the step's stream is not waited for.
static void pages_come_beside_the_steps(void **state)
{
    struct ingot_request_options r = request();
    struct ingot_engine *engines[2] = { NULL };
    struct ingot_error error = { 0 };
    static unsigned char sent[1 << 20], got[1 << 20];
    size_t n;
    (void)state;

    if (cuda_n_images == 0)
        skip();
    memset(&fake, 0, sizeof fake);
    fake.n_devices = 2;
    fake.has_peers = true;
    r.tokens = prompt_of_pages();
    r.n_tokens = N_MOVED * PAGE_TOKENS + 1;
    r.cache_salt = "salt";
    for (int i = 0; i < 2; i++)
        assert_non_null(engines[i] = open_engine(&error));
    assert_true(ingot_generate(engines[0], &r, NULL, NULL, NULL, NULL));
    page_numbers(engines[0], true, sent);
    struct ingot_pages *from = ingot_pages_offer(engines[0], r.tokens, r.n_tokens, 0, "salt", &error),
                       *to = ingot_pages_expect(engines[1], r.tokens, r.n_tokens, "salt", &error);
    assert_true(from && to);
    uint64_t written = engines[1]->inner.loaded->devices.at[0]->counters.write_bytes;
    for (const void *at; (at = ingot_pages_give(from, &n));)
        assert_true(ingot_pages_take(to, at, n, &error));
    assert_true(ingot_pages_finish(to, &error));
    assert_int_equal(ingot_pages_n_tokens(to), N_MOVED * PAGE_TOKENS);
    assert_int_equal(engines[1]->inner.loaded->devices.at[0]->counters.write_bytes,
                     written); // by no step's way
    page_numbers(engines[1], false, got);
    assert_memory_equal(sent, got, N_MOVED * kv_persist_page_bytes(&engines[1]->inner));
    ingot_pages_close(from);
    ingot_pages_close(to);
    for (int i = 0; i < 2; i++)
        ingot_engine_close(engines[i]);
    assert_int_equal(fake.n_live, 0);
}

// ---- beside a CPU: each stage has a thread

enum { N_BESIDE = 5, N_EACH = 12 };

struct told_beside {
    uint32_t tokens[N_BESIDE][N_EACH], n[N_BESIDE], most_in_flight;
    struct ingot_error error;
};

static struct ingot_engine *open_beside(const char *device, bool in_turn, struct ingot_error *error)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct err err = { 0 };

    memset(&fake, 0, sizeof fake);
    fake.memory_bytes = 1ull << 32;
    driver_replace(&driver);
    o.model = MODEL;
    o.device = device;
    o.stages = "1";
    o.n_threads = 1;
    o.n_context = 128;
    o.n_batch = 8;
    o.n_sequences = N_BESIDE;
    o.step_stretch = 0;
    o.speculate = INGOT_SPECULATE_OFF;
    struct ingot_engine *engine = ingot_engine_open(&o, error);
    if (engine && in_turn) {
        flight_close(&engine->inner);
        assert_ok(flight_create(&engine->inner.flight, 1, engine->inner.batch, &err), &err);
    }
    return engine;
}

static void tell_beside(struct ingot_engine *engine, struct told_beside *told)
{
    struct ingot_request *requests[N_BESIDE];
    struct ingot_event event;
    bool busy = true;

    *told = (struct told_beside){ 0 };
    for (uint32_t i = 0; i < N_BESIDE; i++) {
        uint32_t tokens[40];
        struct ingot_request_options r = request();
        for (uint32_t k = 0; k < 40; k++)
            tokens[k] = 3 + (k * 7 + i * 13) % 90;
        r.tokens = tokens;
        r.n_tokens = 4 + i * 9;
        r.max_tokens = N_EACH;
        assert_non_null(requests[i] = ingot_submit(engine, &r, NULL));
    }
    while (busy) {
        ingot_step(engine, &busy, NULL);
        uint32_t n = engine->inner.flight.n;
        told->most_in_flight = n > told->most_in_flight ? n : told->most_in_flight;
    }
    for (uint32_t i = 0; i < N_BESIDE; i++) {
        while (ingot_poll(requests[i], &event)) {
            if (event.token != UINT32_MAX)
                told->tokens[i][told->n[i]++] = event.token;
            if (event.done && event.result->error.code)
                told->error = event.result->error;
        }
        ingot_request_free(requests[i]);
    }
}

static const char *const beside[] = { "cuda:0,cpu", "cpu,cuda:0" };

static void a_gpu_and_a_cpu_compute_at_the_same_time(void **state)
{
    (void)state;
    if (cuda_n_images == 0)
        skip();
    for (int i = 0; i < 2; i++) {
        static struct told_beside want, got;
        struct ingot_error error = { 0 };
        struct ingot_engine *engine = open_beside(beside[i], true, &error);
        assert_non_null(engine);
        tell_beside(engine, &want);
        assert_true(want.most_in_flight <= 1);
        ingot_engine_close(engine);
        engine = open_beside(beside[i], false, &error);
        assert_non_null(engine);
        assert_non_null(engine->inner.pipeline);
        assert_true(engine->inner.loaded->devices.at[i]->sleeps); // beside the threads of a CPU
        tell_beside(engine, &got);
        assert_int_equal(got.most_in_flight, 2);
        for (uint32_t k = 0; k < N_BESIDE; k++)
            assert_int_equal(got.n[k], N_EACH);
        assert_memory_equal(got.tokens, want.tokens, sizeof want.tokens);
        ingot_engine_close(engine);
        assert_int_equal(fake.n_live, 0);
    }
}

// In whichever thread: every request ends, nothing is left behind, and the CPU alone may go on.
static void every_call_beside_a_cpu_fails_in_turn(void **state)
{
    (void)state;
    if (cuda_n_images == 0)
        skip();
    ingot_log_set(INGOT_LOG_ERROR, drop_line, NULL);
    for (int i = 0; i < 2; i++) {
        unsigned n_opened = 0, n_calls = 1;
        for (unsigned nth = 0; nth <= n_calls; nth++) {
            static struct told_beside told;
            struct ingot_error error = { 0 };
            struct ingot_engine *engine = open_beside(beside[i], false, &error);
            assert_non_null(engine);
            n_opened = fake.calls;
            fake.fail_call = nth ? n_opened + nth : 0;
            tell_beside(engine, &told);
            assert_true(nth == 0 || told.error.code == INGOT_DEVICE || told.error.code == INGOT_MEMORY);
            n_calls = nth ? n_calls : fake.calls - n_opened;
            ingot_engine_close(engine);
            assert_int_equal(fake.n_live, 0);
        }
        print_message("%u fault points of the driver, on %s\n", n_calls, beside[i]);
    }
    ingot_log_set(INGOT_LOG_WARNING, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_image_is_loaded),
        cmocka_unit_test(the_next_step_is_queued_before_this_one_is_read),
        cmocka_unit_test(a_prompt_is_queued_beside_an_answer),
        cmocka_unit_test(a_lost_device_ends_its_requests),
        cmocka_unit_test(too_little_memory_is_told_before_loading),
        cmocka_unit_test(the_memory_chooses_the_rows),
        cmocka_unit_test(an_allocation_that_fails_is_an_error),
        cmocka_unit_test(every_call_fails_in_turn),
        cmocka_unit_test(two_devices_need_no_host_between_them),
        cmocka_unit_test(one_is_left_of_two_in_flight),
        cmocka_unit_test(a_lost_device_leaves_the_other),
        cmocka_unit_test(devices_may_be_lost_until_one_is_left),
        cmocka_unit_test(a_device_that_computes_wrong_is_not_opened),
        cmocka_unit_test(copies_that_arrive_changed_go_through_the_host),
        cmocka_unit_test(pieces_are_gathered),
        cmocka_unit_test(pages_come_beside_the_steps),
        cmocka_unit_test(a_gpu_and_a_cpu_compute_at_the_same_time),
        cmocka_unit_test(every_call_beside_a_cpu_fails_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
