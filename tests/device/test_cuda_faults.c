// test_cuda_faults.c - what an engine on an NVIDIA GPU does when the device fails, and in what order it asks
// for work. No GPU is needed: the driver is a fake one whose memory is the process's and whose kernels do
// nothing, so every token is 0.
#include <stdlib.h>
#include "base/clock.h"
#include "device/cuda/cuda.h"
#include "engine/api.h"
#include "testing.h"

#define MODEL SOURCE_DIR "/tests/golden/llama3/model.gguf"
enum { LAUNCH_FAILED = 719, LOST = 999 };

static struct {
    uint64_t memory_bytes, used_bytes;
    unsigned modules, launches, waits, waits_at_fault, launches_at_wait[64];
    unsigned fail_launch, fail_wait, fail_alloc, allocs; // the how manieth fails; 0: none
} fake;

static cu_result name_of(cu_result result, const char **name)
{
    *name = result == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_UNKNOWN";
    return 0;
}
static cu_result count_devices(int *n)
{
    *n = 1;
    return 0;
}
static cu_result get_device(cu_device *device, int ordinal)
{
    *device = ordinal;
    return 0;
}
static cu_result get_name(char *name, int n, cu_device device)
{
    (void)device;
    snprintf(name, (size_t)n, "a fake device");
    return 0;
}
static cu_result get_attribute(int *value, int attribute, cu_device device)
{
    (void)device;
    *value = attribute == CU_ATTRIBUTE_SM_COUNT       ? 4
             : attribute == CU_ATTRIBUTE_MAJOR        ? 9
             : attribute == CU_ATTRIBUTE_SHARED_OPTIN ? 232448
                                                      : 0;
    return 0;
}
static cu_result retain(cu_context *context, cu_device device)
{
    (void)device;
    *context = &fake;
    return 0;
}
static cu_result release(cu_device device)
{
    (void)device;
    return 0;
}
static cu_result set_flags(cu_device device, unsigned flags)
{
    (void)device, (void)flags;
    return 0;
}
static cu_result set_context(cu_context context)
{
    (void)context;
    return 0;
}
static cu_result memory_info(size_t *free_bytes, size_t *total)
{
    *total = fake.memory_bytes;
    *free_bytes = fake.memory_bytes - fake.used_bytes;
    return 0;
}
static cu_result alloc(cu_address *at, size_t bytes)
{
    if (++fake.allocs == fake.fail_alloc)
        return CU_OUT_OF_MEMORY;
    *at = (cu_address)(uintptr_t)malloc(bytes);
    return *at ? 0 : CU_OUT_OF_MEMORY;
}
static cu_result give_back(cu_address at)
{
    free((void *)(uintptr_t)at);
    return 0;
}
static cu_result host_alloc(void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    *at = malloc(bytes);
    return *at ? 0 : CU_OUT_OF_MEMORY;
}
static cu_result host_free(void *at)
{
    free(at);
    return 0;
}
static cu_result clear(cu_address at, unsigned char value, size_t bytes, cu_stream stream)
{
    (void)stream;
    memset((void *)(uintptr_t)at, value, bytes);
    return 0;
}
static cu_result write_to(cu_address to, const void *from, size_t bytes, cu_stream stream)
{
    (void)stream;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}
