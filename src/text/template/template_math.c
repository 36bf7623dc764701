// template_math.c - the operators + - * / // % ** on values, with Python's results.
//
// Whole numbers have 64 bits; overflow is an error. A result carries the origin of its operands.
#include <math.h>
#include "text/template/template_node.h"
#include "text/template/template_show.h"

static bool overflow(struct render *r)
{
    return render_fail(r, ERR_LIMIT, "a whole number does not fit 64 bits");
}

static bool zero_division(struct render *r)
{
    return render_fail(r, ERR_INPUT, "division by zero");
}

// base ** exponent, exponent >= 0, by squaring.
static bool power(struct render *r, int64_t base, int64_t exponent, int64_t *result)
{
    *result = 1;
    if (base == 0 || base == 1 || base == -1) {
        *result = exponent == 0 ? 1 : base < 0 && exponent % 2 == 0 ? 1 : base;
        return true;
    }
    for (; exponent > 0; exponent--)
        if (__builtin_mul_overflow(*result, base, result))
            return overflow(r);
    return true;
}

static bool divide_integers(struct render *r, enum operator_kind op, int64_t a, int64_t b, int64_t *result)
{
    if (b == 0)
        return zero_division(r);
    if (b == -1) {
        *result = 0;
        return op == OP_MOD || !__builtin_sub_overflow((int64_t)0, a, result) || overflow(r);
    }
    int64_t quotient = a / b, rest = a % b;
    bool adjust = rest != 0 && (rest < 0) != (b < 0); // Python rounds down, C toward zero
    *result = op == OP_MOD ? rest + (adjust ? b : 0) : quotient - adjust;
    return true;
}

static bool integers(struct render *r, enum operator_kind op, int64_t a, int64_t b, struct value *out)
{
    bool wrong = false;

    *out = value_int(0);
    switch (op) {
    case OP_ADD:
        wrong = __builtin_add_overflow(a, b, &out->i);
        break;
    case OP_SUB:
        wrong = __builtin_sub_overflow(a, b, &out->i);
        break;
    case OP_MUL:
        wrong = __builtin_mul_overflow(a, b, &out->i);
        break;
    case OP_DIV:
        if (b == 0)
            return zero_division(r);
        *out = value_float((double)a / (double)b);
        break;
    case OP_POW:
        if (b >= 0)
            return power(r, a, b, &out->i);
        if (a == 0)
            return zero_division(r);
        *out = value_float(pow((double)a, (double)b));
        break;
    default:
        return divide_integers(r, op, a, b, &out->i);
    }
    return !wrong || overflow(r);
}

static double floor_mod(double a, double b)
{
    double rest = fmod(a, b);

    if (rest != 0 && (rest < 0) != (b < 0))
        return rest + b;
    return rest != 0 ? rest : copysign(0.0, b);
}

