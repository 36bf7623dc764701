// profile_energy.c - see profile_energy.h.
#include "model_tools/profile/profile_energy.h"
#include <time.h>
#include "base/energy.h"

enum { SECONDS = 2, PROMPT_TOKENS = 512, ANSWER_TOKENS = 64 };

static struct energy_figure figure(const struct energy_reading *from, const struct energy_reading *to,
                                   double per)
{
    return (struct energy_figure){ to->has_processor ? (to->processor_joules - from->processor_joules) / per
                                                     : -1,
                                   to->has_gpus ? (to->gpu_joules - from->gpu_joules) / per : -1 };
}

static bool measure_case(const struct phases_request *request, struct energy_meter *meter,
                         struct phase_case c, struct energy_figure *joules, struct err *err)
{
    struct energy_reading from = energy_read(meter), to;
    uint32_t n_runs = 0;

    if (!phases_repeat(request, &c, SECONDS, &n_runs, err))
        return false;
    to = energy_read(meter);
    *joules = figure(&from, &to, (double)n_runs * (c.n_gen > 1 ? c.n_gen : c.n_prompt));
    return true;
}

bool profile_energy_measure(const struct phases_request *request, const char *folder,
                            struct profile_energy *energy, struct err *err)
{
    struct ingot_engine_info info;
    struct energy_meter meter;
    struct phase_case
        answer = { .name = "energy of answers", .n_prompt = 1, .n_gen = ANSWER_TOKENS, .n_streams = 1 },
        prompt = { .name = "energy of prompts", .n_prompt = PROMPT_TOKENS, .n_gen = 1, .n_streams = 1 };

    *energy = (struct profile_energy){ .rest_watts = { -1, -1 },
                                       .answer_joules = { -1, -1 },
                                       .prompt_joules = { -1, -1 } };
    ingot_engine_info(request->engine, &info);
    if (prompt.n_prompt + 2 > info.n_context)
        prompt.n_prompt = info.n_context - 2;
    if (answer.n_gen + 2 > info.n_context)
        answer.n_gen = info.n_context - 2;
    energy_open(&meter, folder);
    bool ok = true;
    if (meter.n_sources > 0) {
        energy->is_measured = true;
        struct energy_reading from = energy_read(&meter);
        nanosleep(&(struct timespec){ .tv_sec = SECONDS }, NULL);
        struct energy_reading to = energy_read(&meter);
        energy->rest_watts = figure(&from, &to, SECONDS);
        ok = measure_case(request, &meter, answer, &energy->answer_joules, err) &&
             measure_case(request, &meter, prompt, &energy->prompt_joules, err);
    }
    energy_close(&meter);
    return ok;
}
