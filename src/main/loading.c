// loading.c - see loading.h.
#include "main/loading.h"
#include <errno.h>
#include <unistd.h>
#include "base/file.h"
#include "main/terminal/fail.h"
#include "main/terminal/progress.h"
#include "main/terminal/signals.h"
#include "model_tools/model_adapters.h"

enum { PROMPT_MAX_BYTES = 1 << 28 };

static const char *const kv_names[] = { "auto", "f32", "f16", "bf16", "q8_0" };

const char *loading_kv_name(enum ingot_kv kv)
{
    return kv_names[kv];
}

static enum ingot_kv kv_from_name(const char *name)
{
    enum ingot_kv kv = INGOT_KV_AUTO;

    for (uint32_t i = 0; i < sizeof kv_names / sizeof *kv_names; i++)
        kv = strcmp(name, kv_names[i]) ? kv : (enum ingot_kv)i;
    return kv;
}

// The smaller of two numbers, where 0 means none.
static uint32_t least(uint32_t a, uint32_t b)
{
    return a == 0 ? b : b == 0 || a < b ? a : b;
}

struct lora_words {
    struct str name, path;
    double scale;
};

// "FILE", "FILE:SCALE" or "NAME=FILE:SCALE".
static struct lora_words split_lora(const char *given)
{
    struct str text = str_from(given);
    size_t equals = str_find(text, STR("=")), slash = str_find(text, STR("/")),
           colon = str_find_last(text, ':');
    struct lora_words w = { .scale = 1 };

    if (colon != SIZE_MAX && str_to_f64(str_from_to(text, colon + 1, text.n), &w.scale))
        text.n = colon;
    bool named = equals != SIZE_MAX && equals < text.n && equals < slash;
    w.name = str_from_to(text, 0, named ? equals : 0);
    w.path = str_from_to(text, named ? equals + 1 : 0, text.n);
    return w;
}

bool loading_scales_fit(const struct settings *settings)
{
    for (size_t i = 0; i < settings->loras.n; i++) {
        struct str path = split_lora(settings->loras.at[i]).path;
        size_t colon = str_find_last(path, ':');
        struct str behind = colon == SIZE_MAX ? path : str_from_to(path, colon + 1, path.n);
        if (colon == SIZE_MAX || str_find(behind, STR("/")) != SIZE_MAX || file_exists(path.at))
            continue;
        fail_usage("--lora: found '%.*s' behind the colon, expected a scale such as 0.5, or a file of this "
                   "name: '%.*s'",
                   STR_ARG(behind), STR_ARG(path));
        return false;
    }
    return true;
}

// They live as long as the program.
static const struct ingot_adapter *adapters_of(const struct option_list *list)
{
    static struct adapter_room {
        char path[4096], name[64];
    } rooms[MODEL_ADAPTERS];
    static struct ingot_adapter adapters[MODEL_ADAPTERS];

    for (size_t i = 0; i < list->n && i < MODEL_ADAPTERS; i++) {
        struct lora_words w = split_lora(list->at[i]);
        struct adapter_room *room = &rooms[i];
        snprintf(room->name, sizeof room->name, "%.*s", (int)w.name.n, w.name.at);
        snprintf(room->path, sizeof room->path, "%.*s", (int)w.path.n, w.path.at);
        adapters[i] = (struct ingot_adapter){ room->path, w.name.n ? room->name : NULL, (float)w.scale };
    }
    return adapters;
}

const struct err_option loading_flags[] = {
    { "model", "-m" },
    { "device", "--device" },
    { "stages", "--stages" },
    { "n_context", "-c" },
    { "n_sequences", "-np" },
    { "n_kv_tokens", "--kv-tokens" },
    { "n_batch", "-b" },
    { "cache_type_k", "-ctk" },
    { "cache_type_v", "-ctv" },
    { "invariant", "--invariant" },
    { "gemm", "--gemm" },
    { "no_repack", "--no-repack" },
    { "experts", "--experts" },
    { "cache_dir", "--cache-dir" },
    { "draft", "--draft" },
    { "mmproj", "--mmproj" },
    { "adapters", "--lora" },
    { "limits", "--limits" },
    { "n_tensor_parallel", "--tensor-parallel" },
    { 0 },
};

struct ingot_engine_options loading_options(const struct settings *settings)
{
    struct ingot_engine_options options = ingot_engine_defaults();

