// test_metal_misuse.c - a host that uses Metal wrongly is told, whatever it does wrong; one that uses it
// rightly is not.
#include <stdio.h>
#include <sys/mman.h>
#include "device/metal/objc.h"
#include "metal_emu.h"
#include "testing.h"

#define SEND(result, types, object, name, ...) \
    ((result(*) types)objc.objc_msgSend)(object, objc.sel_registerName(name), ##__VA_ARGS__)
#define SEND_ID(object, name) SEND(objc_id, (objc_id, objc_sel), object, name)

static const char *const source =
    "#include <metal_stdlib>\n"
    "using namespace metal;\n"
    "constant uint ADD [[function_constant(0)]];\n"
    "kernel void plus(device uint *x [[buffer(0)]], constant uint &n [[buffer(1)]],\n"
    "                 uint i [[thread_position_in_grid]]) { if (i < n) x[i] = x[i] + ADD; }\n"
    "kernel void room(device uint *x [[buffer(0)]], threadgroup uint *room [[threadgroup(0)]],\n"
    "                 uint i [[thread_position_in_grid]]) { room[i] = x[i]; x[i] = room[i]; }\n";
static char last[4096]; // all messages since it was emptied
static int n_misuses;
static objc_id gpu, queue, library, plus, promised, room, shared, private, commands, encoder;

static void on_misuse(const char *message)
{
    n_misuses++;
    snprintf(last + strlen(last), sizeof last - strlen(last), "%s; ", message);
}

static objc_id make_library(const char *text, objc_id *error)
{
    objc_id options = objc_new("MTLCompileOptions");

    mtl_set_fast_math(options, false);
    objc_id made = mtl_library(gpu, objc_string(text), options, error);
    mtl_release(options);
    return made;
}

static objc_id make_function(const char *name, ns_uint type, uint32_t value, objc_id *error)
{
    objc_id values = objc_new("MTLFunctionConstantValues");

    mtl_set_constant(values, &value, type, 0);
    objc_id made = mtl_function(library, objc_string(name), values, error);
    mtl_release(values);
    return made;
}

static objc_id make_pipeline(const char *name, bool whole_simdgroups)
{
    objc_id error = NULL, function = make_function(name, MTL_TYPE_UINT, 5, &error),
            descriptor = objc_new("MTLComputePipelineDescriptor");

    mtl_set_function(descriptor, function);
    mtl_set_full_groups(descriptor, whole_simdgroups);
    objc_id made = mtl_pipeline(gpu, descriptor, 0, &error);
    if (!made)
        fail_msg("%s", objc_error(error));
    mtl_release(descriptor);
    mtl_release(function);
    return made;
}

static void begin(ns_uint type)
{
    commands = SEND_ID(queue, "commandBuffer");
    encoder = mtl_compute_encoder(commands, type);
}

static void bind(objc_id pipeline, objc_id buffer)
{
    uint32_t n = 64;

    mtl_set_pipeline(encoder, pipeline);
    mtl_set_buffer(encoder, buffer, 0, 0);
    mtl_set_bytes(encoder, &n, sizeof n, 1);
}

static void dispatch(ns_uint groups, ns_uint threads)
{
    mtl_dispatch(encoder, (struct mtl_size){ groups, 1, 1 }, (struct mtl_size){ threads, 1, 1 });
}

static void wait(void)
{
    SEND(void, (objc_id, objc_sel), commands, "waitUntilCompleted");
}

static void finish(void)
{
    mtl_end(encoder);
    mtl_commit(commands);
    wait();
}

static int setup(void **state)
{
    struct err err;
    objc_id error = NULL;

    (void)state;
    assert_true(objc_load(&err));
    emu_on_misuse(on_misuse);
    objc.objc_autoreleasePoolPush();
    gpu = objc.MTLCreateSystemDefaultDevice();
    queue = mtl_queue(gpu);
    library = make_library(source, &error);
    if (!library)
        fail_msg("%s", objc_error(error));
    plus = make_pipeline("plus", false);
    promised = make_pipeline("plus", true);
    room = make_pipeline("room", false);
    shared = mtl_buffer(gpu, 4096, MTL_STORAGE_SHARED);
    private = mtl_buffer(gpu, 4096, MTL_STORAGE_PRIVATE);
    return 0;
}

static void test_right_use_is_not_reported(void **state)
{
    void *pool = objc.objc_autoreleasePoolPush();
    uint32_t *numbers = mtl_contents(shared);

    (void)state;
    for (uint32_t i = 0; i < 64; i++)
        numbers[i] = i;
    for (int round = 0; round < 3; round++) {
        begin(MTL_DISPATCH_CONCURRENT);
        bind(plus, shared);
        dispatch(2, 32);
        mtl_barrier(encoder, MTL_BARRIER_BUFFERS);
        dispatch(2, 32);
        finish();
        assert_int_equal(mtl_status(commands), 4);
    }
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(numbers[i], i + 30);
    assert_int_equal(n_misuses, 0);
    objc.objc_autoreleasePoolPop(pool);
}

// Each runs inside a pool; what it leaves open is closed behind it.
static void dispatch_without_pipeline(void)
{
    begin(0);
    dispatch(1, 1);
}
static void buffer_not_bound(void)
{
    begin(0);
    mtl_set_pipeline(encoder, plus);
    dispatch(1, 1);
}
static void threadgroup_without_length(void)
{
    begin(0);
    bind(room, shared);
    dispatch(1, 1);
}
static void too_many_bytes(void)
{
    static char bytes[5000];
    begin(0);
    mtl_set_bytes(encoder, bytes, sizeof bytes, 0);
}
static void threadgroup_length_is_odd(void)
{
    begin(0);
    mtl_set_shared(encoder, 20, 0);
}
static void offset_past_the_end(void)
{
    begin(0);
    mtl_set_buffer(encoder, shared, 4096, 0);
}
static void index_is_too_high(void)
{
    begin(0);
    mtl_set_buffer(encoder, shared, 0, 31);
}
static void buffer_is_no_buffer(void)
{
    begin(0);
    mtl_set_buffer(encoder, plus, 0, 0);
}
static void too_many_threads(void)
{
    begin(0);
    bind(plus, shared);
    dispatch(1, 1025);
}
static void empty_grid(void)
{
    begin(0);
    bind(plus, shared);
    dispatch(0, 32);
}
static void barrier_without_scope(void)
{
    begin(0);
    mtl_barrier(encoder, 0);
}
static void use_after_end(void)
{
    begin(0);
    mtl_end(encoder);
    mtl_set_pipeline(encoder, plus);
}
static void end_twice(void)
{
    begin(0);
    mtl_end(encoder);
    mtl_end(encoder);
}
static void encoder_never_ended(void)
{
    void *pool = objc.objc_autoreleasePoolPush();
    begin(0);
    objc.objc_autoreleasePoolPop(pool);
    encoder = NULL;
}
static void commit_with_open_encoder(void)
{
    begin(0);
    mtl_commit(commands);
}
static void commit_twice(void)
{
    begin(0);
    mtl_end(encoder);
    mtl_commit(commands);
    mtl_commit(commands);
}
static void never_committed(void)
{
    void *pool = objc.objc_autoreleasePoolPush();
    begin(0);
    mtl_end(encoder);
    objc.objc_autoreleasePoolPop(pool);
    encoder = NULL;
}
static void two_encoders(void)
{
    begin(0);
    mtl_blit_encoder(commands);
}
static void encoder_after_commit(void)
{
    begin(0);
    finish();
    mtl_blit_encoder(commands);
}
static void wait_before_commit(void)
{
    begin(0);
    mtl_end(encoder);
    wait();
}
static void handler_after_commit(void)
{
    begin(0);
    finish();
    mtl_on_completed(commands, NULL);
}
static void handler_is_no_block(void)
{
    struct objc_block block = { 0 };
    begin(0);
    mtl_on_completed(commands, &block);
}
static void blit(ns_uint from_at, ns_uint to_at, ns_uint n)
{
    commands = SEND_ID(queue, "commandBuffer");
    encoder = mtl_blit_encoder(commands);
    mtl_copy(encoder, shared, from_at, private, to_at, n);
}
static void blit_out_of_range(void)
{
    blit(0, 4000, 200);
}
static void blit_of_odd_bytes(void)
{
    blit(0, 2, 8);
}
static void blit_onto_itself(void)
{
    commands = SEND_ID(queue, "commandBuffer");
    encoder = mtl_blit_encoder(commands);
    mtl_copy(encoder, shared, 0, shared, 64, 128);
}
static void released_twice(void)
{
    objc_id b = mtl_buffer(gpu, 64, MTL_STORAGE_SHARED);
    mtl_release(b);
    mtl_release(b);
}
static void message_to_the_dead(void)
{
    objc_id b = mtl_buffer(gpu, 64, MTL_STORAGE_SHARED);
    mtl_release(b);
    mtl_contents(b);
}
static void unknown_selector(void)
{
    SEND_ID(shared, "contentss");
}
static void method_of_another_class(void)
{
    mtl_commit(queue);
}
static void released_while_in_use(void)
{
    objc_id b = mtl_buffer(gpu, 4096, MTL_STORAGE_SHARED);
    commands = mtl_command_buffer(queue);
    encoder = mtl_compute_encoder(commands, 0);
    bind(plus, b);
    dispatch(1, 32);
    mtl_end(encoder);
    mtl_release(b);
    mtl_commit(commands);
    wait();
}
static void contents_of_private_memory(void)
{
    mtl_contents(private);
}
static void buffer_of_no_bytes(void)
{
    mtl_buffer(gpu, 0, MTL_STORAGE_SHARED);
}
static void managed_storage(void)
{
    mtl_buffer(gpu, 64, 1 << 4);
}
static void private_over_own_memory(void)
{
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mtl_buffer_over(gpu, at, 4096, MTL_STORAGE_PRIVATE);
    munmap(at, 4096);
}
static void over_memory_that_is_not_there(void)
{
    char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(at + 4096, 4096);
    mtl_buffer_over(gpu, at, 8192, MTL_STORAGE_SHARED);
    munmap(at, 4096);
}
static void not_in_the_residency_set(void)
{
    objc_id descriptor = objc_new("MTLResidencySetDescriptor"), error = NULL,
            set = mtl_residency_set(gpu, descriptor, &error);
    mtl_residency_remove(set, shared);
    mtl_release(set);
    mtl_release(descriptor);
}
static void constant_of_unknown_type(void)
{
    uint32_t value = 0;
    objc_id values = objc_new("MTLFunctionConstantValues");
    mtl_set_constant(values, &value, 1, 0);
    mtl_release(values);
}
static void event_goes_backwards(void)
{
    objc_id e = SEND_ID(gpu, "newSharedEvent");
    SEND(void, (objc_id, objc_sel, uint64_t), e, "setSignaledValue:", 5);
    SEND(void, (objc_id, objc_sel, uint64_t), e, "setSignaledValue:", 4);
    mtl_release(e);
}
static void array_index_outside(void)
{
    mtl_at(mtl_function_names(library), 2);
}

static void reference_to_too_little(void)
{
    uint16_t n = 64;
    begin(0);
    bind(plus, shared);
    mtl_set_bytes(encoder, &n, sizeof n, 1);
    dispatch(1, 32);
}
static void broken_promise_of_whole_simdgroups(void)
{
    begin(0);
    bind(promised, shared);
    dispatch(1, 33);
}

static const struct misuse {
    void (*run)(void);
    const char *message;
} misuses[] = {
    { dispatch_without_pipeline, "without a pipeline" },
    { buffer_not_bound, "buffer(0) is not bound" },
    { threadgroup_without_length, "has no length" },
    { too_many_bytes, "5000 bytes" },
    { threadgroup_length_is_odd, "20 bytes" },
    { offset_past_the_end, "offset 4096" },
    { index_is_too_high, "index 31" },
    { buffer_is_no_buffer, "not a buffer" },
    { too_many_threads, "1025" },
    { empty_grid, "grid of 0" },
    { barrier_without_scope, "MTLBarrierScope 0" },
    { use_after_end, "after endEncoding" },
    { end_twice, "after endEncoding" },
    { encoder_never_ended, "before endEncoding" },
    { commit_with_open_encoder, "commit while an encoder is open" },
    { commit_twice, "commit after commit" },
    { never_committed, "never committed" },
    { two_encoders, "while an encoder is open" },
    { encoder_after_commit, "after commit" },
    { wait_before_commit, "before commit" },
    { handler_after_commit, "after commit" },
    { handler_is_no_block, "no block" },
    { blit_out_of_range, "200 bytes at 4000" },
    { blit_of_odd_bytes, "multiples of 4" },
    { blit_onto_itself, "overlaps" },
    { released_twice, "release sent to a MTLBuffer that was released" },
    { message_to_the_dead, "that was released" },
    { unknown_selector, "does not respond to contentss" },
    { method_of_another_class, "does not respond to commit" },
    { released_while_in_use, "that was released" },
    { contents_of_private_memory, "private" },
    { buffer_of_no_bytes, "0 bytes" },
    { managed_storage, "managed" },
    { private_over_own_memory, "shared storage" },
    { over_memory_that_is_not_there, "not all of them are mapped" },
    { not_in_the_residency_set, "not in the residency set" },
    { constant_of_unknown_type, "MTLDataType 1" },
    { event_goes_backwards, "stands at 5" },
    { array_index_outside, "2 of 2" },
    { reference_to_too_little, "buffer(1) has 2 bytes; its type has 4" },
    { broken_promise_of_whole_simdgroups, "multiple of 32" },
};

static void test_every_misuse_is_reported(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof misuses / sizeof *misuses; i++) {
        void *pool = objc.objc_autoreleasePoolPush();
        n_misuses = 0;
        last[0] = 0;
        encoder = NULL;
        misuses[i].run();
        if (n_misuses == 0 || !strstr(last, misuses[i].message))
            fail_msg("misuse %zu: '%s' expected, found '%s'", i, misuses[i].message, last);
        if (encoder)
            mtl_end(encoder);
        objc.objc_autoreleasePoolPop(pool);
    }
}

