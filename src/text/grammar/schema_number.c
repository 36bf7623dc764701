// schema_number.c - integers and decimal fractions within bounds, and multiples, digit by digit.
//
// A bound is a decimal with WHOLE digits before the point and FRACTION after it, rounded inwards. A reader of
// the number rounds to a double, which keeps order: so a number within the decimal bounds is within the
// double bounds, and an exclusive bound is the next double. Among numbers of one length, each shares a prefix
// with the lower or the upper bound, or lies between them, where the remaining digits are free. For multiples
// there is a rule per remainder. Without a bound a number has at most WHOLE digits before the point.
#include <math.h>
#include "base/mem.h"
#include "text/grammar/schema_writer.h"

enum { WHOLE = 16, FRACTION = 16, DIGITS = WHOLE + FRACTION, MAX_REMAINDERS = 4096, EXACT_DIGITS = 15 };

struct decimal {
    bool negative, beyond; // beyond: more than WHOLE digits before the point
    char digits[DIGITS + 1];
};

struct bounds {
    bool has_least, has_most;
    struct decimal least, most;
    uint64_t step;   // multiples of step / 10^places; 0: any number
    uint32_t places; // at most, behind the point
};

// ---- decimals

// Adds one to the last of the first n digits. False: overflow.
static bool add_one(char *digits, uint32_t n)
{
    while (n-- > 0) {
        if (digits[n] != '9') {
            digits[n]++;
            return true;
        }
        digits[n] = '0';
    }
    return false;
}

// Cuts off the digits behind `places`. away: rounds away from zero.
static void decimal_round(struct decimal *d, uint32_t places, bool away)
{
    bool cut = false;

    for (uint32_t i = WHOLE + places; i < DIGITS; i++) {
        cut |= d->digits[i] != '0';
        d->digits[i] = '0';
    }
    if (cut && away && !add_one(d->digits, WHOLE + places))
        d->beyond = true;
}

// The shortest text that reads as this number, in digits and the power of ten of the first.
static int shortest(double x, char digits[24])
{
    char text[40];
    double back = 0;
    int power = 0;

    for (int n = 15; n <= 17; n++) {
        snprintf(text, sizeof text, "%.*e", n - 1, x);
        if (str_to_f64(str_from(text), &back) && back == x)
            break;
    }
    size_t n = 0;
    for (const char *at = text; *at && *at != 'e'; at++)
        if (*at >= '0' && *at <= '9' && n < 20)
            digits[n++] = *at;
    digits[n] = 0;
    const char *e = strchr(text, 'e');
    for (const char *at = e ? e + 2 : ""; *at; at++)
        power = 10 * power + (*at - '0');
    return e && e[1] == '-' ? -power : power;
}

// up: a lower bound, rounded towards plus infinity.
static struct decimal decimal_from(double x, uint32_t places, bool up)
{
    struct decimal d = { .negative = x < 0, .beyond = fabs(x) >= 1e16 };
    char digits[24];
    int power = shortest(fabs(x), digits);
    bool cut = false;

    memset(d.digits, '0', DIGITS);
    d.digits[DIGITS] = 0;
    for (int i = 0; digits[i] && !d.beyond; i++) {
        int at = WHOLE - 1 - power + i;
        if (at >= 0 && at < DIGITS)
            d.digits[at] = digits[i];
        else
            cut |= digits[i] != '0';
    }
    bool away = up != d.negative;
    if (cut && away && !add_one(d.digits, DIGITS))
        d.beyond = true;
    decimal_round(&d, places, away);
    return d;
}

static struct decimal decimal_from_integer(int64_t x)
{
    struct decimal d = { .negative = x < 0 };
    uint64_t size = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;

    memset(d.digits, '0', DIGITS);
    d.digits[DIGITS] = 0;
    for (int i = WHOLE - 1; i >= 0; i--, size /= 10)
        d.digits[i] = (char)('0' + size % 10);
    d.beyond = size > 0;
    return d;
}

static int decimal_order(const struct decimal *a, const struct decimal *b)
{
    int order = a->beyond != b->beyond ? (a->beyond ? 1 : -1) : strcmp(a->digits, b->digits);

    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    return a->negative ? -order : order;
}

// ---- the digits of one length

struct digits {
    struct writer *w;
    struct buf *to;
    const char *low, *high;         // [n_whole + FRACTION]
    uint64_t low_value, high_value; // the same with `places`, for multiples
    uint32_t n_whole, places;
    uint64_t step;
    struct rest *rests; // rules of what may follow, for multiples
    uint32_t *n_rests;
};

struct rest {
    uint64_t remainder;
    uint32_t left, rule;
};

// A position: digits written, and whether they are a prefix of a bound.
struct place {
    uint32_t at;
    bool low, high;
    uint64_t value; // for multiples: of the digits so far
};

