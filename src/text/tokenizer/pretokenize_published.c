// pretokenize_published.c - the pre-tokenisers that a GGUF file names in tokenizer.ggml.pre, as their models'
// tokenizer.json has them.
//
// A GGUF file has only the name, which implies the original's normalisation too (NFC for the Qwen family). An
// unknown name is an error: a wrong pattern gives wrong ids silently.
#include "text/tokenizer/tokenizer_parts.h"

#define SPACES  "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT2    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3  ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define QWEN2   ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define QWEN35 \
    ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(end) \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end
#define TEKKEN CASED("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define GPT4O  CASED(ENDINGS "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define DEEPSEEK_LETTERS                                                                                     \
    "\\s?["                                                                                                  \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-" \
    "\\x{2af}"                                                                                               \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-"   \
    "\\x{3a1}"                                                                                               \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{"  \
    "13f5}"                                                                                                  \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{"    \
    "1d79}-"                                                                                                 \
    "\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{"    \
    "1f57}"                                                                                                  \
    "\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}" \
    "-\\x{1fc4}"                                                                                             \
    "\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{"    \
    "1ff6}-"                                                                                                 \
    "\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}"  \
    "\\x{212a}-"                                                                                             \
    "\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}" \
    "\\x{2c00}-"                                                                                             \
    "\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{"     \
    "a69b}\\x{a722}"                                                                                         \
    "-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{"   \
    "fb17}"                                                                                                  \
    "\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}"  \
    "\\x{10c80}-"                                                                                            \
    "\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"                              \
    "]+"
#define DEEPSEEK_CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define DEEPSEEK_V3                                                                                       \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| " \
    "?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

enum { REGEXES_MAX = 7, NAMES_MAX = 14 };

static const struct published {
    const char *names[NAMES_MAX];
    const char *regexes[REGEXES_MAX];
    bool nfc, ignore_merges, add_bos;
} PUBLISHED[] = {
    { .names = { "gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "mpt", "olmo", "jais",
                 "trillion", "granite-docling", "roberta-bpe", "exaone4", "modern-bert" },
      .regexes = { GPT2 } },
    { .names = { "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b" },
      .regexes = { "\\p{N}", GPT2 } },
    { .names = { "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
                 "jina-v5-nano" },
      .regexes = { LLAMA3 },
      .ignore_merges = true,
      .add_bos = true },
    { .names = { "smaug-bpe", "dbrx", "glm4", "chatglm-bpe" }, .regexes = { LLAMA3 } },
    { .names = { "qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "f2llmv2", "solar-open" },
      .regexes = { QWEN2 },
      .nfc = true },
    { .names = { "qwen35" }, .regexes = { QWEN35 }, .nfc = true },
    { .names = { "tekken" }, .regexes = { TEKKEN }, .ignore_merges = true, .add_bos = true },
    { .names = { "gpt-4o", "llama4", "kanana2", "minimax-m2" }, .regexes = { GPT4O } },
    { .names = { "deepseek-llm" },
      .regexes = { "[\\r\\n]", DEEPSEEK_LETTERS,
                   "\\s?[!-/"
                   ":-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
                   "\\s+$", DEEPSEEK_CJK, "\\p{N}" } },
    { .names = { "deepseek-coder" },
      .regexes = { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, "\\p{N}" } },
    { .names = { "falcon" }, .regexes = { "[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]" } },
    { .names = { "default" },
      .regexes = { "[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]" } },
    { .names = { "deepseek-v3", "hunyuan-dense" },
      .regexes = { "\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
                   DEEPSEEK_V3 } },
};

static const struct published *find_published(struct str name)
{
    for (size_t i = 0; i < sizeof PUBLISHED / sizeof PUBLISHED[0]; i++)
        for (size_t j = 0; j < NAMES_MAX && PUBLISHED[i].names[j]; j++)
            if (str_is(name, PUBLISHED[i].names[j]))
                return &PUBLISHED[i];
    return NULL;
}

bool pretokenize_add_published(struct tokenizer *t, struct str name, bool *add_bos, struct err *err)
{
    const struct published *p = find_published(name);

    if (!p)
        return err_set(err, ERR_UNSUPPORTED,
                       "tokenizer.ggml.pre is '%.*s', which is not known: expected gpt-2, smollm, llama-bpe, "
                       "qwen2, tekken, glm4, "
                       "deepseek-llm, deepseek-coder, deepseek-v3, falcon or a relative of these",
                       STR_ARG(name));
    if (p->nfc)
        t->normal[t->n_normal++] = (struct normal_step){ .kind = NORMAL_FORM, .form = UNICODE_NFC };
    t->ignore_merges = p->ignore_merges;
    *add_bos = p->add_bos;
    for (size_t i = 0; i < REGEXES_MAX && p->regexes[i]; i++)
        if (!pretokenize_add_split(t, str_from(p->regexes[i]), SPLIT_ISOLATED, err))
            return false;
    return true;
}
