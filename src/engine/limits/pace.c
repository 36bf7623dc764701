// pace.c - see pace.h.
#include "engine/limits/pace.h"
#include "base/clock.h"
#include "base/log.h"

static const double PAUSED_SHARE = 0.25;
static const uint64_t SECOND_NS = 1000000000, LOW_NS = 60000000000, LOOK_NS = 100000000;

uint64_t pace_clock(const struct pace *p)
{
    return p->clock ? p->clock() : clock_ns();
}

void pace_set(struct pace *p, const struct usage_limits *limits)
{
    p->set = p->now = *limits;
}

double pace_share(const struct pace *p)
{
    double share = p->now.compute > 0 ? (double)p->now.compute : 1;

    return p->is_paused && share > PAUSED_SHARE ? PAUSED_SHARE : share;
}

void pace_note_step(struct pace *p, uint64_t ns)
{
    double share = pace_share(p);
    uint64_t now = pace_clock(p), left = p->step_at > now ? p->step_at - now : 0;

    if (share >= 1)
        return;
    p->counters.n_slowed++;
    p->step_at = now + left + (uint64_t)((double)ns * (1 - share) / share);
    if (!p->told_slow)
        log_line(LOG_INFO, "limits", "steps take %.0f %% of the time: after one of %.1f ms a wait of %.1f ms",
                 100 * share, (double)ns / 1e6, (double)ns * (1 - share) / share / 1e6);
    p->told_slow = true;
}

bool pace_may_start(const struct pace *p)
{
    return !p->is_paused && (p->start_at == 0 || pace_clock(p) >= p->start_at);
}

void pace_note_start(struct pace *p)
{
    if (!usage_limits_any(&p->set))
        return;
    p->counters.n_started++;
    p->start_at = p->now.interval_ms ? pace_clock(p) + p->now.interval_ms * 1000000ull : 0;
}

uint64_t pace_start_at(const struct pace *p)
{
    return p->is_paused ? pace_clock(p) + LOOK_NS : p->start_at;
}

// ---- load

struct pace_cause {
    const char *what;
    double used, most;
};

// The first that is above its limit; NULL: none.
static const struct pace_cause *find_cause(const struct pace_cause causes[3])
{
    for (int i = 0; i < 3; i++)
        if (causes[i].most > 0 && (float)causes[i].used > (float)causes[i].most)
            return &causes[i];
    return NULL;
}

static void tell_unknown(struct pace *p, const struct pace_cause causes[3])
{
    for (int i = 0; i < 3 && !p->told_unknown; i++)
        if (causes[i].most > 0 && causes[i].used == SYSTEM_LOAD_UNKNOWN)
            log_line(LOG_WARN, "limits", "this machine does not tell how busy its %s is: no limit there",
                     causes[i].what);
    p->told_unknown = true;
}

// One preset lower at once, and back after a minute without heat.
static void note_power(struct pace *p, const struct system_load *s, uint64_t now)
{
    bool is_low = !p->set.no_power && (s->is_hot || s->is_battery_low);

    if (is_low)
        p->low_until = now + LOW_NS;
    if (is_low == p->is_low || (p->is_low && now < p->low_until))
        return;
    p->is_low = is_low;
    p->now = is_low ? usage_limits_lower(&p->set) : p->set;
    log_line(LOG_INFO, "limits", "%s: steps take %.0f %% of the time",
             !is_low     ? "cool, and with power again"
             : s->is_hot ? "the machine is hot"
                         : "the battery is below 20 %",
             100 * (double)(p->now.compute > 0 ? p->now.compute : 1));
}

void pace_note_load(struct pace *p, const struct pace_load *load)
{
    uint64_t now = pace_clock(p);

    note_power(p, &load->system, now);
    const struct pace_cause causes[3] = { { "processor", load->system.cpu, (double)p->now.cpu },
                                          { "GPU's memory", load->gpu, (double)p->now.gpu },
                                          { "memory", load->system.memory, (double)p->now.ram } };
    tell_unknown(p, causes);
    const struct pace_cause *cause = find_cause(causes);
    if (cause && !p->is_paused) {
        p->is_paused = true;
        p->paused_until = now + p->now.pause_s * SECOND_NS;
        p->counters.n_pauses++;
        log_line(LOG_WARN, "limits",
                 "paused: other programs use %.0f %% of the %s, more than %.0f %%; no request starts, and "
                 "running ones have a quarter of the time, for %u s at least",
                 100 * cause->used, cause->what, 100 * cause->most, p->now.pause_s);
    } else if (!cause && p->is_paused && now >= p->paused_until) {
        p->is_paused = false;
        log_line(LOG_WARN, "limits", "the pause is over: requests start again");
    }
}