static bool all_are(const char *digits, uint32_t n, char digit)
{
    for (uint32_t i = 0; i < n; i++)
        if (digits[i] != digit)
            return false;
    return true;
}

static uint64_t power_of_ten(uint32_t n)
{
    uint64_t power = 1;
    while (n-- > 0)
        power *= 10;
    return power;
}

// Whether some digits can still make a multiple within the bounds.
static bool is_reachable(const struct digits *d, const struct place *p)
{
    if (d->step <= 1)
        return true;
    uint64_t power = power_of_ten(d->n_whole + d->places - p->at), first = p->value * power,
             last = first + power - 1;
    first = p->low && d->low_value > first ? d->low_value : first;
    last = p->high && d->high_value < last ? d->high_value : last;
    return (first + d->step - 1) / d->step * d->step <= last;
}

static bool may_end(const struct digits *d, const struct place *p)
{
    uint32_t left = d->n_whole + d->places - p->at;

    if (p->at < d->n_whole || (p->low && !all_are(d->low + p->at, left, '0')))
        return false;
    return d->step <= 1 || p->value * power_of_ten(left) % d->step == 0;
}

static bool write_rest(struct digits *d, struct place p);

static bool write_free(const struct digits *d, const struct place *p)
{
    uint32_t left = d->n_whole + d->places - p->at;

    if (left == 0)
        return buf_text(d->to, " \"\"");
    if (p->at > d->n_whole)
        return buf_printf(d->to, " [0-9]{0,%u}", left);
    if (p->at < d->n_whole)
        buf_printf(d->to, " [0-9]{%u}", d->n_whole - p->at);
    return d->places == 0 || buf_printf(d->to, " (\".\" [0-9]{1,%u})?", d->places);
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

// Multiples: a rule for each reachable remainder, once for all lengths.
static bool write_remainder(struct digits *d, struct place p)
{
    uint32_t left = d->n_whole + d->places - p.at, i = 0;
    struct buf body = { 0 }, *to = d->to;

    p.value %= d->step / common_divisor(d->step, power_of_ten(left));
    while (i < *d->n_rests && (d->rests[i].left != left || d->rests[i].remainder != p.value))
        i++;
    if (i == MAX_REMAINDERS)
        return schema_refuse(
            d->w, "multipleOf has too many remainders to follow; want a rounder number, or closer bounds");
    if (i < *d->n_rests) {
        buf_text(to, " ");
        schema_put_rule(d->w, to, d->rests[i].rule);
        return true;
    }
    struct rest rest = { p.value, left, 0 };
    if (!schema_rule_new(d->w, &rest.rule))
        return false;
    d->rests[(*d->n_rests)++] = rest;
    d->to = &body;
    bool ok = write_rest(d, p);
    d->to = to;
    buf_text(to, " ");
    schema_put_rule(d->w, to, rest.rule);
    return schema_rule_write(d->w, rest.rule, &body) && ok;
}

static bool write_next(struct digits *d, struct place p)
{
    uint32_t left = d->n_whole + d->places - p.at;

    p.low = p.low && !all_are(d->low + p.at, left, '0'); // any digits satisfy this bound
    p.high = p.high && !all_are(d->high + p.at, left, '9');
    if (!p.low && !p.high && d->step <= 1)
        return write_free(d, &p);
    if (!p.low && !p.high)
        return write_remainder(d, p);
    return write_rest(d, p);
}

// Writes the digits from `from` to `to`, after which p differs in its value alone.
static bool write_digits(struct digits *d, struct place p, char from, char to, const char **between)
{
    const uint64_t before = p.value;
    char last = d->step <= 1 ? to : from;

    p.at++;
    for (; from <= to; from = (char)(last + 1), last = d->step <= 1 ? to : from) {
        p.value = d->step <= 1 ? 0 : before * 10 + (uint64_t)(from - '0');
        if (!is_reachable(d, &p))
            continue;
        buf_printf(d->to, "%s%s[%c-%c]", *between, p.at == d->n_whole + 1 ? "\".\" " : "", from, last);
        *between = " | ";
        if (!write_next(d, p))
            return false;
    }
    return true;
}

static bool write_rest(struct digits *d, struct place p)
{
    const char *between = "";
    bool more = p.at < d->n_whole + d->places;
    char low = more && p.low ? d->low[p.at] : '0', high = more && p.high ? d->high[p.at] : '9';
    bool ok = true;

    buf_text(d->to, " (");
    if (may_end(d, &p)) {
        buf_text(d->to, "\"\"");
        between = " | ";
    }
    if (more && p.low && p.high && low == high) {
        ok = write_digits(d, p, low, low, &between);
    } else if (more) {
        struct place at_low = p, at_high = p, inside = p;
        at_low.high = at_high.low = inside.low = inside.high = false;
        ok = !p.low || write_digits(d, at_low, low, low, &between);
        ok = ok && write_digits(d, inside, (char)(low + p.low), (char)(high - p.high), &between);
        ok = ok && (!p.high || write_digits(d, at_high, high, high, &between));
    }
    buf_text(d->to, ")");
    return ok;
}

// ---- numbers without their sign

// Numbers from low to high, which have DIGITS digits.
static bool write_size(struct digits *d, const char *low, const char *high, uint32_t n_whole,
                       const char **between)
{
    char from[DIGITS + 1], to[DIGITS + 1];

    memset(from, '0', DIGITS); // the smallest and largest number with n_whole digits
    memset(to, '0', DIGITS);
    from[DIGITS] = to[DIGITS] = 0;
    if (n_whole > 1)
        from[WHOLE - n_whole] = '1';
    memset(to + WHOLE - n_whole, '9', n_whole + d->places);
    const char *least = strcmp(low, from) > 0 ? low : from, *most = strcmp(high, to) < 0 ? high : to;
    struct place p = { 0, true, true, 0 };
    d->low = least + WHOLE - n_whole;
    d->high = most + WHOLE - n_whole;
    d->n_whole = n_whole;
    if (d->step > 1) {
        str_to_u64((struct str){ d->low, n_whole + d->places }, &d->low_value);
        str_to_u64((struct str){ d->high, n_whole + d->places }, &d->high_value);
    }
    if (strcmp(least, most) > 0 || !is_reachable(d, &p))
        return true;
    buf_text(d->to, *between);
    *between = " |";
    return write_rest(d, p);
}

static bool write_sizes(struct digits *d, const char *low, const char *high, const char **between)
{
    uint32_t most = d->step > 0 ? EXACT_DIGITS - d->places : WHOLE;

    for (uint32_t n = 1; n <= most; n++)
        if (!write_size(d, low, high, n, between))
            return false;
    return true;
}

static bool write_numbers(struct writer *w, const struct bounds *b, struct buf *to)
{
    static const char zeros[] = "00000000000000000000000000000000",
                      nines[] = "99999999999999999999999999999999";
    uint32_t n_rests = 0;
    struct digits d = { .w = w, .to = to, .places = b->places, .step = b->step, .n_rests = &n_rests };
    struct decimal largest = { .negative = false };
    const char *between = "";
    bool ok = true;

    memcpy(largest.digits, nines, sizeof largest.digits);
    decimal_round(&largest, b->places, false);
    d.rests = mem_alloc_array(MAX_REMAINDERS, sizeof *d.rests);
    if (!d.rests)
        return err_memory(w->err, "a schema");
    const char *low = b->has_least && !b->least.beyond ? b->least.digits : largest.digits;
    const char *high = b->has_most && !b->most.beyond ? b->most.digits : largest.digits;
    buf_text(to, "(");
    if (!b->has_least || b->least.negative) {
        struct buf body = { 0 };
        const char *inner = "";
        d.to = &body;
        ok = write_sizes(&d, b->has_most && b->most.negative ? high : zeros, low, &inner);
        if (body.n > 0)
            buf_printf(to, "\"-\" (%s)", body.at);
        between = body.n > 0 ? " | " : "";
        to->failed |= body.failed;
        buf_free(&body);
        d.to = to;
    }
    if (!b->has_most || !b->most.negative)
        ok = ok && write_sizes(&d, b->has_least && !b->least.negative ? low : zeros, high, &between);
    buf_text(to, ")");
    mem_free(d.rests);
    return ok && (between[0] ||
                  schema_nothing(w, "no number lies between minimum and maximum, or none is a multiple"));
}

// ---- keywords

static void keep_bound(struct bounds *b, struct decimal d, bool least)
{
    bool *has = least ? &b->has_least : &b->has_most;
    struct decimal *now = least ? &b->least : &b->most;

    if (!*has || (decimal_order(&d, now) > 0) == least)
        *now = d;
    *has = true;
}

static bool add_bound(struct writer *w, struct bounds *b, const json_t *value, const char *name,
                      bool integers)
{
    bool least = strstr(name, "inimum"), open = name[0] == 'e';
    double x = json_number_value(value);

    if (!json_is_number(value))
        return err_set(w->err, ERR_INPUT, "schema: %s: want a number", name);
    if (open && integers && x == floor(x) && fabs(x) < 9e15)
        x += least ? 1 : -1;
    else if (open)
        x = nextafter(x, least ? INFINITY : -INFINITY);
    else if (json_is_integer(value)) {
        keep_bound(b, decimal_from_integer(json_integer_value(value)), least);
        return true;
    }
    keep_bound(b, decimal_from(x, integers ? 0 : FRACTION, least), least);
    return true;
}

static bool add_bounds(struct writer *w, struct bounds *b, const json_t *schema, bool integers)
{
    static const char *const names[] = { "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum" };

    for (int i = 0; i < 4; i++) {
        json_t *value = json_object_get(schema, names[i]),
               *open = i < 2 ? json_object_get(schema, names[i + 2]) : NULL;
        if (!value || (i >= 2 && json_is_boolean(value)))
            continue;
        // true: the form of draft 4
        if (!add_bound(w, b, value, json_is_true(open) ? names[i + 2] : names[i], integers))
            return false;
    }
    const char *format = json_string_value(json_object_get(schema, "format"));
    if (format && !strcmp(format, "int32")) {
        keep_bound(b, decimal_from_integer(INT32_MIN), true);
        keep_bound(b, decimal_from_integer(INT32_MAX), false);
    }
    return true;
}

// value = *step / 10^*places, in lowest terms of ten.
static bool read_step(struct writer *w, const json_t *value, uint64_t *step, uint32_t *places)
{
    double x = json_number_value(value);
    char digits[24];

    if (!json_is_number(value) || !(x > 0))
        return err_set(w->err, ERR_INPUT, "schema: multipleOf: want a number above 0");
    int power = shortest(x, digits), n = (int)strlen(digits);
    while (n > 1 && digits[n - 1] == '0')
        digits[--n] = 0;
    int behind = n - 1 - power;
    if (!str_to_u64(str_from(digits), step) || behind > 9 || power > 9)
        return schema_refuse(w, "multipleOf is supported from 0.000000001 to 10 digits");
    for (; behind < 0; behind++)
        *step *= 10;
    *places = (uint32_t)behind;
    return *step < 10000000000 || schema_refuse(w, "multipleOf is supported with at most 10 digits");
}

static bool add_step(struct writer *w, struct bounds *b, const json_t *value, bool integers)
{
    uint64_t step, power;
    uint32_t places;

    if (!read_step(w, value, &step, &places))
        return false;
    power = power_of_ten(places);
    if (integers) { // whole numbers among the multiples
        step /= common_divisor(step, power);
        places = 0;
    }
    if (b->step && (b->places != places || (b->step % step != 0 && step % b->step != 0)))
        return schema_refuse(w, "two different multipleOf at once are not supported");
    b->step = b->step > step ? b->step : step;
    b->places = places;
    return true;
}

bool schema_number(struct writer *w, const struct conjunction *c, bool integers, struct buf *to)
{
    struct bounds b = { .places = integers ? 0 : FRACTION };

    for (uint32_t i = 0; i < c->n; i++) {
        const json_t *schema = c->at[i].schema, *step = json_object_get(schema, "multipleOf");
        if (c->at[i].flags & PART_NOT) {
            if (schema_lists_type(schema, INTEGERS | REALS))
                return schema_refuse(w, "'not' with numbers is not supported");
            continue;
        }
        if (!add_bounds(w, &b, schema, integers) || (step && !add_step(w, &b, step, integers)))
            return false;
    }
    decimal_round(&b.least, b.places, !b.least.negative);
    decimal_round(&b.most, b.places, b.most.negative);
    bool below = b.has_least && b.least.beyond && !b.least.negative,
         above = b.has_most && b.most.beyond && b.most.negative;
    if (below || above || (b.has_least && b.has_most && decimal_order(&b.least, &b.most) > 0))
        return schema_nothing(w, "no number lies between minimum and maximum");
    if (!b.has_least && !b.has_most && !b.step)
        return buf_text(to, integers ? "integer" : "number");
    return write_numbers(w, &b, to);
}

bool schema_number_fits(struct writer *w, const json_t *schema, const json_t *value, bool *fits)
{
    const json_t *step = json_object_get(schema, "multipleOf");
    struct bounds b = { .places = FRACTION };
    double x = json_number_value(value);
    uint64_t unit;
    uint32_t places;

    if (!add_bounds(w, &b, schema, false))
        return false;
    struct decimal up = decimal_from(x, FRACTION, true), down = decimal_from(x, FRACTION, false);
    *fits = !(b.has_least && decimal_order(&down, &b.least) < 0) &&
            !(b.has_most && decimal_order(&up, &b.most) > 0);
    if (!step)
        return true;
    if (!read_step(w, step, &unit, &places))
        return false;
    double scaled = x * (double)power_of_ten(places);
    *fits = *fits && fabs(scaled) < 1e15 && fabs(scaled - nearbyint(scaled)) < 1e-6 &&
            (uint64_t)fabs(nearbyint(scaled)) % unit == 0;
    return true;
}
