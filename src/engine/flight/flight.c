// flight.c - see flight.h.
#include "engine/flight/flight.h"
#include <string.h>
#include "engine/stage/batch.h"

bool flight_create(struct flight *f, uint32_t most, const struct batch *like, struct err *err)
{
    flight_release(f);
    *f = (struct flight){ .most = most, .n_shares = most };
    CHECK(most >= 1 && most <= MOST_FLIGHTS);
    for (uint32_t i = 0; i < most && most > 1; i++) {
        if (!batch_create(&f->at[i], like->max_rows, like->max_outputs, err))
            return false;
        f->at[i]->fetch = FETCH_FLIGHTS + i;
    }
    return true;
}

void flight_release(struct flight *f)
{
    for (uint32_t i = 0; i < f->most; i++)
        batch_free(f->at[i]);
    memset(f->at, 0, sizeof f->at);
}

struct batch *flight_begin(struct flight *f, struct batch *played)
{
    struct batch *idle = f->at[f->n];

    CHECK(f->n < f->most);
    played->is_over = false;
    f->at[f->n++] = played;
    return idle;
}

struct batch *flight_end(struct flight *f, struct batch *idle)
{
    struct batch *oldest = f->at[0];

    CHECK(f->n > 0);
    memmove(f->at, f->at + 1, (--f->n) * sizeof *f->at);
    f->at[f->n] = idle;
    batch_clear(idle);
    return oldest;
}

uint32_t flight_n_with_answers(const struct flight *f)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->n; i++)
        n += f->at[i]->n_decode > 0;
    return n;
}

void flight_forget(struct flight *f, const struct request *r)
{
    for (uint32_t i = 0; i < f->n; i++)
        batch_forget(f->at[i], r);
}
