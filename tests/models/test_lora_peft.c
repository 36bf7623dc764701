// test_lora_peft.c - PEFT's folders on every architecture: an adapter on all matrices of a checkpoint, by the
// names that PEFT writes, gives the logits of weights that have it in them; where ingot cannot add to one, a
// line says so.
//
// A name is "base_model.model." and where the module is in transformers' model: where the checkpoint has it,
// but for the namings below. What is merged lies as the checkpoint has it, so matrices that ingot splits,
// joins or turns show if their adapters are not.
#include "folder.h"
#include "models/arch.h"
#include "models/lora_families.h"

static const struct naming {
    const char *variants, *from, *to; // NULL: all, as they are
} namings[] = {
    { NULL, NULL, NULL },
    // of the class that sees
    { "gemma3 gemma3-27b gemma4 gemma4-e2b gemma4-moe ministral3 mistral4 qwen35 qwen35moe", "model.",
      "model.language_model." },
    // of such a class as well: a file of its text is of the text's architecture
    { "tinyllama smollm2", "model.", "model.text_model." },
    { "mistral qwen2 qwen3 qwen3moe", "model.", "model.language_model." },
    { "gemma3", "model.", "language_model.model." }, // before transformers 4.52
    // of transformers' own class, in place of the one that comes with the checkpoint
    { "nemotronh nemotronh-moe", "backbone.", "model." },
};
enum { N_NAMINGS = sizeof namings / sizeof *namings };

// Matrices that nothing is added to, by a part of their names.
static const struct refused {
    const char *part, *why, *variants; // variants NULL: all
} refused[] = {
    { ".experts.", "a stack of matrices, as of experts", NULL },
    { ".shared_expert_gate.", "which is no matrix", NULL },
    { ".shared_expert", "multiply in a way that ingot cannot add to", NULL },
    { ".shared_mlp.", "multiply in a way that ingot cannot add to", "granitehybrid-moe" },
    { ".router.", "multiply in a way that ingot cannot add to", NULL },
    { ".gate.", "multiply in a way that ingot cannot add to", NULL },
    { ".kv_b_proj.", "whose rows lie apart", NULL },
    { ".embed", "which is an embedding", NULL },
    { ".per_layer_model_projection.", "which is outside of layers", NULL },
    { ".eh_proj.", "adds to no matrix that ingot knows", NULL }, // of a layer that drafts
};
enum { N_REFUSED = sizeof refused / sizeof *refused };

static const char in_two_files[] = "qwen25"; // of the architecture of qwen2

static bool is_of(const char *variants, const char *variant)
{
    return !variants || model_one_of(variants, str_from(variant));
}

static bool is_matrix(const struct file_tensor *t)
{
    return t->n_dims == 2 && t->format == QUANT_F32 && str_ends(t->name, STR(".weight"));
}

// NULL: ingot adds to it.
static const struct refused *refusal_of(const char *variant, const struct file_tensor *t)
{
    for (size_t i = 0; i < N_REFUSED; i++)
        if (is_of(refused[i].variants, variant) && str_find(t->name, str_from(refused[i].part)) != SIZE_MAX)
            return &refused[i];
    return NULL;
}

static struct model_file *open_checkpoint(const char *variant)
{
    struct model_file *model;
    struct err err = { 0 };
    char path[512];

    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/model.safetensors", variant);
    assert_ok(model_file_open(&model, path, &err), &err);
    return model;
}

// ---- the folder of an adapter, and that of the model with it in its weights

struct peft {
    const char *variant;
    const struct naming *naming;
    const unsigned char *numbers_at; // of the model's first tensor
    struct buf header, numbers, merged;
    uint64_t merged_at; // of numbers_at
    uint32_t n;
};

static void peft_begin(struct peft *p, const struct model_file *model)
{
    struct err err = { 0 };
    char path[512];

    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/model.safetensors", p->variant);
    assert_ok(file_read(&p->merged, path, 1 << 24, &err), &err);
    memcpy(&p->merged_at, p->merged.at, sizeof p->merged_at);
    p->merged_at += sizeof p->merged_at;
    p->numbers_at = model_file_tensor_at(model, 0)->data;
    for (size_t i = 0; i < model_file_n_tensors(model); i++) {
        const unsigned char *data = model_file_tensor_at(model, i)->data;
        p->numbers_at = data < p->numbers_at ? data : p->numbers_at;
    }
}

