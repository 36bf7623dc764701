// image_processor.c - a model's settings for pictures, from the files beside it; see image.h.
//
// A safetensors folder has them twice: in preprocessor_config.json, and since transformers 5 in
// processor_config.json under "image_processor". An mmproj file omits what llama.cpp fixes: the filter and,
// in older files, the longest edge, which is then four tiles.
#include "format/model_file.h"
#include "image/image.h"

struct processor_reading {
    struct image_processor *p;
    const struct model_file *file;
    const char *prefix;
    struct err *err;
    char key[96];
};

static const char *key(struct processor_reading *r, const char *name)
{
    snprintf(r->key, sizeof r->key, "%s%s", r->prefix, name);
    return r->key;
}

static bool number(struct processor_reading *r, const char *name, uint64_t max, uint32_t *value)
{
    uint64_t u = *value;

    if (!model_file_u64(r->file, key(r, name), 1, max, &u, r->err))
        return false;
    *value = (uint32_t)u;
    return true;
}

static bool refuse(struct processor_reading *r, const char *name, const char *found, const char *expected)
{
    return err_set(r->err, ERR_UNSUPPORTED, "%s: %s is %s; expected %s", model_file_path(r->file),
                   key(r, name), found, expected);
}

static bool must_be_true(struct processor_reading *r, const char *name)
{
    bool value = true;

    return model_file_bool(r->file, key(r, name), &value, r->err) &&
           (value || refuse(r, name, "false", "true"));
}

// One number for all channels, or three.
static bool channels(struct processor_reading *r, const char *name, float min, float values[3])
{
    const struct meta *m = model_file_meta(r->file, key(r, name));
    double all = values[0];

    if (!m || m->type != META_ARRAY) {
        if (!model_file_f64(r->file, r->key, min, 1e6, &all, r->err))
            return false;
        values[0] = values[1] = values[2] = (float)all;
        return true;
    }
    bool ok = m->n == 3 && (m->element == META_FLOAT || m->element == META_UINT);
    for (uint32_t c = 0; ok && c < 3; c++) {
        struct meta e = meta_at(m, c);
        double v = e.type == META_FLOAT ? e.f : (double)e.u;
        ok = v >= min && v <= 1e6;
        values[c] = (float)v;
    }
    return ok || refuse(r, name, "an array of something else", "3 numbers, one a channel");
}

// The codes of Pillow's filters.
static bool resample(struct processor_reading *r, uint32_t otherwise)
{
    static const enum image_filter filters[] = {
        [1] = IMAGE_LANCZOS, [2] = IMAGE_BILINEAR, [3] = IMAGE_BICUBIC
    };
    uint32_t number_of = otherwise;

    if (!number(r, "resample", 3, &number_of))
        return false;
    r->p->filter = filters[number_of];
    return true;
}

// N for a tower that joins scale x scale patches.
static bool places(struct processor_reading *r, uint32_t patch, uint32_t scale)
{
    uint32_t side = r->p->tile / patch;

    if (side == 0 || side % scale)
        return err_set(
            r->err, ERR_INPUT,
            "%s: a tile of %u pixels in patches of %u is %u patches wide; expected a multiple of %u",
            model_file_path(r->file), r->p->tile, patch, side, scale);
    r->p->patch = patch;
    r->p->scale = scale;
    r->p->tokens_a_tile = side / scale * (side / scale);
    return true;
}

static bool bounds(struct processor_reading *r)
{
    const struct image_processor *p = r->p;

    if (image_most_tiles(p) > IMAGE_MAX_TILES || p->min_tiles > p->max_tiles)
        return err_set(r->err, ERR_UNSUPPORTED, "%s: a picture of up to %u tiles; expected at most %d tiles",
                       model_file_path(r->file), image_most_tiles(p), IMAGE_MAX_TILES);
    return p->longest_edge % 2 == 0 ||
           err_set(r->err, ERR_UNSUPPORTED, "%s: longest edge %u; expected an even number",
                   model_file_path(r->file), p->longest_edge);
}

