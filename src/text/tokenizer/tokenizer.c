// tokenizer.c - common to both loaders: indexes a loaded vocabulary, and decodes ids to text.
#include "text/tokenizer/tokenizer_parts.h"
#include "base/mem.h"
#include "format/model_file.h"

static const size_t ARENA_MAX = (size_t)8 << 30;

// Control tokens with these names end an answer even if the file does not say so.
static const char *const END_NAMES[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "</s>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>", // Gemma 4: behind calls
    "<|return|>",
    "<|call|>",
    "<|user|>",
    "<|observation|>",
    "<EOT>",
    "[EOT]",
    "[EOS]",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_utterance>",
    "<\xef\xbd\234end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
};

bool tokenizer_load(struct tokenizer **t, const struct model_file *file, struct err *err)
{
    *t = NULL;
    return model_file_format(file) == MODEL_GGUF ? tokenizer_load_gguf(t, file, err)
                                                 : tokenizer_load_files(t, file, err);
}

struct tokenizer *tokenizer_create(struct err *err)
{
    struct tokenizer *t = mem_alloc(sizeof *t);
    if (t)
        t->arena = arena_create(ARENA_MAX);
    if (!t || !t->arena) {
        mem_free(t);
        err_memory(err, "a tokenizer");
        return NULL;
    }
    t->unknown = t->bos = t->eos = t->pad = -1;
    for (int i = 0; i < N_FIM; i++)
        t->fim[i] = -1;
    return t;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i < t->n_normal; i++)
        pattern_free(t->normal[i].pattern);
    for (uint32_t i = 0; i < t->n_pretoken; i++)
        pattern_free(t->pretoken[i].pattern);
    arena_destroy(t->arena);
    mem_free(t);
}

// GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the 68 others for U+0100 and up in their
// order.
static bool stands_for_itself(unsigned char byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
}

uint32_t tokenizer_byte_code(unsigned char byte)
{
    if (stands_for_itself(byte))
        return byte;
    return byte <= ' ' ? 0x100u + byte : byte <= 0xa0 ? 0x100u + 33 + (byte - 0x7fu) : 0x143;
}