static cu_result read_from(void *to, cu_address from, size_t bytes, cu_stream stream)
{
    (void)stream;
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return 0;
}
static cu_result make_handle(void **handle, unsigned flags)
{
    (void)flags;
    *handle = &fake;
    return 0;
}
static cu_result drop_handle(void *handle)
{
    (void)handle;
    return 0;
}
static cu_result record_event(cu_event event, cu_stream stream)
{
    (void)event, (void)stream;
    return 0;
}
static cu_result lose(cu_result how)
{
    fake.waits_at_fault = fake.waits;
    return how;
}
static cu_result wait_for_event(cu_event event)
{
    (void)event;
    if (fake.waits < 64)
        fake.launches_at_wait[fake.waits] = fake.launches;
    return ++fake.waits == fake.fail_wait ? lose(LAUNCH_FAILED) : 0;
}
static cu_result load_module(cu_module *module, const void *image)
{
    (void)image;
    fake.modules++;
    *module = &fake;
    return 0;
}
static cu_result find_function(cu_function *function, cu_module module, const char *name)
{
    (void)module, (void)name;
    *function = &fake;
    return 0;
}
static cu_result set_function(cu_function function, int attribute, int value)
{
    (void)function, (void)attribute, (void)value;
    return 0;
}
static cu_result launch(cu_function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared_bytes, cu_stream stream, void **params, void **extra)
{
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared_bytes,
        (void)stream, (void)params;
    (void)extra;
    return 0;
}
static cu_result add_node(cu_node *node, cu_graph graph, const cu_node *after, size_t n_after,
                          const struct cu_kernel_node *what)
{
    (void)graph, (void)after, (void)n_after, (void)what;
    *node = &fake;
    return 0;
}
static cu_result add_edges(cu_graph graph, const cu_node *from, const cu_node *to,
                           const struct cu_edge *edges, size_t n)
{
    (void)graph, (void)from, (void)to, (void)edges, (void)n;
    return 0;
}
static cu_result instantiate(cu_exec *exec, cu_graph graph, unsigned long long flags)
{
    (void)graph, (void)flags;
    *exec = &fake;
    return 0;
}
static cu_result upload(cu_exec exec, cu_stream stream)
{
    (void)exec, (void)stream;
    return 0;
}
static cu_result launch_graph(cu_exec exec, cu_stream stream)
{
    (void)exec, (void)stream;
    return ++fake.launches == fake.fail_launch ? lose(LOST) : 0;
}

static const struct driver driver = {
    .error_name = name_of,
    .device_count = count_devices,
    .device_get = get_device,
    .device_name = get_name,
    .device_attribute = get_attribute,
    .primary_retain = retain,
    .primary_release = release,
    .primary_flags = set_flags,
    .context_set = set_context,
    .memory_info = memory_info,
    .alloc = alloc,
    .give_back = give_back,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .clear = clear,
    .write = write_to,
    .read = read_from,
    .stream_create = make_handle,
    .stream_destroy = drop_handle,
    .stream_wait = drop_handle,
    .event_create = make_handle,
    .event_destroy = drop_handle,
    .event_record = record_event,
    .event_wait = wait_for_event,
    .module_load = load_module,
    .module_unload = drop_handle,
    .module_function = find_function,
    .function_set = set_function,
    .launch = launch,
    .graph_create = make_handle,
    .graph_destroy = drop_handle,
    .graph_kernel = add_node,
    .graph_edges = add_edges,
    .graph_instantiate = instantiate,
    .graph_upload = upload,
    .graph_launch = launch_graph,
    .graph_exec_destroy = drop_handle,
};

static struct ingot_engine *open_engine(struct ingot_error *error)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    fake.memory_bytes = fake.memory_bytes ? fake.memory_bytes : 1ull << 32;
    driver_replace(&driver);
    o.model = MODEL;
    o.device = "cuda";
    o.n_sequences = 2;
    return ingot_engine_open(&o, error);
}

static struct ingot_request_options request(void)
{
    static const uint32_t tokens[] = { 5, 6, 7 };
    struct ingot_request_options r = ingot_request_defaults();

    r.tokens = tokens;
    r.n_tokens = 3;
    r.max_tokens = 20;
    r.sampling.temperature = 0;
    r.ignore_eos = true;
    return r;
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
        *(i % 2 ? &fake.fail_wait : &fake.fail_launch) = i < 2 ? 1 : 7;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_image_is_loaded),
        cmocka_unit_test(the_next_step_is_queued_before_this_one_is_read),
        cmocka_unit_test(a_lost_device_ends_its_requests),
        cmocka_unit_test(too_little_memory_is_told_before_loading),
        cmocka_unit_test(an_allocation_that_fails_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