// "Fast" and "Pil" variants give the same result.
static bool read_kind(struct processor_reading *r)
{
    static const struct {
        const char *name;
        enum image_tiling tiling;
    } known[] = { { "Idefics3ImageProcessor", IMAGE_BY_EDGE },
                  { "SmolVLMImageProcessor", IMAGE_BY_EDGE },
                  { "GotOcr2ImageProcessor", IMAGE_BY_ASPECT } };
    struct str kind = str_from(known[0].name);

    if (!model_file_string(r->file, key(r, "image_processor_type"), &kind, r->err))
        return false;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (str_starts(kind, str_from(known[i].name))) {
            r->p->tiling = known[i].tiling;
            return true;
        }
    return err_set(r->err, ERR_UNSUPPORTED,
                   "%s: %s is '%.*s'; expected Idefics3ImageProcessor, SmolVLMImageProcessor or "
                   "GotOcr2ImageProcessor",
                   model_file_path(r->file), r->key, STR_ARG(kind));
}

static bool sizes_by_edge(struct processor_reading *r)
{
    struct image_processor *p = r->p;

    p->longest_edge = 4 * 364;
    p->tile = 364;
    return model_file_bool(r->file, key(r, "do_image_splitting"), &p->split, r->err) && resample(r, 1) &&
           number(r, "size.longest_edge", IMAGE_MAX_EDGE, &p->longest_edge) &&
           number(r, "max_image_size.longest_edge", IMAGE_MAX_TILE, &p->tile);
}

// InternVL's processor cuts every picture, whatever crop_to_patches says.
static bool sizes_by_aspect(struct processor_reading *r)
{
    struct image_processor *p = r->p;
    uint32_t width = 384;

    p->tile = 384;
    p->min_tiles = 1;
    p->max_tiles = 12;
    if (!resample(r, 3) || !number(r, "size.height", IMAGE_MAX_TILE, &p->tile) ||
        !number(r, "size.width", IMAGE_MAX_TILE, &width) ||
        !number(r, "min_patches", IMAGE_MAX_TILES, &p->min_tiles) ||
        !number(r, "max_patches", IMAGE_MAX_TILES, &p->max_tiles))
        return false;
    return width == p->tile ||
           err_set(r->err, ERR_UNSUPPORTED, "%s: tiles of %u x %u pixels; expected squares",
                   model_file_path(r->file), width, p->tile);
}

static bool read_preparation(struct processor_reading *r)
{
    struct image_processor *p = r->p;

    return read_kind(r) && must_be_true(r, "do_resize") && must_be_true(r, "do_rescale") &&
           must_be_true(r, "do_normalize") &&
           (p->tiling == IMAGE_BY_ASPECT ? sizes_by_aspect : sizes_by_edge)(r) &&
           model_file_f64(r->file, key(r, "rescale_factor"), 1e-9, 1, &p->rescale, r->err) &&
           channels(r, "image_mean", 0, p->mean) && channels(r, "image_std", 1e-6F, p->std);
}

// One number, or two that are equal.
static bool square(struct processor_reading *r, const char *name, uint32_t *value)
{
    const struct meta *m = model_file_meta(r->file, key(r, name));

    if (!m || m->type != META_ARRAY)
        return number(r, name, IMAGE_MAX_TILE, value);
    if (m->n != 2 || m->element != META_UINT || meta_at(m, 0).u != meta_at(m, 1).u || meta_at(m, 0).u < 1 ||
        meta_at(m, 0).u > IMAGE_MAX_TILE)
        return refuse(r, name, "an array of something else", "two equal numbers");
    *value = (uint32_t)meta_at(m, 0).u;
    return true;
}

// How many patches become one row, in both directions: Idefics3's scale_factor, or InternVL's
// downsample_ratio.
static bool read_scale(struct processor_reading *r, uint32_t *scale)
{
    double ratio = 0.5;

    if (r->p->tiling == IMAGE_BY_EDGE)
        return number(r, "scale_factor", IMAGE_MAX_TILE, scale);
    if (!model_file_f64(r->file, key(r, "downsample_ratio"), 1e-3, 1, &ratio, r->err))
        return false;
    *scale = (uint32_t)(1 / ratio);
    return true;
}

