// test_random_model.c - synthetic models have the keys, shapes and formats of the real ones, and numbers of a
// sensible size.
#include "testing.h"
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/mem.h"
#include "model_tools/model_info.h"
#include "model_tools/random/random_model.h"
#include "model_tools/random/random_shapes.h"
#include "models/model.h"
#include "models/binding/joined.h"
#include "models/vision/tower.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_random.h"

static char path[64];

static int name_file(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/ingot-synth-XXXXXX");
    close(mkstemp(path));
    return unlink(path);
}

static int remove_file(void **state)
{
    (void)state;
    char part[80];
    unlink(path);
    snprintf(part, sizeof part, "%s.part", path);
    return file_exists(part) ? -1 : 0;
}

static struct model_file *made(const char *shape, const char *type)
{
    struct err err = { 0 };
    struct model_file *f;
    struct random_model_options o = { .shape = shape, .type = type, .output = path, .seed = 3 };
    assert_ok(random_model_file(&o, &err), &err);
    assert_ok(model_file_open(&f, path, &err), &err);
    return f;
}

static void every_format_has_weights_of_a_sensible_size(void **state)
{
    (void)state;
    float *x = mem_alloc_array(256 * 256, sizeof *x);
    for (unsigned q = 0; q < N_READABLE_QUANTS; q++) {
        if (!quant_in_files((enum quant)q))
            continue;
        struct model_file *f = made("toy", quant_info((enum quant)q)->name);
        const struct file_tensor *t = model_file_tensor(f, "blk.1.attn_q.weight"),
                                 *norm = model_file_tensor(f, "blk.0.ffn_norm.weight");
        double sum = 0;
        assert_true(t->format == q && t->dims[0] == 256 && t->dims[1] == 256);
        quant_read(&(struct quant_rows){ t->format, t->data, 256 }, 0, x, 256 * 256);
        for (size_t i = 0; i < 256 * 256; i++)
            sum += (double)x[i] * (double)x[i];
        double rms = sqrt(sum / (256 * 256));
        if (!(rms > 0.008 && rms < 0.05))
            fail_msg("%s: rms %g", quant_info((enum quant)q)->name, rms);
        memcpy(x, norm->data, 4);
        assert_true(norm->format == QUANT_F32 && x[0] == 1);
        model_file_close(f);
    }
    mem_free(x);
}

// What stands for the numbers of a file is as large as they are, to the bit.
static void check_spread(const struct file_tensor *t)
{
    const struct joined_tensor *j = (const struct joined_tensor *)t;
    const struct file_tensor *in_file = j->parts[0];
    uint64_t n = t->dims[0] * t->dims[1], first = j->slice_first * t->dims[1];
    unsigned char *blocks = mem_alloc_aligned(t->bytes, 64);
    float *want = mem_alloc_array(n, sizeof *want), *got = mem_alloc_array(n, sizeof *got);

    assert_true(t->format == QUANT_Q8_16 && !t->data && in_file->dims[0] >= t->dims[0] + j->slice_first);
    quant_read(&(struct quant_rows){ in_file->format, in_file->data, t->dims[1] }, first, want, n);
    model_tensor_read(t, 0, n, blocks);
    quant_info(t->format)->decode(blocks, got, n);
    assert_memory_equal(want, got, n * sizeof *got);
    model_tensor_read(t, 256, 512, blocks); // from the middle
    quant_info(t->format)->decode(blocks, got, 512);
    assert_memory_equal(want + 256, got, 512 * sizeof *got);
    mem_free_aligned(blocks);
    mem_free(want);
    mem_free(got);
}

static void formats_of_grids_are_spread(void **state)
{
    (void)state;
    for (enum quant q = N_WEIGHT_QUANTS; q < N_READABLE_QUANTS; q++) {
        struct model_file *f = made("toy", quant_info(q)->name);
        struct err err = { 0 };
        struct model m;
        assert_ok(model_bind(&m, f, &err), &err);
        for (uint32_t l = 0; l < m.config.n_layers; l++)
            check_spread(model_layer(&m, l)[offsetof(struct layer_weights, down) / sizeof(void *)]);
        model_release(&m);
        model_file_close(f);
    }
}