static void peft_put(struct peft *p, struct str module, char half, const struct adapter_matrix *m,
                     const float *numbers)
{
    const char *from = p->naming->from, *to = "";
    size_t bytes = (size_t)m->rows * m->cols * sizeof *numbers;

    if (from && str_starts(module, str_from(from))) {
        module = str_from_to(module, strlen(from), module.n);
        to = p->naming->to;
    }
    buf_printf(&p->header,
               "%c\"base_model.model.%s%.*s.lora_%c.weight\":{\"dtype\":\"F32\",\"shape\":[%u,%u],"
               "\"data_offsets\":[%zu,%zu]}",
               p->header.n ? ',' : '{', to, STR_ARG(module), half, m->rows, m->cols, p->numbers.n,
               p->numbers.n + bytes);
    buf_append(&p->numbers, numbers, bytes);
}

static void peft_adapt(struct peft *p, const struct file_tensor *t)
{
    struct str module = str_from_to(t->name, 0, t->name.n - strlen(".weight"));
    uint32_t rows = (uint32_t)t->dims[0], cols = (uint32_t)t->dims[1];
    float *a = adapter_numbers(LORA_RANK * cols, 2 * ++p->n),
          *b = adapter_numbers(LORA_RANK * rows, 2 * p->n + 1),
          *w = (float *)(p->merged.at + p->merged_at + (t->data - p->numbers_at));

    peft_put(p, module, 'A', &(struct adapter_matrix){ .rows = LORA_RANK, .cols = cols }, a);
    peft_put(p, module, 'B', &(struct adapter_matrix){ .rows = rows, .cols = LORA_RANK }, b);
    lora_add(w, &(struct adapter_matrix){ .rows = rows, .cols = cols }, a, b);
    mem_free(a);
    mem_free(b);
}

static void save(const char *name, struct str bytes)
{
    char path[64];
    struct err err = { 0 };

    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_ok(file_save(path, bytes, &err), &err);
}