// Checks that the tower's input size is the prepared size.
static bool read_vision(struct processor_reading *r)
{
    bool by_edge = r->p->tiling == IMAGE_BY_EDGE;
    uint32_t image = by_edge ? 224 : 448, patch = by_edge ? 32 : 14, scale = 2, stated = 0;
    const char *stated_key = by_edge ? "processor_config.image_seq_len" : "image_seq_length";

    r->prefix = "";
    if (!square(r, "vision_config.image_size", &image) || !square(r, "vision_config.patch_size", &patch) ||
        !read_scale(r, &scale) || !number(r, stated_key, 1 << 20, &stated))
        return false;
    if (image != r->p->tile)
        return err_set(r->err, ERR_INPUT,
                       "%s: pictures are prepared in tiles of %u pixels and vision_config.image_size is %u",
                       model_file_path(r->file), r->p->tile, image);
    if (!places(r, patch, scale))
        return false;
    if (stated && stated != r->p->tokens_a_tile)
        return err_set(r->err, ERR_INPUT,
                       "%s: %s is %u; expected %u by the sizes of tiles, patches and squares",
                       model_file_path(r->file), stated_key, stated, r->p->tokens_a_tile);
    return true;
}

static bool has_prefix(const struct model_file *file, const char *prefix)
{
    for (size_t i = 0; i < model_file_n_metas(file); i++)
        if (str_starts(model_file_meta_at(file, i)->key, str_from(prefix)))
            return true;
    return false;
}

static bool read_folder(struct processor_reading *r)
{
    r->prefix = "processor_config.image_processor.";
    if (!has_prefix(r->file, r->prefix))
        r->prefix = "preprocessor_config.";
    if (!has_prefix(r->file, r->prefix))
        return err_set(r->err, ERR_NOT_FOUND,
                       "%s: no preprocessor_config.json in this folder; a model that sees needs one",
                       model_file_path(r->file));
    return read_preparation(r) && read_vision(r);
}

static bool read_mmproj(struct processor_reading *r)
{
    struct image_processor *p = r->p;
    struct str kind = { 0 };
    uint32_t patch = 0, scale = 0;

    r->prefix = "clip.";
    if (!model_file_string(r->file, key(r, "projector_type"), &kind, r->err))
        return false;
    bool by_aspect = str_is(kind, "internvl");
    if (!by_aspect && !str_is(kind, "idefics3"))
        return err_set(r->err, ERR_UNSUPPORTED,
                       "%s: clip.projector_type is '%.*s'; expected idefics3 or internvl",
                       model_file_path(r->file), STR_ARG(kind));
    if (by_aspect) {
        p->tiling = IMAGE_BY_ASPECT;
        p->filter = IMAGE_BICUBIC;
        p->min_tiles = 1;
        p->max_tiles = 12;
    }
    r->prefix = "clip.vision.";
    if (!number(r, "image_size", IMAGE_MAX_TILE, &p->tile) ||
        !number(r, "patch_size", IMAGE_MAX_TILE, &patch) ||
        !number(r, "projector.scale_factor", IMAGE_MAX_TILE, &scale))
        return false;
    if (!p->tile || !patch || !scale)
        return err_set(r->err, ERR_INPUT,
                       "%s: clip.vision.image_size, patch_size or projector.scale_factor is missing",
                       model_file_path(r->file));
    p->longest_edge = by_aspect ? 0 : 4 * p->tile;
    return (by_aspect || number(r, "preproc_image_size", IMAGE_MAX_EDGE, &p->longest_edge)) &&
           number(r, "preproc_min_tiles", IMAGE_MAX_TILES, &p->min_tiles) &&
           number(r, "preproc_max_tiles", IMAGE_MAX_TILES, &p->max_tiles) &&
           channels(r, "image_mean", 0, p->mean) && channels(r, "image_std", 1e-6F, p->std) &&
           places(r, patch, scale);
}

bool image_processor_read(struct image_processor *p, const struct model_file *file, struct err *err)
{
    struct processor_reading r = { .p = p, .file = file, .err = err };

    *p = (struct image_processor){ .split = true,
                                   .filter = IMAGE_LANCZOS,
                                   .rescale = 1 / 255.0,
                                   .mean = { 0.5F, 0.5F, 0.5F },
                                   .std = { 0.5F, 0.5F, 0.5F } };
    return (model_file_format(file) == MODEL_GGUF ? read_mmproj(&r) : read_folder(&r)) && bounds(&r);
}