// The query's rows of a matrix that the file holds with the key's and the value's.
static void parts_of_a_matrix_are_spread_too(void **state)
{
    (void)state;
    for (enum quant q = N_WEIGHT_QUANTS; q < N_READABLE_QUANTS; q++) {
        struct model_file *f = made("toy-phi3", quant_info(q)->name);
        struct err err = { 0 };
        struct model m;
        assert_ok(model_bind(&m, f, &err), &err);
        static const size_t places[] = { offsetof(struct layer_weights, q), offsetof(struct layer_weights, v),
                                         offsetof(struct layer_weights, up) };
        for (size_t p = 0; p < sizeof places / sizeof places[0]; p++)
            check_spread(model_layer(&m, 1)[places[p] / sizeof(void *)]);
        const struct file_tensor *v = model_layer(&m, 1)[places[1] / sizeof(void *)];
        assert_int_equal(((const struct joined_tensor *)v)->slice_first,
                         256 + 128); // behind q's and k's rows
        model_release(&m);
        model_file_close(f);
    }
}

// A norm whose description says that it is of a format whose rows have heads.
static void vectors_have_no_heads(void **state)
{
    (void)state;
    struct buf bytes = { 0 };
    struct err err = { 0 };
    struct model_file *f;
    struct model m;
    const uint32_t iq2_kt = 153, behind_dims = 4 + 8;
    model_file_close(made("toy", "Q8_0"));
    assert_ok(file_read(&bytes, path, 1 << 26, &err), &err);
    struct str name = STR("blk.1.ffn_norm.weight");
    memcpy(bytes.at + str_find(buf_as_str(&bytes), name) + name.n + behind_dims, &iq2_kt, sizeof iq2_kt);
    assert_ok(model_file_open_memory(&f, bytes.at, bytes.n, "norm", &err), &err);
    assert_fails(model_bind(&m, f, &err), &err,
                 "norm: tensor blk.1.ffn_norm.weight holds IQ2_KT, which is for matrices");
    model_release(&m);
    model_file_close(f);
    buf_free(&bytes);
}

static void a_plain_format_leaves_the_outside_at_q8_0(void **state)
{
    (void)state;
    struct model_file *f = made("smollm-135m", "Q4_0");
    assert_true(model_file_tensor(f, "token_embd.weight")->format == QUANT_Q8_0 &&
                !model_file_tensor(f, "output.weight"));
    assert_true(model_file_tensor(f, "blk.29.ffn_down.weight")->format == QUANT_Q4_0);
    assert_true(model_file_tensor(f, "blk.29.ffn_down.weight")->dims[0] == 576 &&
                model_file_tensor(f, "blk.0.attn_k.weight")->dims[0] == 192);
    assert_true(model_file_meta(f, "llama.block_count")->u == 30 &&
                model_file_meta(f, "llama.vocab_size")->u == 49152);
    assert_int_equal(model_file_n_tensors(f), 2 + 30 * 9);
    model_file_close(f);
}

static void a_mix_is_what_quantize_makes(void **state)
{
    (void)state;
    struct model_file *f = made("toy", "Q4_K_M");
    assert_true(model_file_tensor(f, "token_embd.weight")->format == QUANT_Q6_K &&
                model_file_tensor(f, "blk.0.attn_q.weight")->format == QUANT_Q4_K);
    assert_true(model_file_meta(f, "general.file_type")->u == 15);
    model_file_close(f);
}

static void families_have_their_own_tensors(void **state)
{
    (void)state;
    struct model_file *f = made("qwen2.5-0.5b", "Q4_0");
    assert_true(model_file_tensor(f, "blk.0.attn_q.bias")->dims[0] == 896 &&
                model_file_tensor(f, "blk.0.attn_v.bias")->dims[0] == 128);
    assert_true(model_file_meta(f, "qwen2.attention.head_count_kv")->u == 2);
    model_file_close(f);
    f = made("qwen3-0.6b", "Q4_0");
    assert_true(model_file_tensor(f, "blk.0.attn_q_norm.weight")->dims[0] == 128 &&
                model_file_tensor(f, "blk.0.attn_q.weight")->dims[0] == 2048);
    model_file_close(f);
}

// The file beside the model's, which is bound to it.
static struct model_file *open_tower(struct tower *t, uint32_t n_out)
{
    char beside[96];
    struct model_file *mmproj;
    struct err err = { 0 };

    snprintf(beside, sizeof beside, "/tmp/mmproj-%s", strrchr(path, '/') + 1);
    assert_ok(model_file_open(&mmproj, beside, &err), &err);
    assert_ok(tower_bind(t, mmproj, n_out, &err), &err);
    unlink(beside);
    return mmproj;
}

