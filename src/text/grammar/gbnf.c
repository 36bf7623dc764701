// gbnf.c - see gbnf.h.
#include "text/grammar/gbnf.h"

bool gbnf_literal(struct buf *out, struct str text)
{
    buf_text(out, "\"");
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.at[i];
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            buf_printf(out, "\\x%02x", c);
        else
            buf_append(out, &c, 1);
    }
    return buf_text(out, "\"");
}

void gbnf_times(struct buf *to, uint32_t least, uint32_t most)
{
    if (least == 0 && most == UINT32_MAX)
        buf_text(to, "*");
    else if (most == UINT32_MAX)
        buf_printf(to, "{%u,}", least);
    else
        buf_printf(to, "{%u,%u}", least, most);
}
