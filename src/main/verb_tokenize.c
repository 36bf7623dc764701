// verb_tokenize.c - ingot tokenize: ids and pieces of a text.
#include "engine/embedded.h"
#include "main/loading.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/out_json.h"
#include "text/tokenizer/token_json.h"
#include "text/tokenizer/tokenizer.h"

// A piece is printed as a JSON string, so that spaces and newlines are visible; bytes that are not UTF-8 as
// <E2>.
static void show_piece(struct str bytes)
{
    json_t *text = json_stringn(bytes.at, bytes.n);

    for (size_t i = 0; i < bytes.n && !text; i++)
        out_printf("<%02X>", (unsigned char)bytes.at[i]);
    out_json(text, 0);
}

static void print_ids(const struct token_ids *ids)
{
    out_text("[");
    for (size_t i = 0; i < ids->n; i++)
        out_printf("%s%u", i ? ", " : "", ids->ids[i]);
    out_text("]");
}

static void print_json(const struct tokenizer *t, const struct token_ids *ids)
{
    json_t *numbers = json_array(), *pieces = json_array();

    for (size_t i = 0; i < ids->n; i++) {
        json_array_append_new(numbers, json_integer(ids->ids[i]));
        json_array_append_new(pieces, token_json(tokenizer_token_bytes(t, ids->ids[i], true)));
    }
    out_json(json_pack("{s:I, s:o, s:o}", "n", (json_int_t)ids->n, "ids", numbers, "pieces", pieces), 0);
    out_text("\n");
}

static void print_lines(const struct tokenizer *t, const struct token_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++) {
        out_printf("%7u  ", ids->ids[i]);
        show_piece(tokenizer_token_bytes(t, ids->ids[i], true));
        out_text("\n");
    }
}

static int tokenize(const struct settings *s, struct str text)
{
    struct model_file *file = NULL;
    struct tokenizer *t = NULL;
    struct token_ids ids = { 0 };
    struct err err;
    bool ok = embedded_or_file(&file, s->model, &err) && tokenizer_load(&t, file, &err) &&
              tokenizer_encode(t, text, (struct tokenize_flags){ .parse_special = s->special }, &ids, &err);

    if (ok && s->ids) {
        print_ids(&ids);
        out_text("\n");
    } else if (ok && s->json) {
        print_json(t, &ids);
    } else if (ok) {
        print_lines(t, &ids);
    }
    token_ids_free(&ids);
    tokenizer_free(t);
    model_file_close(file);
    return ok ? out_finish() : fail(err.message);
}

int verb_tokenize(const struct verb_call *call)
{
    struct buf text = { 0 };
    bool given;

    if (!loading_prompt(call->settings, call->operands, &text, &given))
        return STATUS_ERROR;
    if (given && !call->settings->model)
        fputs("the tokens of the toy inside ingot; -m takes another model\n", stderr);
    int status = given ? tokenize(call->settings, buf_as_str(&text))
                       : fail_usage("tokenize: give a text with -p, -f or a pipe");
    buf_free(&text);
    return status;
}