static void check_tower(const char *shape, const char *connector, const char *type, enum quant matrices)
{
    struct tower t;
    struct model_file *f = made(shape, type), *mmproj = open_tower(&t, 256);

    assert_int_equal(tower_patches(&t), 16);
    assert_int_equal(tower_rows(&t), 4);
    assert_int_equal(model_file_tensor(mmproj, "v.blk.1.ffn_down.weight")->format, matrices);
    assert_int_equal(model_file_tensor(mmproj, connector)->format, matrices);
    assert_int_equal(model_file_tensor(mmproj, "v.patch_embd.weight")->format, QUANT_F32);
    assert_int_equal(model_file_tensor(mmproj, "v.position_embd.weight")->format, QUANT_F32);
    tower_release(&t);
    model_file_close(mmproj);
    model_file_close(f);
}

// A model that takes pictures has a tower beside it, and the two belong together.
static void towers_belong_to_their_models(void **state)
{
    (void)state;
    check_tower("toy-vlm", "mm.model.fc.weight", "Q4_0", QUANT_BF16);
    check_tower("toy-vlm", "mm.model.fc.weight", "Q8_0", QUANT_Q8_0);
    check_tower("toy-internvl", "mm.model.mlp.3.weight", "Q4_0", QUANT_BF16);
    check_tower("toy-internvl", "mm.model.mlp.3.weight", "Q8_0", QUANT_Q8_0);
}

// n_layers 0: all. The file has no weights, and is gone from the disk.
static struct model_file *bind_hollow(const char *shape, uint32_t n_layers, struct model *m)
{
    struct random_model_options o = {
        .shape = shape, .type = "Q4_0", .output = path, .n_layers = n_layers, .hollow = true
    };
    struct err err = { 0 };
    struct model_file *f;

    assert_ok(random_model_file(&o, &err), &err);
    assert_ok(model_file_open(&f, path, &err), &err);
    assert_ok(model_bind(m, f, &err), &err);
    unlink(path);
    return f;
}

static void check_parameters(const char *shape, uint64_t n, double millions, double off)
{
    double found = (double)n / 1e6;

    if (fabs(found / millions - 1) > off)
        fail_msg("%s: %.2f M parameters, want %.2f", shape, found, millions);
}

// Millions of parameters of text and tower, as the model cards have them.
static void those_that_see_are_of_the_models_that_they_name(void **state)
{
    static const struct {
        const char *shape;
        double millions;
    } models[] = { { "internvl3-1b", 938 },    { "internvl3-2b", 2089 },  { "internvl3-8b", 7944 },
                   { "internvl3-14b", 15119 }, { "smolvlm-256m", 256.5 }, { "smolvlm-500m", 507.5 },
                   { "smolvlm-2.2b", 2246 } };

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct model m;
        struct tower t;
        struct model_file *f = bind_hollow(models[i].shape, 0, &m), *mmproj = open_tower(&t, m.config.n_cols);
        check_parameters(models[i].shape, m.n_parameters + t.n_parameters, models[i].millions, 1e-2);
        tower_release(&t);
        model_release(&m);
        model_file_close(mmproj);
        model_file_close(f);
    }
}

// Parameters that a token uses, tensor by tensor.
static uint64_t count_used(const struct model_file *f, const struct model *m)
{
    uint64_t n = 0;

    for (size_t i = 0; i < model_file_n_tensors(f); i++) {
        const struct file_tensor *t = model_file_tensor_at(f, i);
        uint64_t all = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        if (str_is(t->name, "token_embd.weight") && model_file_tensor(f, "output.weight"))
            all = t->dims[1];
        else if (str_is(t->name, "per_layer_token_embd.weight"))
            all = t->dims[1];
        else if (str_ends(t->name, STR("_exps.weight")) || str_ends(t->name, STR("_exps.bias")))
            all = all / m->n_experts * m->n_used_experts;
        n += all;
    }
    return n;
}

