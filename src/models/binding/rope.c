// rope.c - RoPE's frequencies, and how an extended context changes them.
//
// Linear: all divided by the factor. Llama 3: long wavelengths divided, short ones kept, blended between.
// YaRN (Peng et al., 2023): the same idea in terms of rotations over the original context, and a factor on
// cosine and sine. GGUF files of Llama 3 carry the divisors as a tensor instead. Computed in double, used in
// fp32.
#include <math.h>
#include "models/binding/rope.h"

static const double two_pi = 6.283185307179586;

static double llama3_frequency(const struct rope_config *r, double f)
{
    double wavelength = two_pi / f, original = r->original_context;

    if (wavelength < original / r->high)
        return f;
    if (wavelength > original / r->low)
        return f / r->factor;
    double smooth = (original / wavelength - r->low) / (r->high - r->low);
    return (1 - smooth) * f / r->factor + smooth * f;
}

// The pair that makes n rotations over the original context.
static double yarn_pair(const struct rope_config *r, double n)
{
    return r->n_dims * log(r->original_context / (n * two_pi)) / (2 * log(r->base));
}

static double yarn_frequency(const struct rope_config *r, double f, uint32_t i)
{
    double low = yarn_pair(r, r->beta_fast), high = yarn_pair(r, r->beta_slow);

    low = r->truncate ? floor(low) : low;
    high = r->truncate ? ceil(high) : high;
    low = low < 0 ? 0 : low;
    high = high > r->n_dims - 1 ? r->n_dims - 1 : high;
    double ramp = (i - low) / (high - low > 0.001 ? high - low : 0.001);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return f / r->factor * ramp + f * (1 - ramp);
}

float rope_yarn_factor(const struct rope_config *r, float m)
{
    return r->type == ROPE_YARN && r->factor > 1 ? (float)(0.1 * m * log(r->factor) + 1) : 1;
}

static float usual_yarn_scale(const struct rope_config *r)
{
    if (r->mscale > 0 && r->mscale_all > 0)
        return rope_yarn_factor(r, r->mscale) / rope_yarn_factor(r, r->mscale_all);
    return rope_yarn_factor(r, 1);
}

static float usual_scale(const struct rope_config *r)
{
    if (r->type == ROPE_LONG)
        return r->factor > 1 ? (float)sqrt(1 + log(r->factor) / log(r->original_context)) : 1;
    return usual_yarn_scale(r);
}

void rope_frequencies(const struct rope_config *r, const float *divisors, float *frequencies, float *scale)
{
    for (uint32_t i = 0; i < r->n_dims / 2; i++) {
        bool still = r->type == ROPE_NONE || (r->n_turning && i >= r->n_turning);
        double f = still ? 0 : pow(r->base, -2.0 * i / r->n_dims);
        if (divisors)
            f /= divisors[i];
        else if (r->type == ROPE_LINEAR)
            f /= r->factor;
        else if (r->type == ROPE_LLAMA3)
            f = llama3_frequency(r, f);
        else if (r->type == ROPE_YARN)
            f = yarn_frequency(r, f, i);
        frequencies[i] = (float)f;
    }
    *scale = 1;
    if (r->type == ROPE_YARN || r->type == ROPE_LONG)
        *scale = r->attention > 0 ? r->attention : usual_scale(r);
}

// Reads one number under any of its names. Absent: the value is unchanged.
struct rope_key {
    // GGUF name after the architecture; in config.json before transformers 5, and since, in rope_parameters
    const char *gguf, *old, *now;
    double min, max;
};

static bool is_gguf(const struct rope_source *from)
{
    return model_file_format(from->file) == MODEL_GGUF;
}

// The name in rope_parameters, or in that object's part. part: room.
static const char *part_key(const struct rope_source *from, bool of_part, const char *name, char key[128])
{
    snprintf(key, 128, "rope_parameters.%s%s%s", of_part ? from->part : "", of_part ? "." : "", name);
    return key;
}

static bool read_number(const struct rope_source *from, const struct rope_key *k, float *value,
                        struct err *err)
{
    char key[128];
    double v = *value;
    bool ok = true;

    if (is_gguf(from)) {
        snprintf(key, sizeof key, "%s.%s", from->arch, k->gguf ? k->gguf : "");
        ok = !k->gguf || model_file_f64(from->file, key, k->min, k->max, &v, err);
    } else {
        ok = model_file_f64(from->file, k->old, k->min, k->max, &v, err);
        for (int of_part = 0; ok && of_part <= (from->part != NULL); of_part++)
            ok = model_file_f64(from->file, part_key(from, of_part, k->now, key), k->min, k->max, &v, err);
    }
    *value = (float)v;
    return ok;
}