// As Python computes it: the quotient without its remainder is nearly whole, so it is rounded to the nearest
// integer.
static double floor_div(double a, double b)
{
    double quotient = (a - floor_mod(a, b)) / b, whole = floor(quotient);

    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static bool floats(struct render *r, enum operator_kind op, double a, double b, struct value *out)
{
    double result = 0;

    if ((op == OP_DIV || op == OP_FLOOR_DIV || op == OP_MOD) && b == 0)
        return zero_division(r);
    if (op == OP_POW && ((a == 0 && b < 0) || (a < 0 && b != floor(b))))
        return render_fail(r, ERR_INPUT, "this power is not a real number");
    switch (op) {
    case OP_ADD:
        result = a + b;
        break;
    case OP_SUB:
        result = a - b;
        break;
    case OP_MUL:
        result = a * b;
        break;
    case OP_DIV:
        result = a / b;
        break;
    case OP_FLOOR_DIV:
        result = floor_div(a, b);
        break;
    case OP_MOD:
        result = floor_mod(a, b);
        break;
    default:
        result = pow(a, b);
        break;
    }
    if (op == OP_POW && isinf(result) && isfinite(a) && isfinite(b))
        return render_fail(r, ERR_LIMIT, "this power is too large");
    *out = value_float(result);
    return true;
}

static bool repeat(struct render *r, struct value v, int64_t times, struct value *out)
{
    struct builder b = builder_start(r);
    size_t n = v.kind == VALUE_STRING ? v.s.n : v.list->n, total,
           bytes = v.kind == VALUE_STRING ? 1 : sizeof v;

    b.safe = v.safe;
    times = times < 0 ? 0 : times;
    if (__builtin_mul_overflow(n, (size_t)times, &total) || total > r->limits->memory_bytes / bytes)
        return render_fail(r, ERR_LIMIT, "a repetition needs more than %zu bytes", r->limits->memory_bytes);
    if (v.kind == VALUE_LIST) {
        if (!value_list_new(r, v.list->kind, total, out))
            return false;
        for (size_t i = 0; i < total; i++)
            out->list->at[i] = v.list->at[i % n];
        return true;
    }
    if (!render_spend(r, (uint64_t)times / 8))
        return false;
    for (int64_t i = 0; i < times && n; i++)
        if (!builder_put_value(&b, v))
            return false;
    *out = builder_value(&b);
    return true;
}

static bool add_sequences(struct render *r, struct value a, struct value b, struct value *out)
{
    struct builder text = builder_start(r);

    text.safe = a.safe || b.safe;
    if (a.kind == VALUE_STRING) {
        if (!builder_put_value(&text, a) || !builder_put_value(&text, b))
            return false;
        *out = builder_value(&text);
        return true;
    }
    if (!value_list_new(r, a.list->kind, a.list->n + b.list->n, out))
        return false;
    if (a.list->n)
        memcpy(out->list->at, a.list->at, a.list->n * sizeof a);
    if (b.list->n)
        memcpy(out->list->at + a.list->n, b.list->at, b.list->n * sizeof b);
    return true;
}

static bool is_repeatable(struct value v)
{
    return v.kind == VALUE_STRING || (v.kind == VALUE_LIST && v.list->kind <= LIST_TUPLE);
}

bool value_binary(struct render *r, uint8_t op, const struct value operands[2], struct value *out)
{
    static const char *const names[] = { "+", "-", "*", "/", "//", "%", "**" };
    struct value a = operands[0], b = operands[1];
    bool user = a.user || b.user, ok;

    if (!value_need_defined(r, a) || (!value_need_defined(r, b) && !(op == OP_MOD && a.kind == VALUE_STRING)))
        return false;
    if (op == OP_MOD && a.kind == VALUE_STRING)
        return format_percent(r, a, b, out);
    if (op == OP_ADD && is_repeatable(a) && a.kind == b.kind &&
        (a.kind == VALUE_STRING || a.list->kind == b.list->kind))
        return add_sequences(r, a, b, out);
    if (op == OP_MUL && is_repeatable(a) && value_is_integer(b))
        return repeat(r, a, value_as_int(b), out);
    if (op == OP_MUL && value_is_integer(a) && is_repeatable(b))
        return repeat(r, b, value_as_int(a), out);
    if (!value_is_number(a) || !value_is_number(b)) {
        if (op == OP_ADD && a.kind == VALUE_STRING)
            return render_fail(r, ERR_INPUT, "can only concatenate str (not \"%s\") to str",
                               value_type_name(b));
        return render_fail(r, ERR_INPUT, "unsupported operand types for %s: '%s' and '%s'", names[op],
                           value_type_name(a), value_type_name(b));
    }
    if (value_is_integer(a) && value_is_integer(b))
        ok = integers(r, op, value_as_int(a), value_as_int(b), out);
    else
        ok = floats(r, op, value_as_float(a), value_as_float(b), out);
    out->user = user;
    return ok;
}