// Mixtures can be bound, their routers stay in F32, and the larger part of the experts is idle for a token.
static void mixtures_have_experts(void **state)
{
    static const char *const shapes[] = {
        "toy-qwen3moe", "toy-qwen2moe", "toy-mixtral",   "toy-olmoe", "toy-granitemoe",
        "toy-gpt-oss",  "toy-glm4moe",  "toy-deepseek2", "toy-glm47", "toy-granitehybrid-moe"
    };
    static const char *const types[] = { "Q4_0", "Q4_K_M" };

    (void)state;
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        struct model_file *f = made(shapes[i / 2], types[i % 2]);
        struct model_info info;
        struct model m;
        struct err err = { 0 };
        assert_ok(model_bind(&m, f, &err), &err);
        assert_true(model_file_tensor(f, "blk.1.ffn_gate_inp.weight")->format == QUANT_F32);
        assert_true(quant_info(model_file_tensor(f, "blk.1.ffn_up_exps.weight")->format)->block_elements > 1);
        assert_true(m.n_used_experts < m.n_experts && m.n_idle > 0 && m.n_idle < m.n_parameters &&
                    m.idle_bytes < m.weight_bytes);
        assert_ok(model_info_open(&info, path, 0, &err), &err);
        assert_int_equal(info.n_active, count_used(f, &m));
        model_info_close(&info);
        model_release(&m);
        model_file_close(f);
    }
}

// Of tables a token reads a row, of the embedding that is the head too all.
static void of_a_table_a_token_reads_a_row(void **state)
{
    static const char *const shapes[] = { "toy", "toy-qwen3", "toy-gemma4-e2b" };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct model_file *f = made(shapes[i], "BF16");
        struct model_info info;
        struct err err = { 0 };
        assert_ok(model_info_open(&info, path, 0, &err), &err);
        assert_int_equal(info.n_active, count_used(f, &info.model));
        const struct file_tensor *inputs = model_file_tensor(f, "per_layer_token_embd.weight"),
                                 *embed = model_file_tensor(f, "token_embd.weight");
        assert_int_equal(info.read_bytes, info.model.weight_bytes - (inputs ? inputs->bytes : 0) -
                                              (info.model.tied ? 0 : embed->bytes));
        model_info_close(&info);
        model_file_close(f);
    }
}

// A layer behind the model's drafts: it is whole, and of the model nothing else changes.
static void some_have_a_layer_that_drafts(void **state)
{
    static const char *const shapes[] = { "toy-qwen35", "toy-qwen35-mtp", "toy-qwen35moe-mtp" };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct model_file *f = made(shapes[i], "Q4_K_M");
        struct model m;
        struct err err = { 0 };
        assert_ok(model_bind(&m, f, &err), &err);
        assert_int_equal(m.config.n_layers, 4);
        assert_int_equal(m.drafts, i > 0);
        if (i > 0)
            assert_true(
                quant_info(model_file_tensor(f, "blk.4.nextn.eh_proj.weight")->format)->block_elements > 1);
        model_release(&m);
        model_file_close(f);
    }
}

// A file with nothing but the tokeniser.
static struct tokenizer *made_tokenizer(uint32_t n_vocab)
{
    struct gguf_writer w;
    struct model_file *f;
    struct tokenizer *t;
    struct err err = { 0 };
    assert_ok(gguf_write_create(&w, path, &err), &err);
    assert_ok(tokenizer_random_write(n_vocab, TOKENIZER_NO_PICTURES, &w, &err), &err);
    gguf_write_tensor(&w, STR("x"), QUANT_F32, (uint64_t[]){ 1 }, 1);
    gguf_write_begin(&w);
    gguf_write_data(&w, &(float){ 0 }, 4);
    assert_ok(gguf_write_commit(&w, &err), &err);
    assert_ok(model_file_open(&f, path, &err), &err);
    assert_ok(tokenizer_load(&t, f, &err), &err);
    model_file_close(f);
    return t;
}

static void encode(const struct tokenizer *t, struct str text, bool trusted, struct token_ids *ids)
{
    struct err err = { 0 };
    ids->n = 0;
    assert_ok(tokenizer_encode(t, text, (struct tokenize_flags){ .parse_special = trusted }, ids, &err),
              &err);
}