static void test_no_pool_is_reported(void **state)
{
    (void)state;
    while (n_misuses < 1000000) { // pools of the setup: they are popped here
        n_misuses = 0;
        objc.objc_autoreleasePoolPop((void *)1);
        if (n_misuses)
            break;
    }
    n_misuses = 0;
    last[0] = 0;
    objc_id leaks = objc_string("leaks");
    assert_int_equal(n_misuses, 1);
    mtl_release(leaks);
    assert_non_null(strstr(last, "no pool"));
    objc.objc_autoreleasePoolPush();
}

static void test_errors_of_the_interface_are_errors(void **state)
{
    void *pool = objc.objc_autoreleasePoolPush();
    objc_id error = NULL;
    char page[64];

    (void)state;
    n_misuses = 0;
    assert_null(make_library("kernel void f(device float *x [[buffer(0)]])\n{ x[0] = y; }\n", &error));
    assert_non_null(strstr(objc_error(error), ":2:"));
    assert_null(make_function("minus", MTL_TYPE_UINT, 0, &error));
    assert_non_null(strstr(objc_error(error), "no function 'minus'"));
    assert_null(make_function("plus", 53, 0, &error)); // MTLDataTypeBool
    assert_non_null(strstr(objc_error(error), "ADD has 4 bytes"));
    assert_null(mtl_function(library, objc_string("plus"), NULL, &error));
    assert_non_null(strstr(objc_error(error), "plus uses function constant ADD (0), which has no value"));
    assert_null(mtl_buffer_over(gpu, page + 1, 4096, MTL_STORAGE_SHARED));
    assert_null(objc.objc_getClass("MTLBuffer")); // a protocol
    emu_set("residency", 0);
    assert_false(mtl_responds(gpu, objc.selectors.residency_set));
    emu_set("residency", 1);
    assert_true(mtl_responds(gpu, objc.selectors.residency_set));
    assert_int_equal(n_misuses, 0);
    objc.objc_autoreleasePoolPop(pool);
}

