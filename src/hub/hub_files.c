// hub_files.c - see hub_files.h.
#include "hub/hub_files.h"
#include <ctype.h>
#include <strings.h>

enum { MAX_PARTS = 999 };

// ---- names

struct split_name {
    struct str stem, ending; // "dir/name" and ".gguf" of "dir/name-00001-of-00003.gguf"
    uint64_t no, count;      // count 0: not split
};

static struct split_name split_read(struct str path, struct str ending)
{
    struct split_name s = { str_from_to(path, 0, path.n - ending.n), ending, 0, 0 };
    struct str stem = s.stem;

    if (stem.n < 15 || !str_eq(str_from_to(stem, stem.n - 9, stem.n - 5), STR("-of-")) ||
        stem.at[stem.n - 15] != '-' || !str_to_u64(str_from_to(stem, stem.n - 14, stem.n - 9), &s.no) ||
        !str_to_u64(str_from_to(stem, stem.n - 5, stem.n), &s.count) || s.no == 0 || s.no > s.count ||
        s.count > MAX_PARTS)
        return (struct split_name){ stem, ending, 0, 0 };
    s.stem.n -= 15;
    return s;
}

static int compare_files(const void *a, const void *b)
{
    return str_order(((const struct hub_file *)a)->path, ((const struct hub_file *)b)->path);
}

void hub_files_sort(struct hub_files *files)
{
    size_t n = 0;

    if (files->n)
        qsort(files->at, files->n, sizeof *files->at, compare_files);
    for (size_t i = 0; i < files->n; i++) {
        if (n == 0 || !str_eq(files->at[n - 1].path, files->at[i].path))
            files->at[n++] = files->at[i];
    }
    files->n = n;
}

static struct str base_name(struct str path)
{
    size_t slash = str_find_last(path, '/');
    return slash != SIZE_MAX ? str_from_to(path, slash + 1, path.n) : path;
}

static bool starts_fold(struct str s, const char *prefix)
{
    size_t n = strlen(prefix);
    return s.n >= n && strncasecmp(s.at, prefix, n) == 0;
}

static bool eq_fold(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || strncasecmp(a.at, b.at, a.n) == 0);
}

static bool quant_begins(struct str s)
{
    static const char *const whole[] = { "BF16", "F16", "F32", "FP16", "FP32", "MXFP4" }, *const counted[] = {
        "Q", "IQ", "TQ"
    };

    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        if (starts_fold(s, whole[i]))
            return true;
    }
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++) {
        size_t n = strlen(counted[i]);
        if (starts_fold(s, counted[i]) && s.n > n && isdigit((unsigned char)s.at[n]))
            return true;
    }
    return false;
}

// The last word of a stem that names a format, with "UD-" if that stands before it.
static struct str quant_of(struct str stem)
{
    struct str name = base_name(stem);

    for (size_t i = name.n; i-- > 0;) {
        struct str rest = str_from_to(name, i, name.n);
        if ((i > 0 && !strchr("-._", name.at[i - 1])) || !quant_begins(rest))
            continue;
        size_t n = 0;
        while (n < rest.n && rest.at[n] != '-' && rest.at[n] != '.')
            n++;
        bool dynamic = i >= 3 && starts_fold(str_from_to(name, i - 3, name.n), "UD-") &&
                       (i == 3 || strchr("-._", name.at[i - 4]));
        return str_from_to(name, dynamic ? i - 3 : i, i + n);
    }
    return (struct str){ "", 0 };
}

// ---- models

static void model_add(struct hub_models *models, const struct hub_files *files, struct hub_model *m)
{
    for (size_t i = 0; i < m->n_files; i++)
        m->bytes += files->at[m->files[i]].bytes;
    models->at[models->n++] = *m;
}

static struct str upper(struct str s, struct arena *arena)
{
    struct str copy = arena_str(arena, s);

    for (size_t i = 0; copy.at && i < copy.n; i++)
        ((char *)(uintptr_t)copy.at)[i] = (char)toupper((unsigned char)copy.at[i]);
    return copy;
}

// By binary search: HUB_NO_FILE when no file has this path.
static uint32_t file_find(const struct hub_files *files, struct str path)
{
    size_t from = 0, to = files->n;

    while (from < to) {
        size_t mid = from + (to - from) / 2;
        int order = str_order(files->at[mid].path, path);
        if (order == 0)
            return (uint32_t)mid;
        from = order < 0 ? mid + 1 : from;
        to = order < 0 ? to : mid;
    }
    return HUB_NO_FILE;
}

static uint32_t part_find(const struct hub_files *files, const struct split_name *first, uint64_t no)
{
    char path[1280];
    int n = snprintf(path, sizeof path, "%.*s-%05llu-of-%05llu%.*s", (int)first->stem.n, first->stem.at,
                     (unsigned long long)no, (unsigned long long)first->count, STR_ARG(first->ending));
    return n > 0 && (size_t)n < sizeof path ? file_find(files, (struct str){ path, (size_t)n }) : HUB_NO_FILE;
}