// Of every size that a shape has: as many tokens as the embedding has rows, each made again from its own
// text, any text kept.
static void the_tokeniser_fills_the_vocabulary(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { 259, 512, 32000, 49152, 152064 };
    static const char any[] = "Gr\xc3\xbc\xc3\x9f Gott, 2 + 2 = 4\n\t\xf0\x9f\x98\x80";
    struct token_ids ids = { 0 };
    struct buf back = { 0 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct tokenizer *t = made_tokenizer(sizes[i]);
        assert_int_equal(tokenizer_n_tokens(t), sizes[i]);
        for (uint32_t id = 259; id < sizes[i]; id++) {
            encode(t, tokenizer_token_bytes(t, id, false), false, &ids);
            if (ids.n != 1 || ids.ids[0] != id)
                fail_msg("token %u of %u is not met in a text", id, sizes[i]);
        }
        back.n = 0;
        encode(t, str_from(any), false, &ids);
        assert_true(tokenizer_decode(t, &ids, false, &back));
        assert_string_equal(back.at, any);
        encode(t, STR("<|im_end|>"), true, &ids);
        assert_true(ids.n == 1 && ids.ids[0] == 258 && tokenizer_is_end(t, 258) && tokenizer_eos(t) == 258);
        assert_true(tokenizer_chat_template(t).n > 0);
        tokenizer_free(t);
    }
    token_ids_free(&ids);
    buf_free(&back);
}

// With the layers that are asked for a model can be bound, or there is no file: one that has experts or
// attention in some layers alone wants so many that it has them.
static void no_file_that_nothing_can_run(void **state)
{
    static const struct {
        const char *shape;
        uint32_t fewest; // layers
    } shapes[] = { { "toy", 1 },
                   { "toy-gemma4", 1 },
                   { "toy-gemma4-dense", 1 },
                   { "toy-gemma4-e2b", 1 },
                   { "toy-olmo-3", 1 },
                   { "toy-qwen35", 1 },
                   { "toy-mistral4", 1 },
                   { "toy-glm4moe", 2 },
                   { "toy-deepseek2", 2 },
                   { "toy-deepseek3", 4 },
                   { "toy-lfm2", 2 },
                   { "toy-lfm2moe", 3 },
                   { "toy-nemotronh", 6 },
                   { "toy-granitehybrid", 6 },
                   { "toy-granitehybrid-moe", 6 } };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t n = 1; n <= 70; n += n < 7 ? 1 : 63) {
            struct random_model_options o = {
                .shape = shapes[i].shape, .type = "Q8_0", .output = path, .n_layers = n
            };
            struct err err = { 0 };
            struct model_file *f;
            struct model m;
            if (n < shapes[i].fewest) {
                assert_fails(random_model_file(&o, &err), &err, "cannot be run; want");
                assert_false(file_exists(path));
                continue;
            }
            assert_ok(random_model_file(&o, &err), &err);
            assert_ok(model_file_open(&f, path, &err), &err);
            assert_ok(model_bind(&m, f, &err), &err);
            assert_int_equal(m.config.n_layers, n);
            model_release(&m);
            model_file_close(f);
            unlink(path);
        }
    struct random_model_options deep = { .shape = "toy", .type = "Q8_0", .output = path, .n_layers = 1025 };
    struct err err = { 0 };
    assert_fails(random_model_file(&deep, &err), &err, "with 1025 layers cannot be run; want 1 to 1024");
}

// Cut anywhere: the layers that read K and V of others keep their part of all layers, as far as both kinds of
// layers are before them.
static void layers_that_share_are_cut_together(void **state)
{
    static const struct {
        const char *shape;
        uint32_t n_layers, n_shared;
    } cuts[] = { { "toy-gemma4-e2b", 1, 0 },    { "toy-gemma4-e2b", 2, 0 }, { "toy-gemma4-e2b", 3, 0 },
                 { "toy-gemma4-e2b", 4, 1 },    { "toy-gemma4-e2b", 5, 2 }, { "toy-gemma4-e2b", 6, 3 },
                 { "toy-gemma4-e2b", 7, 4 },    { "toy-gemma4-e2b", 8, 4 }, { "toy-gemma4-e2b", 29, 16 },
                 { "toy-gemma4-dense", 29, 0 }, { "gemma-4-e2b", 0, 20 },   { "gemma-4-e2b", 4, 1 },
                 { "gemma-4-e2b", 6, 1 },       { "gemma-4-e2b", 9, 4 },    { "gemma-4-e4b", 0, 18 },
                 { "gemma-4-e4b", 12, 5 } };

    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        struct model m;
        struct model_file *f = bind_hollow(cuts[i].shape, cuts[i].n_layers, &m);
        uint32_t n = m.config.n_layers, own = n - cuts[i].n_shared;
        const struct file_tensor *inputs = model_file_tensor(f, "per_layer_token_embd.weight");
        for (uint32_t l = 0; l < n; l++) {
            const struct layer_config *c = &m.layer_configs[l];
            assert_true(l < own ? c->pages_of == l : c->pages_of < own);
            assert_int_equal(m.layer_configs[c->pages_of].rope, c->rope);
        }
        assert_int_equal(inputs ? inputs->dims[1] : 0, m.config.n_inputs);
        model_release(&m);
        model_file_close(f);
    }
}