static void peft_end(struct peft *p)
{
    struct buf file = { 0 };

    for (buf_text(&p->header, "}"); p->header.n % 8 != 0;)
        buf_text(&p->header, " ");
    buf_append(&file, &(uint64_t){ p->header.n }, sizeof(uint64_t));
    buf_str(&file, buf_as_str(&p->header));
    buf_str(&file, buf_as_str(&p->numbers));
    shell("mkdir -p %s/it %s/merged && cp " SOURCE_DIR "/tests/golden/%s/config.json %s/merged", folder,
          folder, p->variant, folder);
    save("it/adapter_model.safetensors", buf_as_str(&file));
    save("it/adapter_config.json", STR("{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":6}"));
    save("merged/model.safetensors", buf_as_str(&p->merged));
    buf_free(&file);
    buf_free(&p->header);
    buf_free(&p->numbers);
    buf_free(&p->merged);
}

// ---- checks

static struct ingot_engine *open_adapted(const char *variant, const char *file, struct ingot_error *error)
{
    char path[512], adapter[64];
    struct ingot_adapter it = { adapter, "it", 1 };
    struct ingot_engine_options o = ingot_engine_defaults();

    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s%s", variant, file);
    snprintf(adapter, sizeof adapter, "%s/it", folder);
    o.device = "cpu";
    o.exact = true;
    o.n_batch = 7;
    o.model = path;
    o.adapters = &it;
    o.n_adapters = 1;
    return ingot_engine_open(&o, error);
}

static void check_refused(const char *variant, const char *file, const char *why)
{
    struct ingot_error error = { 0 };

    if (open_adapted(variant, file, &error))
        fail_msg("%s%s: the adapter was taken; want '%s'", variant, file, why);
    if (!strstr(error.message, why) || strchr(error.message, '\n'))
        fail_msg("%s%s: '%s'; want '%s' in one line", variant, file, error.message, why);
}

static void check_logits(const char *variant, const char *file, const struct golden *merged)
{
    struct ingot_error error = { 0 };
    struct ingot_engine *engine = open_adapted(variant, file, &error);

    if (!engine)
        fail_msg("%s%s: %s", variant, file, error.message);
    float *ours = run_adapted(engine, merged, &(struct ingot_adapter_use){ "it", 1 }, 1);
    struct closeness c = compare_logits(merged, ours);
    print_message("%-18s %-11s squared error %.1e\n", variant, *file ? file + 1 : "safetensors",
                  c.worst_error);
    if (!(c.worst_error <= 1e-9))
        fail_msg("%s%s: squared error %g, want at most 1e-9", variant, file, c.worst_error);
    free(ours);
    ingot_engine_close(engine);
}

static void write_all(const char *variant, const struct naming *naming)
{
    struct peft p = { .variant = variant, .naming = naming };
    struct model_file *model = open_checkpoint(variant);

    peft_begin(&p, model);
    for (size_t i = 0; i < model_file_n_tensors(model); i++) {
        const struct file_tensor *t = model_file_tensor_at(model, i);
        if (is_matrix(t) && !refusal_of(variant, t))
            peft_adapt(&p, t);
    }
    peft_end(&p);
    model_file_close(model);
}

static void check_merged(const char *variant, const struct naming *naming)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    char path[64];
    struct golden g;

    write_all(variant, naming);
    golden_open(&g, variant);
    snprintf(path, sizeof path, "%s/merged", folder);
    o.device = "cpu";
    o.exact = true;
    o.model = path;
    float *logits = run_logits(&o, &g);
    struct golden merged = { .tokens = g.tokens, .logits = logits, .n = g.n, .n_vocab = g.n_vocab };
    assert_true(compare_logits(&g, logits).worst_error > 1e-4); // the adapter does something
    check_logits(variant, "", &merged);
    if (is_of(lora_own_format, variant))
        check_refused(variant, "/model.gguf", "want an adapter in the model's own format");
    else
        check_logits(variant, "/model.gguf", &merged);
    free(logits);
    model_file_close(g.file);
}

// The first matrix of each kind.
static void check_refusals(const char *variant, const struct naming *naming)
{
    struct model_file *model = open_checkpoint(variant);
    bool done[N_REFUSED] = { false };

    for (size_t i = 0; i < model_file_n_tensors(model); i++) {
        const struct file_tensor *t = model_file_tensor_at(model, i);
        const struct refused *r = is_matrix(t) ? refusal_of(variant, t) : NULL;
        struct peft p = { .variant = variant, .naming = naming };
        if (!r || done[r - refused])
            continue;
        done[r - refused] = true;
        peft_begin(&p, model);
        peft_adapt(&p, t);
        peft_end(&p);
        check_refused(variant, "", r->why);
    }
    model_file_close(model);
}

typedef void check(const char *variant, const struct naming *naming);

static void check_all(check *f, const char *const *variants, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < N_NAMINGS; k++)
            if (is_of(namings[k].variants, variants[i]) && strcmp(variants[i], in_two_files) != 0)
                f(variants[i], &namings[k]);
}

static void folders_are_merged_weights(void **state)
{
    (void)state;
    check_all(check_merged, golden_variants, N_GOLDEN_VARIANTS);
    check_all(check_merged, golden_mixtures, N_GOLDEN_MIXTURES);
    check_all(check_merged, golden_hybrids, N_GOLDEN_HYBRIDS);
}

static void what_takes_no_adapter_is_named(void **state)
{
    (void)state;
    check_all(check_refusals, golden_variants, N_GOLDEN_VARIANTS);
    check_all(check_refusals, golden_mixtures, N_GOLDEN_MIXTURES);
    check_all(check_refusals, golden_hybrids, N_GOLDEN_HYBRIDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(folders_are_merged_weights),
                                        cmocka_unit_test(what_takes_no_adapter_is_named) };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