// The file and, of a split one, the parts after it up to the first that is missing: the work is bounded by
// the files there are.
static bool parts_add(const struct hub_files *files, uint32_t at, struct str ending, struct hub_model *m,
                      struct arena *arena)
{
    struct split_name split = split_read(files->at[at].path, ending);
    uint64_t n = 1;

    while (split.no == 1 && n < split.count && part_find(files, &split, n + 1) != HUB_NO_FILE)
        n++;
    m->whole = n >= split.count && split.no <= 1;
    m->files = arena_alloc_array(arena, n, sizeof *m->files);
    for (uint64_t i = 0; m->files && i < n; i++)
        m->files[m->n_files++] = i ? part_find(files, &split, i + 1) : at;
    return m->files != NULL;
}

// Vision projectors and importance matrices are GGUF files too, but no models.
static bool is_model_name(struct str path)
{
    struct str name = base_name(path);

    for (size_t i = 0; i < name.n; i++) {
        struct str rest = str_from_to(name, i, name.n);
        if (starts_fold(rest, "mmproj") || starts_fold(rest, "imatrix"))
            return false;
    }
    return true;
}

static bool gguf_add(const struct hub_files *files, uint32_t at, struct hub_models *models,
                     struct arena *arena)
{
    struct split_name split = split_read(files->at[at].path, STR(".gguf"));
    struct hub_model m = { .quant = upper(quant_of(split.stem), arena) };

    if (split.no > 1)
        return true;
    if (!m.quant.at || !parts_add(files, at, STR(".gguf"), &m, arena))
        return false;
    model_add(models, files, &m);
    return true;
}

static bool in_root(struct str path, const char *ending)
{
    return str_ends(path, str_from(ending)) && !memchr(path.at, '/', path.n);
}

// The weights of a folder as the reader of safetensors takes them: the shards of an index, else
// model.safetensors, else the only file. HUB_NO_FILE where there are none.
static uint32_t weights_find(const struct hub_files *files)
{
    bool indexed = file_find(files, STR("model.safetensors.index.json")) != HUB_NO_FILE;
    uint32_t only = HUB_NO_FILE, n = 0;

    for (uint32_t i = 0; i < files->n; i++) {
        if (!in_root(files->at[i].path, ".safetensors"))
            continue;
        struct split_name split = split_read(files->at[i].path, STR(".safetensors"));
        if (indexed && split.count && str_is(split.stem, "model"))
            return i;
        only = i;
        n++;
    }
    uint32_t alone = file_find(files, STR("model.safetensors"));
    return alone != HUB_NO_FILE ? alone : n == 1 && !indexed ? only : HUB_NO_FILE;
}

// What the reader of a safetensors folder takes beside the weights: an embedding model has folders of its
// own.
static bool is_beside(struct str path)
{
    static const char *const others[] = { "chat_template.jinja", "1_Pooling/config.json",
                                          "2_Dense/config.json", "2_Dense/model.safetensors",
                                          "3_Dense/config.json", "3_Dense/model.safetensors" };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (str_is(path, others[i]))
            return true;
    return in_root(path, ".json");
}

static bool folder_add(const struct hub_files *files, struct hub_models *models, struct arena *arena)
{
    struct hub_model m = { .quant = STR("safetensors"), .folder = true }, shards = { 0 };
    uint32_t weights = weights_find(files);

    if (weights == HUB_NO_FILE || file_find(files, STR("config.json")) == HUB_NO_FILE)
        return true;
    m.files = arena_alloc_array(arena, files->n, sizeof *m.files);
    if (!m.files || !parts_add(files, weights, STR(".safetensors"), &shards, arena))
        return false;
    m.whole = shards.whole;
    for (size_t i = 0; i < shards.n_files; i++)
        m.files[m.n_files++] = shards.files[i];
    for (uint32_t i = 0; i < files->n; i++) {
        if (is_beside(files->at[i].path))
            m.files[m.n_files++] = i;
    }
    model_add(models, files, &m);
    return true;
}

bool hub_models_find(const struct hub_files *files, struct hub_models *models, struct arena *arena,
                     struct err *err)
{
    *models = (struct hub_models){ arena_alloc_array(arena, files->n + 1, sizeof *models->at), 0 };
    bool ok = models->at != NULL;
    for (uint32_t i = 0; ok && i < files->n; i++) {
        if (str_ends(files->at[i].path, STR(".gguf")) && is_model_name(files->at[i].path))
            ok = gguf_add(files, i, models, arena);
    }
    return (ok && folder_add(files, models, arena)) || err_memory(err, "a list of models");
}

// ---- choice