// Millions of parameters of the text, without layers that draft. LFM2's are published to the last one, the
// others rounder, and agree.
static void shapes_are_of_the_models_that_they_name(void **state)
{
    static const struct {
        const char *shape;
        double millions;
    } models[] = { { "gemma-3-270m", 268.1 },
                   { "gemma-3-27b", 27009 },
                   { "gemma-4-e2b", 4629 },
                   { "gemma-4-e4b", 7463 },
                   { "gemma-4-12b", 11907 },
                   { "gemma-4-31b", 30697 },
                   { "gemma-4-26b-a4b", 25233 },
                   { "olmo-2-1b", 1485 },
                   { "olmo-2-7b", 7299 },
                   { "olmo-2-13b", 13716 },
                   { "olmo-2-32b", 32234 },
                   { "olmo-3-7b", 7298 },
                   { "olmo-3-32b", 32234 },
                   { "smollm3-3b", 3075 },
                   { "phi-4", 14660 },
                   { "phi-4-mini", 3836 },
                   { "granite-3.3-2b", 2534 },
                   { "granite-3.3-8b", 8171 },
                   { "granite-4.0-350m", 352.4 },
                   { "granite-4.0-1b", 1632 },
                   { "granite-4.0-micro", 3403 },
                   { "granite-4.0-h-1b", 1462 },
                   { "granite-4.0-h-micro", 3191 },
                   { "granite-4.0-h-tiny", 6939 },
                   { "granite-4.0-h-small", 32207 },
                   { "ministral-3-3b", 3429 },
                   { "ministral-3-8b", 8490 },
                   { "ministral-3-14b", 13506 },
                   { "devstral-small-2-24b", 23572 },
                   { "glm-4-9b", 9400 },
                   { "glm-4-32b", 32566 },
                   { "lfm2-350m", 354.48 },
                   { "lfm2-700m", 742.49 },
                   { "lfm2-1.2b", 1170.34 },
                   { "lfm2-2.6b", 2569.27 },
                   { "lfm2-8b-a1b", 8340 },
                   { "nemotron-3-nano", 31578 },
                   { "mistral-small-4", 118973 },
                   { "qwen3.5-0.8b", 752.4 },
                   { "qwen3.5-35b-a3b", 34661 },
                   { "qwen3.5-122b-a10b", 122112 },
                   { "qwen3.5-397b-a17b", 396346 } };

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct model m;
        struct model_file *f = bind_hollow(models[i].shape, 0, &m);
        check_parameters(models[i].shape, m.n_parameters, models[i].millions, 1e-3);
        model_release(&m);
        model_file_close(f);
    }
}

// As many as published GGUF files hold; llama.cpp's loader tells the number.
static void shapes_have_the_tensors_of_files(void **state)
{
    static const struct {
        const char *shape;
        size_t n_tensors;
    } models[] = { { "glm-4-9b", 523 }, { "glm-4-32b", 613 }, { "phi-4-mini", 196 } };

    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct model m;
        struct model_file *f = bind_hollow(models[i].shape, 0, &m);
        assert_int_equal(model_file_n_tensors(f), models[i].n_tensors);
        assert_int_equal(m.config.rope[0].type == ROPE_LONG, i == 2);
        model_release(&m);
        model_file_close(f);
    }
}

// A hollow file is as long as another, holds the same tensors, and takes next to no room.
static void a_hollow_file_has_all_but_the_weights(void **state)
{
    struct random_model_options o = { .shape = "toy-wide", .type = "BF16", .output = path, .hollow = true };
    struct err err = { 0 };
    struct stat full, hollow;
    struct model_file *f;

    (void)state;
    model_file_close(made("toy-wide", "BF16"));
    assert_int_equal(stat(path, &full), 0);
    assert_ok(random_model_file(&o, &err), &err);
    assert_int_equal(stat(path, &hollow), 0);
    assert_int_equal(hollow.st_size, full.st_size);
    assert_true(hollow.st_blocks * 512 < full.st_size / 8);
    assert_ok(model_file_open(&f, path, &err), &err);
    const struct file_tensor *q = model_file_tensor(f, "blk.1.attn_q.weight"),
                             *norm = model_file_tensor(f, "output_norm.weight");
    for (uint64_t i = 0; i < q->bytes; i++)
        assert_int_equal(((const unsigned char *)q->data)[i], 0);
    assert_true(*(const float *)norm->data == 1);
    model_file_close(f);
}