static bool read_type(struct rope_config *r, const struct rope_source *from, struct err *err)
{
    static const struct {
        const char *name;
        enum rope_scaling_type type;
    } types[] = {
        { "none", ROPE_PLAIN },         { "default", ROPE_PLAIN }, { "linear", ROPE_LINEAR },
        { "llama3", ROPE_LLAMA3 },      { "yarn", ROPE_YARN },     { "longrope", ROPE_LONG },
        { "proportional", ROPE_PLAIN }, { "su", ROPE_LONG },
    };
    char key[128];
    struct str name = STR("none");

    snprintf(key, sizeof key, "%s.rope.scaling.type", from->arch);
    if (!model_file_string(from->file, key, &name, err) ||
        !model_file_string(from->file, "rope_scaling.type", &name, err) ||
        !model_file_string(from->file, "rope_scaling.rope_type", &name, err) ||
        !model_file_string(from->file, "rope_parameters.rope_type", &name, err) ||
        (from->part && !model_file_string(from->file, part_key(from, true, "rope_type", key), &name, err)))
        return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (str_is(name, types[i].name) && (from->part || !str_is(name, "proportional"))) {
            r->type = types[i].type;
            return true;
        }
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: RoPE scaling \"%.*s\"; ingot knows none, linear, llama3, yarn and longrope",
                   model_file_path(from->file), STR_ARG(name));
}

// "proportional": the frequencies are those of the whole head, and the last ones are 0.
static bool read_turning(struct rope_config *r, const struct rope_source *from, struct err *err)
{
    static const struct rope_key part = { NULL, "partial_rotary_factor", "partial_rotary_factor", 0, 1 };
    char key[128];
    struct str name = { 0 };
    float turning = 1;

    if (!from->part)
        return true;
    if (!model_file_string(from->file, part_key(from, true, "rope_type", key), &name, err))
        return false;
    if (!str_is(name, "proportional"))
        return true;
    if (!read_number(from, &part, &turning, err))
        return false;
    r->n_turning = (uint32_t)((float)r->n_dims * turning / 2);
    return r->n_turning > 0 || err_set(err, ERR_INPUT, "%s: RoPE turns %g of %u numbers of a head; want some",
                                       model_file_path(from->file), (double)turning, r->n_dims);
}

static bool read_original_context(struct rope_config *r, const struct rope_source *from, struct err *err)
{
    static const struct rope_key own = { "rope.scaling.original_context_length",
                                         "original_max_position_embeddings",
                                         "original_max_position_embeddings", 1, 1 << 24 },
                                 scaling = { NULL, "rope_scaling.original_max_position_embeddings",
                                             "original_max_position_embeddings", 1, 1 << 24 };
    float n = (float)r->original_context; // below 2^24: exact

    if (!read_number(from, &own, &n, err) || !read_number(from, &scaling, &n, err))
        return false;
    r->original_context = (uint32_t)n;
    return true;
}

bool rope_config_read(struct rope_config *r, const struct rope_source *from, struct err *err)
{
    static const struct rope_key base = { "rope.freq_base", "rope_theta", "rope_theta", 1, 1e12 },
                                 factor = { "rope.scaling.factor", "rope_scaling.factor", "factor", 1e-3,
                                            1e6 },
                                 low = { "rope.scaling.low_freq_factor", "rope_scaling.low_freq_factor",
                                         "low_freq_factor", 1e-6, 1e6 },
                                 high = { "rope.scaling.high_freq_factor", "rope_scaling.high_freq_factor",
                                          "high_freq_factor", 1e-6, 1e6 },
                                 fast = { "rope.scaling.yarn_beta_fast", "rope_scaling.beta_fast",
                                          "beta_fast", 1e-6, 1e6 },
                                 slow = { "rope.scaling.yarn_beta_slow", "rope_scaling.beta_slow",
                                          "beta_slow", 1e-6, 1e6 },
                                 attention = { "rope.scaling.attn_factor", "rope_scaling.attention_factor",
                                               "attention_factor", 0, 1e6 },
                                 mscale = { NULL, "rope_scaling.mscale", "mscale", 0, 100 },
                                 mscale_all = { "rope.scaling.yarn_log_multiplier",
                                                "rope_scaling.mscale_all_dim", "mscale_all_dim", 0, 100 };

    r->base = r->base > 0 ? r->base : 10000; // an architecture may have its own
    r->factor = r->low = 1;
    r->high = 4;
    r->beta_fast = 32;
    r->beta_slow = 1;
    r->truncate = true;
    if (!read_type(r, from, err) || !read_turning(r, from, err) || !read_number(from, &base, &r->base, err) ||
        !read_number(from, &factor, &r->factor, err) || !read_number(from, &low, &r->low, err) ||
        !read_number(from, &high, &r->high, err) || !read_number(from, &fast, &r->beta_fast, err) ||
        !read_number(from, &slow, &r->beta_slow, err) || !read_number(from, &attention, &r->attention, err) ||
        !read_number(from, &mscale, &r->mscale, err) ||
        !read_number(from, &mscale_all, &r->mscale_all, err) || !read_original_context(r, from, err) ||
        !model_file_bool(from->file, "rope_scaling.truncate", &r->truncate, err) ||
        !model_file_bool(from->file, "rope_parameters.truncate", &r->truncate, err))
        return false;
    if (is_gguf(from)) {
        r->mscale = r->mscale_all *= 10; // GGUF holds a tenth of it, and has no other
        if (r->attention > 0)            // GGUF's is a factor on the usual one, config.json's replaces it
            r->attention *= usual_yarn_scale(r);
    }
    if (r->type == ROPE_LLAMA3 && !(r->high > r->low))
        return err_set(err, ERR_INPUT, "%s: RoPE high_freq_factor %g is not above low_freq_factor %g",
                       model_file_path(from->file), (double)r->high, (double)r->low);
    return true;
}
