// test_schedule_wait.c - when prompts wait for others beside the answers of a GPU.
#include "device/device.h"
#include "device/device_queue.h"
#include "engine/request.h"
#include "engine/schedule.h"
#include "testing.h"

enum { MOST = 40, READ_AT = 100 };
struct scene {
    struct device_queue queue;
    struct device device;
    struct stage stage;
    struct engine_loaded loaded;
    struct engine engine;
    struct request requests[MOST];
};

// n_answers answers, then a prompt of n_unread tokens that waits or is read.
static struct engine *scene(struct scene *s, uint32_t n_answers, enum request_state state, uint32_t n_unread)
{
    *s = (struct scene){ .device.queue = &s->queue, .stage.device = &s->device };
    s->loaded.n_stages = 1;
    s->loaded.stages = &s->stage;
    s->engine.loaded = &s->loaded;
    s->engine.prefill_budget.stretch = 1.75;
    s->engine.first = s->requests;
    s->engine.prompts_at = READ_AT;
    for (uint32_t i = 0; i <= n_answers; i++) {
        s->requests[i].state = i < n_answers ? REQUEST_DECODE : state;
        s->requests[i].n_tokens = i < n_answers ? 0 : n_unread;
        s->requests[i].next = i < n_answers ? &s->requests[i + 1] : NULL;
    }
    return &s->engine;
}

static void few_rows_beside_many_answers_wait_three_steps(void **state)
{
    struct scene s;

    (void)state;
    assert_true(schedule_prompts_wait(scene(&s, 32, REQUEST_PREFILL, 31), READ_AT + 1));
    assert_true(schedule_prompts_wait(scene(&s, 32, REQUEST_QUEUED, 31), READ_AT + 1));
    assert_true(schedule_prompts_wait(&s.engine, READ_AT + 3));
    assert_false(schedule_prompts_wait(&s.engine, READ_AT + 4));
}

static void many_rows_few_answers_and_a_processor_do_not(void **state)
{
    struct scene s;

    (void)state;
    assert_false(schedule_prompts_wait(scene(&s, 32, REQUEST_PREFILL, 32), READ_AT + 1));
    assert_false(schedule_prompts_wait(scene(&s, 15, REQUEST_PREFILL, 1), READ_AT + 1));
    struct engine *e = scene(&s, 32, REQUEST_PREFILL, 1);
    e->prefill_budget.stretch = 0;
    assert_false(schedule_prompts_wait(e, READ_AT + 1));
    e = scene(&s, 32, REQUEST_PREFILL, 1);
    s.device.queue = NULL;
    assert_false(schedule_prompts_wait(e, READ_AT + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_rows_beside_many_answers_wait_three_steps),
        cmocka_unit_test(many_rows_few_answers_and_a_processor_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
