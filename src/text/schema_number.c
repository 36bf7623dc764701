// schema_number.c - integers and decimal fractions within bounds, digit by digit.
//
// Numbers of one length share a beginning with the lower bound, or with the upper one, or lie between: then what follows is free. So a
// range of n digits takes about n * n / 2 alternatives. Without a bound a number has at most MAX_DIGITS digits before the point.
#include "text/schema_parts.h"

enum { MAX_DIGITS = 16, FRACTION_DIGITS = 16 };
static const int64_t LARGEST = 9999999999999999; // MAX_DIGITS nines

static void any_digits(struct buf *out, uint32_t n)
{
    if (n > 0)
        buf_printf(out, " [0-9]{%u}", n);
}

static bool all_are(const char *digits, uint32_t n, char digit)
{
    for (uint32_t i = 0; i < n; i++)
        if (digits[i] != digit)
            return false;
    return true;
}

// Texts of n digits from low to high.
static void same_length(struct buf *out, const char *low, const char *high, uint32_t n)
{
    static const char zeros[] = "0000000000000000", nines[] = "9999999999999999";
    bool first = true;

    if (n == 0)
        return;
    if (all_are(low, n, '0') && all_are(high, n, '9')) {
        any_digits(out, n);
        return;
    }
    if (low[0] == high[0]) {
        buf_printf(out, " \"%c\"", low[0]);
        same_length(out, low + 1, high + 1, n - 1);
        return;
    }
    char from = low[0], to = high[0];
    buf_text(out, " (");
    if (!all_are(low + 1, n - 1, '0')) {
        buf_printf(out, "\"%c\"", from++);
        same_length(out, low + 1, nines, n - 1);
        first = false;
    }
    if (!all_are(high + 1, n - 1, '9')) {
        buf_printf(out, "%s\"%c\"", first ? "" : " | ", to--);
        same_length(out, zeros, high + 1, n - 1);
        first = false;
    }
    if (from <= to) {
        buf_printf(out, "%s[%c-%c]", first ? "" : " | ", from, to);
        any_digits(out, n - 1);
    }
    buf_text(out, ")");
}

// Decimal texts of whole numbers from low to high, 0 <= low <= high <= LARGEST.
static void whole(struct buf *out, int64_t low, int64_t high)
{
    char from[24], to[24];
    int64_t power = 10;
    bool first = true;

    buf_text(out, "(");
    for (uint32_t n = 1; n <= MAX_DIGITS; n++, power *= 10) {
        int64_t least = n == 1 ? 0 : power / 10, most = power - 1;
        least = low > least ? low : least;
        most = high < most ? high : most;
        if (least > most)
            continue;
        snprintf(from, sizeof from, "%lld", (long long)least);
        snprintf(to, sizeof to, "%lld", (long long)most);
        buf_text(out, first ? "" : " |");
        same_length(out, from, to, n);
        first = false;
    }
    buf_text(out, ")");
}

static bool settle(const struct number_bounds *b, bool integers, int64_t *least, int64_t *most, struct err *err)
{
    *least = b->has_least ? b->least : -LARGEST;
    *most = b->has_most ? b->most : LARGEST;
    if (*least < -LARGEST || *most > LARGEST)
        return err_set(err, ERR_INPUT, "schema: a bound has more than %d digits", MAX_DIGITS);
    if (integers) {
        *least += b->has_least && b->open_least;
        *most -= b->has_most && b->open_most;
    }
    bool empty = *least > *most || (!integers && *least == *most && (b->open_least || b->open_most));
    return !empty || err_set(err, ERR_INPUT, "schema: no number lies between minimum and maximum");
}

bool schema_integer(const struct number_bounds *b, struct buf *out, struct err *err)
{
    int64_t least, most;

    if (!settle(b, true, &least, &most, err))
        return false;
    buf_text(out, "(");
    if (least < 0) {
        buf_text(out, "\"-\" ");
        whole(out, most < 0 ? -most : 1, -least);
    }
    if (most >= 0) {
        buf_text(out, least < 0 ? " | " : "");
        whole(out, least > 0 ? least : 0, most);
    }
    buf_text(out, ")");
    return true;
}

struct span { // of numbers without their sign
    int64_t low, high;
    bool low_open, high_open, unbounded;
};

static void fractions(struct buf *out, const struct span *s)
{
    const char *between = "";

    buf_text(out, "(");
    if (s->low_open && s->low < s->high) { // the bound itself only with something behind the point
        whole(out, s->low, s->low);
        buf_printf(out, " \".\" [0-9]{0,%d} [1-9]", FRACTION_DIGITS - 1);
        between = " | ";
    }
    if (s->low + s->low_open < s->high) {
        buf_text(out, between);
        whole(out, s->low + s->low_open, s->high - 1);
        buf_printf(out, " (\".\" [0-9]{1,%d})?", FRACTION_DIGITS);
        between = " | ";
    }
    if (!s->high_open) {
        buf_text(out, between);
        whole(out, s->high, s->high);
        buf_text(out, s->unbounded ? "" : " (\".\" \"0\"{1,4})?");
    }
    buf_text(out, ")");
}

bool schema_number(const struct number_bounds *b, struct buf *out, struct err *err)
{
    int64_t least, most;

    if (!settle(b, false, &least, &most, err))
        return false;
    buf_text(out, "(");
    if (least < 0) {
        struct span s = { most < 0 ? -most : 0, -least, b->has_most && most <= 0 && b->open_most, b->has_least && b->open_least,
                          !b->has_least };
        buf_text(out, "\"-\" ");
        fractions(out, &s);
    }
    if (most > 0 || (most == 0 && !b->open_most)) {
        struct span s = { least > 0 ? least : 0, most, b->has_least && least >= 0 && b->open_least, b->has_most && b->open_most,
                          !b->has_most };
        buf_text(out, least < 0 ? " | " : "");
        fractions(out, &s);
    }
    buf_text(out, ")");
    return true;
}
