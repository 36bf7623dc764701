// rope.c - RoPE's frequencies, and how an extended context changes them.
//
// Linear: all divided by the factor. Llama 3: long wavelengths divided, short ones kept, blended between.
// YaRN (Peng et al., 2023): the same idea in terms of rotations over the original context, and a factor on
// cosine and sine. GGUF files of Llama 3 carry the divisors as a tensor instead. Computed in double, used in
// fp32.
#include <math.h>
#include <string.h>
#include "models/model.h"

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

void rope_frequencies(const struct rope_config *r, const float *divisors, float *frequencies, float *scale)
{
    for (uint32_t i = 0; i < r->n_dims / 2; i++) {
        double f = pow(r->base, -2.0 * i / r->n_dims);
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
    if (r->type == ROPE_YARN)
        *scale = r->attention > 0 ? r->attention : usual_yarn_scale(r);
}

// Reads one number under any of its names. Absent: the value is unchanged.
struct rope_key {
    // GGUF name after the architecture, config.json before and since transformers 5
    const char *gguf, *old, *now;
    double min, max;
};

static bool read_number(const struct model_file *file, const char *arch, const struct rope_key *k,
                        float *value, struct err *err)
{
    char key[128];
    double v = *value;

    snprintf(key, sizeof key, "%s.%s", arch, k->gguf ? k->gguf : "");
    const char *names[3] = { k->gguf ? key : NULL, k->old, k->now };
    for (int i = 0; i < 3; i++) {
        bool gguf = model_file_format(file) == MODEL_GGUF;
        if (names[i] && gguf == (i == 0) && !model_file_f64(file, names[i], k->min, k->max, &v, err))
            return false;
    }
    *value = (float)v;
    return true;
}

static bool read_type(struct rope_config *r, const struct model_file *file, const char *arch, struct err *err)
{
    static const struct {
        const char *name;
        enum rope_scaling_type type;
    } types[] = { { "none", ROPE_PLAIN },
                  { "default", ROPE_PLAIN },
                  { "linear", ROPE_LINEAR },
                  { "llama3", ROPE_LLAMA3 },
                  { "yarn", ROPE_YARN } };
    char key[128];
    struct str name = STR("none");

    snprintf(key, sizeof key, "%s.rope.scaling.type", arch);
    if (!model_file_string(file, key, &name, err) ||
        !model_file_string(file, "rope_scaling.type", &name, err) ||
        !model_file_string(file, "rope_scaling.rope_type", &name, err) ||
        !model_file_string(file, "rope_parameters.rope_type", &name, err))
        return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (str_is(name, types[i].name)) {
            r->type = types[i].type;
            return true;
        }
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: RoPE scaling \"%.*s\"; ingot knows none, linear, llama3 and yarn",
                   model_file_path(file), STR_ARG(name));
}

static bool read_original_context(struct rope_config *r, const struct model_file *file, const char *arch,
                                  struct err *err)
{
    char key[128];
    uint64_t n = r->original_context;

    snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", arch);
    bool ok = model_file_u64(file, key, 1, 1 << 24, &n, err) &&
              model_file_u64(file, "original_max_position_embeddings", 1, 1 << 24, &n, err) &&
              model_file_u64(file, "rope_scaling.original_max_position_embeddings", 1, 1 << 24, &n, err) &&
              model_file_u64(file, "rope_parameters.original_max_position_embeddings", 1, 1 << 24, &n, err);
    r->original_context = (uint32_t)n;
    return ok;
}

bool rope_config_read(struct rope_config *r, const struct model_file *file, const char *arch, struct err *err)
{
    static const struct rope_key base = { "rope.freq_base", "rope_theta", "rope_parameters.rope_theta", 1,
                                          1e12 },
                                 factor = { "rope.scaling.factor", "rope_scaling.factor",
                                            "rope_parameters.factor", 1e-3, 1e6 },
                                 low = { "rope.scaling.low_freq_factor", "rope_scaling.low_freq_factor",
                                         "rope_parameters.low_freq_factor", 1e-6, 1e6 },
                                 high = { "rope.scaling.high_freq_factor", "rope_scaling.high_freq_factor",
                                          "rope_parameters.high_freq_factor", 1e-6, 1e6 },
                                 fast = { "rope.scaling.yarn_beta_fast", "rope_scaling.beta_fast",
                                          "rope_parameters.beta_fast", 1e-6, 1e6 },
                                 slow = { "rope.scaling.yarn_beta_slow", "rope_scaling.beta_slow",
                                          "rope_parameters.beta_slow", 1e-6, 1e6 },
                                 attention = { "rope.scaling.attn_factor", "rope_scaling.attention_factor",
                                               "rope_parameters.attention_factor", 0, 1e6 },
                                 mscale = { NULL, "rope_scaling.mscale", "rope_parameters.mscale", 0, 100 },
                                 mscale_all = { "rope.scaling.yarn_log_multiplier",
                                                "rope_scaling.mscale_all_dim",
                                                "rope_parameters.mscale_all_dim", 0, 100 };

    r->base = 10000;
    r->factor = r->low = 1;
    r->high = 4;
    r->beta_fast = 32;
    r->beta_slow = 1;
    r->truncate = true;
    if (!read_type(r, file, arch, err) || !read_number(file, arch, &base, &r->base, err) ||
        !read_number(file, arch, &factor, &r->factor, err) || !read_number(file, arch, &low, &r->low, err) ||
        !read_number(file, arch, &high, &r->high, err) ||
        !read_number(file, arch, &fast, &r->beta_fast, err) ||
        !read_number(file, arch, &slow, &r->beta_slow, err) ||
        !read_number(file, arch, &attention, &r->attention, err) ||
        !read_number(file, arch, &mscale, &r->mscale, err) ||
        !read_number(file, arch, &mscale_all, &r->mscale_all, err) ||
        !read_original_context(r, file, arch, err) ||
        !model_file_bool(file, "rope_scaling.truncate", &r->truncate, err) ||
        !model_file_bool(file, "rope_parameters.truncate", &r->truncate, err))
        return false;
    if (model_file_format(file) == MODEL_GGUF) {
        r->mscale = r->mscale_all *= 10; // GGUF holds a tenth of it, and has no other
        if (r->attention > 0)            // GGUF's is a factor on the usual one, config.json's replaces it
            r->attention *= usual_yarn_scale(r);
    }
    if (r->type == ROPE_LLAMA3 && !(r->high > r->low))
        return err_set(err, ERR_INPUT, "%s: RoPE high_freq_factor %g is not above low_freq_factor %g",
                       model_file_path(file), (double)r->high, (double)r->low);
    return true;
}
