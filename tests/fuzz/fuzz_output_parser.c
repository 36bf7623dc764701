// fuzz_output_parser.c - libFuzzer: any bytes as an answer, whole and byte by byte: the same calls, and no
// more text than there was.
#include <stdlib.h>
#include "text/parsers/output_parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char known_tools[] =
    "[{\"function\":{\"name\":\"get\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"string\"},"
    "\"b\":{\"type\":\"integer\"},\"c\":"
    "{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}}}}}]";

struct heard {
    size_t n_content, n_reasoning, n_arguments, n_calls;
};

static void listen(struct output_parser *s, struct heard *h)
{
    struct output_piece piece;

    while (output_parser_next(s, &piece)) {
        h->n_content += piece.kind == PIECE_CONTENT ? piece.text.n : 0;
        h->n_reasoning += piece.kind == PIECE_REASONING ? piece.text.n : 0;
        h->n_arguments += piece.kind == PIECE_ARGUMENTS ? piece.text.n : 0;
        h->n_calls += piece.kind == PIECE_CALL;
    }
}

static struct heard hear(const struct output_parser_options *o, struct str text, size_t step)
{
    struct heard h = { 0 };
    struct output_parser s = { 0 };

    output_parser_init(&s, o);
    for (size_t i = 0; i < text.n; i += step) {
        output_parser_push(&s, str_from_to(text, i, text.n - i < step ? text.n : i + step));
        listen(&s, &h);
    }
    output_parser_finish(&s);
    listen(&s, &h);
    output_parser_release(&s);
    return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    static json_t *tools;
    if (!tools)
        tools = json_loads(known_tools, 0, NULL);
    static const char *const templates[] = { "", "[THINK]", "<|channel>", "<tool_call><function=" };
    enum tool_call_style style = (enum tool_call_style)(data[0] % 16);
    struct output_parser_options o = { .style = style || !(data[0] & 32) ? style : CALLS_TURNS,
                                       .reasoning_open = data[0] & 16,
                                       .tools = data[0] & 32 ? tools : NULL,
                                       .marks = reasoning_marks_of(str_from(templates[data[0] >> 6]), NULL) };
    struct str text = { (const char *)data + 1, size - 1 };
    struct heard whole = hear(&o, text, text.n), bytes = hear(&o, text, 1);

    if (memcmp(&whole, &bytes, sizeof whole) != 0 ||
        whole.n_content + whole.n_reasoning + whole.n_arguments >
            7 * text.n + 64) // a control character becomes an escape
        abort();
    return 0;
}