static bool matches(const struct hub_files *files, const struct hub_model *m, struct str quant)
{
    if (m->folder || !str_ends(quant, STR(".gguf")))
        return eq_fold(m->quant, quant);
    return str_eq(files->at[m->files[0]].path, quant);
}

// "Q4_K_M, Q8_0 and 3 more", or file names where two models have the same quant.
static void list_print(const struct hub_files *files, const struct hub_models *models, bool names,
                       struct buf *out)
{
    for (size_t i = 0; i < models->n; i++) {
        const struct hub_model *m = &models->at[i];
        struct str name = m->folder || (m->quant.n && !names) ? m->quant : files->at[m->files[0]].path;
        if (out->n + name.n > 300) {
            buf_printf(out, " and %zu more", models->n - i);
            return;
        }
        buf_printf(out, "%s%.*s", i ? ", " : "", STR_ARG(name));
    }
}

static const struct hub_model *not_found(const struct hub_files *files, const struct hub_models *models,
                                         const struct hub_name *name, bool several, struct err *err)
{
    struct buf list = { 0 };
    const char *wanted = name->quant[0] ? name->quant : "Q4_K_M";

    list_print(files, models, several, &list);
    if (models->n == 0)
        err_set(err, ERR_NOT_FOUND, "%s: no GGUF file and no safetensors model is in it", name->repo);
    else if (several)
        err_set(err, ERR_NOT_FOUND, "%s: more than one file is %s; name one: %s", name->repo, wanted,
                list.at);
    else
        err_set(err, ERR_NOT_FOUND, "%s: no %s; there is %s (name one as %s:QUANT)", name->repo, wanted,
                list.at, name->repo);
    buf_free(&list);
    return NULL;
}

static size_t count_matches(const struct hub_files *files, const struct hub_models *models, struct str quant,
                            const struct hub_model **last)
{
    size_t n = 0;

    for (size_t i = 0; i < models->n; i++) {
        if (!matches(files, &models->at[i], quant))
            continue;
        *last = &models->at[i];
        n++;
    }
    return n;
}

const struct hub_model *hub_models_choose(const struct hub_files *files, const struct hub_models *models,
                                          const struct hub_name *name, struct err *err)
{
    const struct hub_model *chosen = NULL;
    char dynamic[sizeof name->quant + 3];
    struct str quant = name->quant[0] ? str_from(name->quant) : STR("Q4_K_M");

    snprintf(dynamic, sizeof dynamic, "UD-%.*s", STR_ARG(quant));
    size_t n = count_matches(files, models, quant, &chosen);
    n = n ? n : count_matches(files, models, str_from(dynamic), &chosen);
    if (n == 0 && !name->quant[0] && models->n) { // the only one; a folder comes after GGUF files
        chosen = &models->at[0];
        n = models->n - (models->n > 1 && models->at[models->n - 1].folder);
        n = n == 1 ? 1 : 0;
    }
    if (n != 1)
        return not_found(files, models, name, n > 1, err);
    if (chosen->whole)
        return chosen;
    err_set(err, ERR_NOT_FOUND, "%s: parts of %.*s are missing", name->repo,
            STR_ARG(files->at[chosen->files[0]].path));
    return NULL;
}

// ---- eyes

static struct str folder_name(struct str path)
{
    return str_from_to(path, 0, path.n - base_name(path).n);
}

// Of 16 bits first: small, and no worse than the original.
static uint32_t eyes_rank(struct str path)
{
    static const char *const quants[] = { "F16", "BF16", "Q8_0", "F32" };
    struct str quant = quant_of(str_from_to(path, 0, path.n - STR(".gguf").n));
    uint32_t i = 0;

    while (i < sizeof quants / sizeof *quants && !eq_fold(quant, str_from(quants[i])))
        i++;
    return i;
}

uint32_t hub_model_eyes(const struct hub_files *files, const struct hub_model *model)
{
    struct str folder = folder_name(files->at[model->files[0]].path);
    uint32_t best = HUB_NO_FILE;

    for (uint32_t i = 0; i < files->n && !model->folder; i++) {
        struct str path = files->at[i].path;
        if (str_ends(path, STR(".gguf")) && starts_fold(base_name(path), "mmproj") &&
            str_eq(folder_name(path), folder) &&
            (best == HUB_NO_FILE || eyes_rank(path) < eyes_rank(files->at[best].path)))
            best = i;
    }
    return best;
}

bool hub_model_shares_eyes(const struct hub_files *files, const struct hub_models *models,
                           const struct hub_model *model)
{
    struct str folder = folder_name(files->at[model->files[0]].path);
    size_t n = 0;

    for (size_t i = 0; i < models->n; i++)
        n += !models->at[i].folder && str_eq(folder_name(files->at[models->at[i].files[0]].path), folder);
    return n > 1;
}