// Or -1.
static int byte_alphabet_byte(uint32_t cp)
{
    if (cp < 0x100)
        return stands_for_itself((unsigned char)cp) ? (int)cp : -1;
    if (cp <= 0x120)
        return (int)cp - 0x100;
    return cp <= 0x142 ? (int)cp - 0x121 + 0x7f : cp == 0x143 ? 0xad : -1;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int tokenizer_byte_value(struct str text)
{
    if (text.n != 6 || !str_starts(text, STR("<0x")) || text.at[5] != '>')
        return -1;
    int high = hex_digit(text.at[3]), low = hex_digit(text.at[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

bool tokenizer_check_text(struct str text, uint64_t index, const char *what, size_t max, struct err *err)
{
    if (!utf8_is_valid(text))
        return err_set(err, ERR_INPUT, "%s %llu is not valid UTF-8", what, (unsigned long long)index);
    if (text.n > max)
        return err_set(err, ERR_INPUT, "%s %llu has %zu bytes: at most %zu are supported", what,
                       (unsigned long long)index, text.n, max);
    return true;
}

// Decodes text in the byte alphabet; text with any other character is unchanged.
static void decode_byte_level(struct buf *out, struct str raw)
{
    size_t start = out->n;
    for (size_t i = 0; i < raw.n;) {
        uint32_t cp;
        i += utf8_read(raw.at + i, raw.n - i, &cp);
        int byte = byte_alphabet_byte(cp);
        if (byte < 0) {
            out->n = start;
            buf_str(out, raw);
            return;
        }
        char c = (char)byte;
        buf_append(out, &c, 1);
    }
}

static void decode_space_mark(struct buf *out, struct str raw)
{
    for (size_t i = 0; i < raw.n; i++) {
        bool mark = str_starts(str_from_to(raw, i, raw.n), STR("\xe2\x96\x81"));
        buf_append(out, mark ? " " : raw.at + i, 1);
        i += mark ? 2 : 0;
    }
}

static void decode_wordpiece(struct buf *out, const struct tokenizer *t, struct str raw)
{
    bool inner;
    struct str text = wordpiece_text(t, raw, &inner);

    buf_text(out, inner ? "" : " ");
    buf_str(out, text);
}

static bool decode_tokens(struct tokenizer *t, struct err *err)
{
    struct buf text = { .max = (size_t)4 << 30 };
    t->bytes = arena_alloc_array(t->arena, t->n_tokens, sizeof *t->bytes);
    bool ok = t->bytes != NULL;
    for (uint32_t id = 0; ok && id < t->n_tokens; id++) {
        int value = t->kinds[id] == TOKEN_BYTE ? tokenizer_byte_value(t->raw[id]) : -1;
        bool plain = t->kinds[id] == TOKEN_CONTROL || t->kinds[id] == TOKEN_UNKNOWN ||
                     t->kinds[id] == TOKEN_USER_DEFINED;
        text.n = 0;
        if (value >= 0)
            buf_append(&text, &(char){ (char)value }, 1);
        else if (t->model == TEXT_WORDPIECE && !plain)
            decode_wordpiece(&text, t, t->raw[id]);
        else if (t->byte_level && !plain)
            decode_byte_level(&text, t->raw[id]);
        else if (t->space_mark)
            decode_space_mark(&text, t->raw[id]);
        else
            buf_str(&text, t->raw[id]);
        bool same = str_eq(buf_as_str(&text), t->raw[id]);
        t->bytes[id] = same ? t->raw[id] : arena_str(t->arena, buf_as_str(&text));
        ok = !text.failed && t->bytes[id].at;
    }
    buf_free(&text);
    return ok || err_memory(err, "the vocabulary");
}

// Indexes the tokens that merges and lookups may produce. User-defined tokens are not among them: they are
// cut out before.
static bool map_tokens(struct tokenizer *t, struct err *err)
{
    const struct str *texts = t->byte_level ? t->bytes : t->raw;
    if (!text_map_init(&t->by_raw, t->arena, t->raw, t->n_tokens) ||
        !text_map_init(&t->by_text, t->arena, texts, t->n_tokens))
        return err_memory(err, "the vocabulary");
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        text_map_add(&t->by_raw, id);
        if (texts[id].n && (t->kinds[id] == TOKEN_NORMAL || t->kinds[id] == TOKEN_UNUSED))
            text_map_add(&t->by_text, id);
    }
    for (int byte = 0; byte < 256; byte++)
        t->byte_ids[byte] = t->byte_level
                                ? text_map_find(&t->by_text, (struct str){ &(char){ (char)byte }, 1 })
                                : LOOKUP_NONE;
    for (uint32_t id = 0; id < t->n_tokens; id++)
        if (t->kinds[id] == TOKEN_BYTE && tokenizer_byte_value(t->raw[id]) >= 0)
            t->byte_ids[tokenizer_byte_value(t->raw[id])] = id;
    return true;
}

// Control tokens are matched before normalisation, even if the file says `normalized`: trust is known for the
// bytes of the input only.
static bool is_normalized(const struct tokenizer *t, const struct added_token *token)
{
    return token->normalized && t->kinds[token->id] == TOKEN_USER_DEFINED && t->n_normal > 0;
}

static bool added_text(struct tokenizer *t, struct encode_run *run, uint32_t i, struct str *text)
{
    struct str raw = t->raw[t->added[i].id], normal;
    *text = raw;
    if (!is_normalized(t, &t->added[i]))
        return true;
    if (!normalize_apply(run, raw, &normal))
        return false;
    *text = arena_str(t->arena, normal);
    return text->at || err_memory(run->err, "an added token");
}

static bool index_added(struct tokenizer *t, bool normalized, struct trie *trie, struct err *err)
{
    struct trie_entry *entries = mem_alloc_array((size_t)t->n_added + 1, sizeof *entries);
    struct encode_run run = { .t = t, .err = err };
    bool ok = entries != NULL || err_memory(err, "added tokens");
    size_t n = 0;

    for (uint32_t i = 0; ok && i < t->n_added; i++) {
        struct str text;
        if (is_normalized(t, &t->added[i]) != normalized)
            continue;
        ok = tokenizer_check_text(t->raw[t->added[i].id], t->added[i].id, "added token", MATCHED_BYTES_MAX,
                                  err) &&
             added_text(t, &run, i, &text);
        if (ok && text.n)
            entries[n++] = (struct trie_entry){ text, i };
    }
    ok = ok && (trie_build(trie, t->arena, entries, n) || err_memory(err, "added tokens"));
    encode_run_free(&run);
    mem_free(entries);
    return ok;
}

static bool check_ids(struct tokenizer *t, struct err *err)
{
    struct {
        int64_t id;
        const char *name;
    } ids[] = { { t->unknown, "unknown" }, { t->bos, "bos" }, { t->eos, "eos" }, { t->pad, "pad" } };
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (ids[i].id < -1 || ids[i].id >= (int64_t)t->n_tokens)
            return err_set(err, ERR_INPUT,
                           "the %s token has id %lld: expected less than %u, the size of the vocabulary",
                           ids[i].name, (long long)ids[i].id, t->n_tokens);
    return true;
}

// Where an answer is several messages (gpt-oss), <|return|> ends it and <|end|> only one of them.
void tokenizer_leave_message_ends(struct tokenizer *t)
{
    uint32_t end = text_map_find(&t->by_raw, STR("<|end|>"));
    uint32_t last = text_map_find(&t->by_raw, STR("<|return|>"));

    if (end != LOOKUP_NONE && last != LOOKUP_NONE && t->kinds[last] == TOKEN_CONTROL)
        t->is_end[end] = false;
}

static bool mark_ends(struct tokenizer *t, struct err *err)
{
    t->is_end = arena_alloc_array(t->arena, t->n_tokens, sizeof *t->is_end);
    if (!t->is_end)
        return err_memory(err, "the vocabulary");
    for (size_t i = 0; i < sizeof END_NAMES / sizeof END_NAMES[0]; i++) {
        uint32_t id = text_map_find(&t->by_raw, str_from(END_NAMES[i]));
        if (id != LOOKUP_NONE && t->kinds[id] == TOKEN_CONTROL)
            t->is_end[id] = true;
    }
    if (t->eos >= 0)
        t->is_end[t->eos] = true;
    tokenizer_leave_message_ends(t);
    return true;
}

bool tokenizer_finish(struct tokenizer *t, struct err *err)
{
    if (!check_ids(t, err) || !decode_tokens(t, err) || !map_tokens(t, err))
        return false;
    if (!index_added(t, false, &t->added_raw, err) || !index_added(t, true, &t->added_normal, err) ||
        !mark_ends(t, err))
        return false;
    tokenizer_find_fim(t);
    return true;
}

struct str tokenizer_token_bytes(const struct tokenizer *t, uint32_t id, bool keep_special)
{
    if (id >= t->n_tokens)
        return STR("");
    bool special = t->kinds[id] == TOKEN_CONTROL || t->kinds[id] == TOKEN_UNKNOWN;
    return special && !keep_special ? STR("") : t->bytes[id];
}

bool tokenizer_decode(const struct tokenizer *t, const struct token_ids *ids, bool keep_special,
                      struct buf *out)
{
    struct buf bytes = { 0 };
    for (size_t i = 0; i < ids->n; i++)
        buf_str(&bytes, tokenizer_token_bytes(t, ids->ids[i], keep_special));
    struct str text = buf_as_str(&bytes);
    if (t->strip_space && str_starts(text, STR(" ")))
        text = str_from_to(text, 1, text.n);
    bool ok = !bytes.failed && utf8_append_valid(out, text);
    buf_free(&bytes);
    return ok;
}

uint32_t tokenizer_n_tokens(const struct tokenizer *t)
{
    return t->n_tokens;
}

enum token_kind tokenizer_kind(const struct tokenizer *t, uint32_t id)
{
    return id < t->n_tokens ? (enum token_kind)t->kinds[id] : TOKEN_UNUSED;
}

struct str tokenizer_raw(const struct tokenizer *t, uint32_t id)
{
    return id < t->n_tokens ? t->raw[id] : STR("");
}

int64_t tokenizer_find(const struct tokenizer *t, struct str raw)
{
    uint32_t id = text_map_find(&t->by_raw, raw);
    return id == LOOKUP_NONE ? -1 : (int64_t)id;
}

int64_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int64_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

bool tokenizer_is_end(const struct tokenizer *t, uint32_t id)
{
    return id < t->n_tokens && t->is_end[id];
}

struct str tokenizer_chat_template(const struct tokenizer *t)
{
    return t->chat_template;
}