static void test_results_come_late(void **state)
{
    void *pool = objc.objc_autoreleasePoolPush();
    objc_id fresh = mtl_buffer(gpu, 256, MTL_STORAGE_SHARED);
    volatile unsigned char *at = mtl_contents(fresh);

    (void)state;
    emu_set("delay_us", 20000);
    commands = SEND_ID(queue, "commandBuffer");
    encoder = mtl_blit_encoder(commands);
    mtl_fill(encoder, fresh, (struct ns_range){ 0, 256 }, 7);
    mtl_end(encoder);
    mtl_commit(commands);
    assert_int_equal(at[9], 0xCD); // who reads now reads poison
    wait();
    emu_set("delay_us", 0);
    assert_int_equal(at[9], 7);
    mtl_release(fresh);
    objc.objc_autoreleasePoolPop(pool);
}

// Two dispatches of a concurrent encoder with no barrier between them: the checker, told to compile for it,
// sees the race.
static void test_a_missing_barrier_is_found(void **state)
{
    objc_id error = NULL, plain_library = library, plain = plus;

    (void)state;
    emu_set("check", 1);
    library = make_library(source, &error);
    plus = make_pipeline("plus", false);
    for (int with_barrier = 0; with_barrier < 2; with_barrier++) {
        void *pool = objc.objc_autoreleasePoolPush();
        begin(MTL_DISPATCH_CONCURRENT);
        bind(plus, shared);
        dispatch(2, 32);
        if (with_barrier)
            mtl_barrier(encoder, MTL_BARRIER_BUFFERS);
        dispatch(2, 32);
        finish();
        assert_int_equal(mtl_status(commands), with_barrier ? 4 : MTL_STATUS_ERROR);
        if (!with_barrier)
            assert_non_null(strstr(objc_error(mtl_error(commands)), "another threadgroup or dispatch"));
        objc.objc_autoreleasePoolPop(pool);
    }
    emu_set("check", 0);
    mtl_release(plus);
    mtl_release(library);
    library = plain_library;
    plus = plain;
}

static void test_a_command_buffer_fails_on_demand(void **state)
{
    void *pool = objc.objc_autoreleasePoolPush();

    (void)state;
    emu_set("fail_command_buffer", 2);
    for (int i = 1; i <= 3; i++) {
        begin(0);
        bind(plus, shared);
        dispatch(2, 32);
        finish();
        assert_int_equal(mtl_status(commands), i == 2 ? MTL_STATUS_ERROR : 4);
    }
    objc.objc_autoreleasePoolPop(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_use_is_not_reported),
        cmocka_unit_test(test_every_misuse_is_reported),
        cmocka_unit_test(test_errors_of_the_interface_are_errors),
        cmocka_unit_test(test_results_come_late),
        cmocka_unit_test(test_a_missing_barrier_is_found),
        cmocka_unit_test(test_a_command_buffer_fails_on_demand),
        cmocka_unit_test(test_no_pool_is_reported),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