    options.model = settings->model;
    bool on_cpu =
        settings->n_gpu_layers && !strcmp(settings->n_gpu_layers, "0") && !strcmp(settings->device, "auto");
    options.device = on_cpu ? "cpu" : settings->device;
    options.stages = settings->stages;
    options.experts = settings->experts;
    options.limits = settings->limits;
    options.adapters = adapters_of(&settings->loras);
    options.n_adapters = settings->loras.n;
    options.aim = strcmp(settings->aim, "one") == 0    ? INGOT_FOR_ONE
                  : strcmp(settings->aim, "many") == 0 ? INGOT_FOR_MANY
                                                       : INGOT_FOR_AUTO;
    options.probe_anew = settings->probe_anew;
    options.n_tensor_parallel = settings->n_tensor_parallel;
    options.n_threads = settings->n_threads;
    options.n_context = settings->n_context;
    options.n_batch = least(settings->n_batch, settings->n_ubatch);
    options.cache_type_k = kv_from_name(settings->cache_type_k);
    options.cache_type_v = kv_from_name(settings->cache_type_v);
    options.gemm = strcmp(settings->gemm, "own") == 0      ? INGOT_GEMM_OWN
                   : strcmp(settings->gemm, "vendor") == 0 ? INGOT_GEMM_VENDOR
                                                           : INGOT_GEMM_AUTO;
    options.speculate = strcmp(settings->speculate, "off") == 0      ? INGOT_SPECULATE_OFF
                        : strcmp(settings->speculate, "always") == 0 ? INGOT_SPECULATE_ALWAYS
                                                                     : INGOT_SPECULATE_AUTO;
    options.draft = settings->draft;
    options.draft_most = settings->draft_most;
    options.exact = settings->exact;
    options.invariant = settings->invariant;
    options.no_repack = settings->no_repack;
    options.no_prefix_cache = settings->no_prefix_cache;
    options.cache_dir = settings->cache_dir;
    options.mmproj = settings->no_mmproj ? "" : settings->mmproj;
    options.cache_bytes = (uint64_t)settings->cache_gib << 30;
    options.commit_every = settings->commit_every;
    return options;
}

struct ingot_engine *loading_open(const struct ingot_engine_options *options)
{
    struct ingot_engine_options own = *options;
    struct progress progress = { .what = "loading" };
    struct ingot_error error;

    own.progress = progress_callback;
    own.progress_arg = &progress;
    signals_name_file(own.model);
    struct ingot_engine *engine = ingot_engine_open(&own, &error);
    progress_end(&progress);
    if (!engine)
        fail(error.message);
    return engine;
}

struct ingot_engine *loading_engine(const struct settings *settings, uint32_t n_sequences)
{
    struct ingot_engine_options options = loading_options(settings);

    if (n_sequences)
        options.n_sequences = n_sequences;
    return loading_open(&options);
}

static bool read_stdin(struct buf *b, struct err *err)
{
    for (;;) {
        if (b->n >= PROMPT_MAX_BYTES)
            return err_set(err, ERR_LIMIT, "stdin: the text is longer than %d MiB", PROMPT_MAX_BYTES >> 20);
        if (!buf_reserve(b, 65536))
            return err_memory(err, "the prompt");
        ssize_t n = read(STDIN_FILENO, b->at + b->n, 65536);
        if (n < 0 && errno == EINTR && signals_interrupts() == 0)
            continue;
        if (n < 0)
            return err_set(err, ERR_IO, "stdin: %s", strerror(errno));
        if (n == 0)
            return true;
        b->n += (size_t)n;
        b->at[b->n] = 0;
    }
}

static bool add_file(const char *path, struct buf *prompt, struct err *err)
{
    struct buf text = { 0 };
    bool is_stdin = !path || !strcmp(path, "-");
    bool ok = is_stdin ? read_stdin(&text, err) : file_read(&text, path, PROMPT_MAX_BYTES, err);

    if (prompt->n && ok)
        buf_text(prompt, "\n\n");
    // The newline that ends a file is not part of what it says.
    if (text.n && text.at[text.n - 1] == '\n')
        text.n--;
    const char *nul = text.n ? memchr(text.at, 0, text.n) : NULL;
    if (ok && nul)
        ok = err_set(err, ERR_INPUT, "%s: byte %zu is NUL, expected text", is_stdin ? "stdin" : path,
                     (size_t)(nul - text.at));
    if (ok && text.n)
        buf_append(prompt, text.at, text.n);
    buf_free(&text);
    return ok;
}

// With `escape`, a backslash and a letter mean what they mean in C; before any other letter the backslash
// stays.
static void add_text(const char *text, bool escape, struct buf *prompt)
{
    static const char letters[] = "ntr\"'\\", meanings[] = "\n\t\r\"'\\";

    for (const char *c = text; *c; c++) {
        const char *letter = escape && c[0] == '\\' && c[1] ? strchr(letters, c[1]) : NULL;
        buf_append(prompt, letter ? &meanings[letter - letters] : c, 1);
        c += letter != NULL;
    }
}

bool loading_prompt(const struct settings *settings, const struct option_operands *operands,
                    struct buf *prompt, bool *given)
{
    struct err err;

    if (settings->prompt)
        add_text(settings->prompt, settings->escape, prompt);
    for (size_t i = 0; operands && i < operands->n; i++) {
        buf_text(prompt, prompt->n ? " " : "");
        buf_text(prompt, operands->at[i]);
    }
    *given = settings->prompt || (operands && operands->n) || settings->file;
    bool from_stdin = !*given && !isatty(STDIN_FILENO);
    if ((settings->file || from_stdin) && !add_file(settings->file, prompt, &err)) {
        fail(err.message);
        return false;
    }
    *given = *given || from_stdin;
    if (prompt->failed) {
        fail("out of memory for the prompt");
        return false;
    }
    return true;
}
