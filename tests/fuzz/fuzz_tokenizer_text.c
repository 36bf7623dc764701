// fuzz_tokenizer_text.c - any bytes as a text of trusted and typed parts, for a byte-level, a SentencePiece
// and a unigram vocabulary.
//
// Byte 0 picks the tokeniser, byte 1 where the typed part begins (in 256ths) and byte 2 where it ends.
// Checked: a byte-level text comes back whole; no control token is made without trust; the parts give the ids
// of the whole when nothing is trusted.
#include <stdlib.h>
#include "text/tokenizer/tokenizer_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_KINDS = 5 };

static const char *const STEPS[N_KINDS] = {
    "\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}",
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
    "\"\\\\s+$\"},"
    "\"behavior\":"
    "\"Isolated\"},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}"
    "\\\\p{M}]*[\\\\p{Ll}"
    "\\\\p{M}]+|"
    "\\\\p{N}{1,3}|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"MergedWithNext\"},{\"type\":"
    "\"ByteLevel\","
    "\"add_prefix_space\":false,\"use_regex\":false}]}",
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"
    "\"\xe2\x96\x81\"},{\"type\":"
    "\"Replace\","
    "\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}]}",
    "\"normalizer\":{\"type\":\"NFKC\"},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":"
    "\"\xe2\x96\x81\"}",
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},{\"type\":\"Lowercase\"},{"
    "\"type\":"
    "\"StripAccents\"},"
    "{\"type\":\"Strip\"}]},\"pre_tokenizer\":{\"type\":\"ByteLevel\"}",
};

static void write_vocab(struct buf *json, int kind)
{
    static const char *const PIECES[] = { "\xe2\x96\x81", "a", "b", "ab", "\xe2\x96\201ab", "aa", "aaaa",
                                          "\xe4\xb8\x96", "e" };
    bool level = kind < 2 || kind == 4;
    uint32_t n = 0;
    for (int byte = 0; byte < 256; byte++) {
        char text[4];
        int length = (int)utf8_write(text, tokenizer_byte_code((unsigned char)byte));
        const char *quote = byte == '"' || byte == '\\' ? "\\" : "";
        if (kind == 3)
            buf_printf(json, "[\"<0x%02X>\",-9],", byte);
        else if (level)
            buf_printf(json, "\"%s%.*s\":%u,", quote, length, text, n++);
        else
            buf_printf(json, "\"<0x%02X>\":%u,", byte, n++);
    }
    for (size_t i = 0; i < sizeof PIECES / sizeof PIECES[0]; i++) {
        const char *comma = i ? "," : "";
        if (kind == 3)
            buf_printf(json, "%s[\"%s\",-%zu.5]", comma, PIECES[i], i);
        else if (!level || (strlen(PIECES[i]) > 1 && PIECES[i][0] == 'a'))
            buf_printf(json, "%s\"%s\":%u", level && strcmp(PIECES[i], "ab") == 0 ? "" : comma, PIECES[i],
                       n++);
    }
}

static struct tokenizer *make(int kind)
{
    struct buf json = { 0 };
    struct tokenizer *t;
    struct err err = { 0 };

    buf_printf(&json,
               "{%s,\"decoder\":{\"type\":\"%s\"},\"added_tokens\":[{\"id\":300,\"content\":\"<s>\","
               "\"special\":true},"
               "{\"id\":301,\"content\":\"<think>\",\"special\":false,\"normalized\":false},"
               "{\"id\":302,\"content\":\"aba\",\"special\":false,\"lstrip\":true,\"single_word\":true}],"
               "\"model\":{\"type\":\"%s\",\"byte_fallback\":%s,\"unk_id\":0,\"vocab\":%s",
               STEPS[kind], kind == 2 || kind == 3 ? "ByteFallback" : "ByteLevel",
               kind == 3 ? "Unigram" : "BPE", kind == 2 || kind == 3 ? "true" : "false",
               kind == 3 ? "[" : "{");
    write_vocab(&json, kind);
    buf_text(&json, kind == 3 ? "]}}" : "},\"merges\":[\"a b\",\"a a\",\"aa aa\"]}}");
    if (!tokenizer_load_json(&t, buf_as_str(&json), &err)) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    buf_free(&json);
    return t;
}

static void check_round_trip(const struct tokenizer *t, struct str text, const struct token_ids *ids)
{
    struct buf valid = { 0 }, normal = { 0 }, out = { 0 };
    utf8_append_valid(&valid, text);
    if (t->n_normal)
        unicode_normalize(&normal, buf_as_str(&valid), UNICODE_NFC);
    tokenizer_decode(t, ids, true, &out);
    struct str expected = buf_as_str(t->n_normal ? &normal : &valid);
    // Only where no added token splits the text: normal forms do not cross one, and "aba" takes the space
    // before it.
    if (str_find(text, STR("<s>")) == SIZE_MAX && str_find(text, STR("<think>")) == SIZE_MAX &&
        str_find(text, STR("aba")) == SIZE_MAX)
        CHECK(str_eq(buf_as_str(&out), expected));
    buf_free(&valid);
    buf_free(&normal);
    buf_free(&out);
}

static void check_no_control(const struct tokenizer *t, const struct token_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++)
        CHECK(ids->ids[i] != 300);
    (void)t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *kinds[N_KINDS];
    struct token_ids ids = { 0 }, parts = { 0 };
    struct err err = { 0 };

    if (size < 3)
        return 0;
    int kind = data[0] % N_KINDS;
    if (!kinds[kind])
        kinds[kind] = make(kind);
    const struct tokenizer *t = kinds[kind];
    struct str text = { (const char *)data + 3, size - 3 };
    size_t from = text.n * data[1] / 256, to = from + (text.n - from) * data[2] / 256;
    struct text_span spans[] = { { str_from_to(text, 0, from), true },
                                 { str_from_to(text, from, to), false },
                                 { str_from_to(text, to, text.n), true } };
    bool ok = tokenizer_encode(t, text, (struct tokenize_flags){ 0 }, &ids, &err);
    CHECK(ok);
    check_no_control(t, &ids);
    if (kind < 2)
        check_round_trip(t, text, &ids);
    CHECK(tokenizer_encode_spans(t, spans, 3, (struct tokenize_flags){ 0 }, &parts, &err));
    spans[0].trusted = spans[2].trusted = false;
    parts.n = 0;
    CHECK(tokenizer_encode_spans(t, spans, 3, (struct tokenize_flags){ 0 }, &parts, &err));
    check_no_control(t, &parts);
    if (utf8_is_valid(text) && utf8_is_valid(spans[0].text) && utf8_is_valid(spans[1].text)) {
        CHECK(parts.n == ids.n);
        CHECK(ids.n == 0 || memcmp(parts.ids, ids.ids, ids.n * sizeof *ids.ids) == 0);
    }
    token_ids_free(&ids);
    token_ids_free(&parts);
    return 0;
}
