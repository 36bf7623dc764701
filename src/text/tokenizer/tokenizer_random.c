// tokenizer_random.c - see tokenizer_random.h.
//
// Byte-level BPE of any size: 256 bytes, three control tokens, then made-up words of consonants and vowels,
// each from two shorter ones by one merge. So every token can occur in a text, an answer of random tokens
// reads as words, and loading takes as long as that of a real vocabulary of this size. The speed of encoding
// is realistic; the number of tokens is not, because few words of a real text are tokens.
#include "text/tokenizer/tokenizer_random.h"
#include "base/arena.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/utf8.h"

enum {
    N_BYTES = 256,
    END_OF_TEXT = 256,
    TURN_END = 258,
    N_FIXED = TOKENIZER_RANDOM_LEAST,
    N_GRID = 4, // rows and columns of tiles
    N_MARKS = 3,
    N_VOWELS = 5,
    N_SYLLABLES = 100
};

static const char chat_template[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// As models that take pictures have it: contents may have parts.
#define PICTURE_TEMPLATE(mark)                                                               \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}"          \
    "{{ m.content }}{% else %}{% for part in m.content %}{% if part.type == 'image' %}" mark \
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"    \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

static const struct {
    const char *marks[N_MARKS];
    uint32_t n_marks, n_tiles; // tiles that have a mark
    const char *chat_template;
} kinds_of_pictures[] = {
    [TOKENIZER_NO_PICTURES] = { .chat_template = chat_template },
    [TOKENIZER_ROWS_OF_TILES] = { { "<image>", "<fake_token_around_image>", "<global-img>" },
                                  N_MARKS,
                                  N_GRID *N_GRID,
                                  PICTURE_TEMPLATE("<image>") },
    [TOKENIZER_TILES_TOGETHER] = { { "<IMG_CONTEXT>", "<img>", "</img>" },
                                   N_MARKS,
                                   0,
                                   PICTURE_TEMPLATE("<IMG_CONTEXT>") },
};

// A token and the merge that makes it, from its left and right part.
struct synth_word {
    char left[12], right[4];
};

static void add_syllable(char *text, uint32_t n)
{
    static const char consonants[] = "bcdfghjklmnpqrstvwxz", vowels[] = "aeiou";
    size_t at = strlen(text);

    text[at] = consonants[n / N_VOWELS];
    text[at + 1] = vowels[n % N_VOWELS];
}

// The n-th: 100 syllables, then words that begin with a space and have one, two, three syllables, in order.
static struct synth_word word_at(uint32_t n)
{
    struct synth_word w = { "", "" };
    uint32_t n_words = N_SYLLABLES;

    if (n < N_SYLLABLES) {
        add_syllable(w.left, n);
        w.right[0] = w.left[1];
        w.left[1] = 0;
        return w;
    }
    for (n -= N_SYLLABLES; n >= n_words; n_words *= N_SYLLABLES)
        n -= n_words;
    memcpy(w.left, "\xc4\xa0", 2); // a space in the byte alphabet
    for (n_words /= N_SYLLABLES; n_words > 0; n_words /= N_SYLLABLES)
        add_syllable(n_words > 1 ? w.left : w.right, n / n_words % N_SYLLABLES);
    return w;
}

static struct str fixed_token(struct arena *arena, enum tokenizer_random_pictures pictures, uint32_t id)
{
    static const char *const control[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };
    char text[20] = "";

    if (id >= N_FIXED + N_MARKS) {
        uint32_t at = id - N_FIXED - N_MARKS;
        snprintf(text, sizeof text, "<row_%u_col_%u>", at / N_GRID + 1, at % N_GRID + 1);
        return arena_str(arena, str_from(text));
    }
    if (id >= N_FIXED)
        return str_from(kinds_of_pictures[pictures].marks[id - N_FIXED]);
    if (id >= N_BYTES)
        return str_from(control[id - N_BYTES]);
    return arena_str(arena, (struct str){ text, utf8_write(text, tokenizer_byte_code((unsigned char)id)) });
}

struct vocabulary {
    struct arena *arena;
    struct str *tokens, *merges;
    int32_t *kinds;
    enum tokenizer_random_pictures pictures;
    uint32_t n_fixed; // before the words
};

static bool make_vocabulary(struct vocabulary *v, uint32_t n_vocab)
{
    v->tokens = arena_alloc_array(v->arena, n_vocab, sizeof *v->tokens);
    v->merges = arena_alloc_array(v->arena, n_vocab, sizeof *v->merges);
    v->kinds = arena_alloc_array(v->arena, n_vocab, sizeof *v->kinds);
    if (!v->tokens || !v->merges || !v->kinds)
        return false;
    for (uint32_t id = 0; id < n_vocab; id++) {
        struct synth_word w = word_at(id < v->n_fixed ? 0 : id - v->n_fixed);
        char text[16], merge[20];
        snprintf(text, sizeof text, "%s%s", w.left, w.right);
        snprintf(merge, sizeof merge, "%s %s", w.left, w.right);
        v->kinds[id] = id >= N_BYTES && id < v->n_fixed ? 3 : 1; // GGUF: control, normal
        v->tokens[id] =
            id < v->n_fixed ? fixed_token(v->arena, v->pictures, id) : arena_str(v->arena, str_from(text));
        if (id >= v->n_fixed)
            v->merges[id - v->n_fixed] = arena_str(v->arena, str_from(merge));
        if (!v->tokens[id].at || (id >= v->n_fixed && !v->merges[id - v->n_fixed].at))
            return false;
    }
    return true;
}

bool tokenizer_random_write(uint32_t n_vocab, enum tokenizer_random_pictures pictures, struct gguf_writer *w,
                            struct err *err)
{
    struct vocabulary v = { .pictures = pictures,
                            .n_fixed = N_FIXED + kinds_of_pictures[pictures].n_marks +
                                       kinds_of_pictures[pictures].n_tiles };

    CHECK(n_vocab >= v.n_fixed && n_vocab <= TOKENIZER_SYNTH_MOST);
    v.arena = arena_create((size_t)1 << 28);
    bool ok = v.arena && make_vocabulary(&v, n_vocab);

    if (ok) {
        gguf_write_str(w, "tokenizer.ggml.model", STR("gpt2"));
        gguf_write_str(w, "tokenizer.ggml.pre", STR("gpt-2"));
        gguf_write_strs(w, "tokenizer.ggml.tokens", v.tokens, n_vocab);
        gguf_write_i32s(w, "tokenizer.ggml.token_type", v.kinds, n_vocab);
        gguf_write_strs(w, "tokenizer.ggml.merges", v.merges, n_vocab - v.n_fixed);
        gguf_write_u32(w, "tokenizer.ggml.eos_token_id", TURN_END);
        gguf_write_u32(w, "tokenizer.ggml.padding_token_id", END_OF_TEXT);
        gguf_write_bool(w, "tokenizer.ggml.add_bos_token", false);
        gguf_write_str(w, "tokenizer.chat_template", str_from(kinds_of_pictures[pictures].chat_template));
    }
    arena_destroy(v.arena);
    return ok || err_memory(err, "a vocabulary");
}