static bool stop(void *arg, uint64_t done, uint64_t total)
{
    (void)arg;
    return done < total / 2;
}

static bool stop_at_once(void *arg, uint64_t done, uint64_t total)
{
    (void)arg;
    return done == 0 || total == 0;
}

static void the_same_seed_gives_the_same_file(void **state)
{
    (void)state;
    struct buf a = { 0 }, b = { 0 };
    struct err err = { 0 };
    model_file_close(made("toy", "Q5_K_M"));
    assert_ok(file_read(&a, path, 1 << 24, &err), &err);
    model_file_close(made("toy", "Q5_K_M"));
    assert_ok(file_read(&b, path, 1 << 24, &err), &err);
    assert_true(str_eq(buf_as_str(&a), buf_as_str(&b)));
    buf_free(&a);
    buf_free(&b);
}

static void bad_requests_leave_nothing(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct random_model_options o = { .shape = "llama-9000b", .type = "Q4_0", .output = path };
    assert_fails(random_model_file(&o, &err), &err, "unknown shape 'llama-9000b'");
    o.shape = "toy";
    o.type = "Q4_X";
    assert_fails(random_model_file(&o, &err), &err, "unknown type 'Q4_X'");
    o.type = "I32";
    assert_fails(random_model_file(&o, &err), &err, "unknown type 'I32'");
    o.type = "F16";
    o.progress = stop;
    assert_fails(random_model_file(&o, &err), &err, "stopped");
    assert_false(file_exists(path));
    o.progress = stop_at_once;
    for (size_t i = 0; random_shape_at(i); i++) { // every name on the list is known
        o.shape = random_shape_at(i)->name;
        assert_fails(random_model_file(&o, &err), &err, "stopped");
    }
    assert_false(file_exists(path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_format_has_weights_of_a_sensible_size, name_file, remove_file),
        cmocka_unit_test_setup_teardown(formats_of_grids_are_spread, name_file, remove_file),
        cmocka_unit_test_setup_teardown(parts_of_a_matrix_are_spread_too, name_file, remove_file),
        cmocka_unit_test_setup_teardown(vectors_have_no_heads, name_file, remove_file),
        cmocka_unit_test_setup_teardown(a_plain_format_leaves_the_outside_at_q8_0, name_file, remove_file),
        cmocka_unit_test_setup_teardown(a_mix_is_what_quantize_makes, name_file, remove_file),
        cmocka_unit_test_setup_teardown(families_have_their_own_tensors, name_file, remove_file),
        cmocka_unit_test_setup_teardown(mixtures_have_experts, name_file, remove_file),
        cmocka_unit_test_setup_teardown(of_a_table_a_token_reads_a_row, name_file, remove_file),
        cmocka_unit_test_setup_teardown(some_have_a_layer_that_drafts, name_file, remove_file),
        cmocka_unit_test_setup_teardown(towers_belong_to_their_models, name_file, remove_file),
        cmocka_unit_test_setup_teardown(those_that_see_are_of_the_models_that_they_name, name_file,
                                        remove_file),
        cmocka_unit_test_setup_teardown(the_tokeniser_fills_the_vocabulary, name_file, remove_file),
        cmocka_unit_test_setup_teardown(no_file_that_nothing_can_run, name_file, remove_file),
        cmocka_unit_test_setup_teardown(layers_that_share_are_cut_together, name_file, remove_file),
        cmocka_unit_test_setup_teardown(shapes_are_of_the_models_that_they_name, name_file, remove_file),
        cmocka_unit_test_setup_teardown(shapes_have_the_tensors_of_files, name_file, remove_file),
        cmocka_unit_test_setup_teardown(a_hollow_file_has_all_but_the_weights, name_file, remove_file),
        cmocka_unit_test_setup_teardown(the_same_seed_gives_the_same_file, name_file, remove_file),
        cmocka_unit_test_setup_teardown(bad_requests_leave_nothing, name_file, remove_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
