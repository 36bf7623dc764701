// image_prompt.c - the text of a picture's image places in a prompt of SmolVLM and Idefics3, or of InternVL;
// see image.h.
//
// Text and not ids: small models have a token for "<row_1_col_1>", larger ones spell it. The last row ends
// with two line ends.
#include "image/image.h"

const char *image_mark(const struct image_processor *p)
{
    return p->tiling == IMAGE_BY_ASPECT ? "<IMG_CONTEXT>" : "<image>";
}

static void places(struct buf *out, const struct image_processor *p)
{
    for (uint32_t i = 0; i < p->tokens_a_tile; i++)
        buf_text(out, image_mark(p));
}

// All tiles together.
static bool prompt_by_aspect(struct buf *out, const struct image_processor *p, uint32_t n_tiles)
{
    buf_text(out, "<img>");
    for (uint32_t i = 0; i < n_tiles; i++)
        places(out, p);
    return buf_text(out, "</img>");
}

bool image_prompt(struct buf *out, const struct image_processor *p, uint32_t rows, uint32_t cols)
{
    if (p->tiling == IMAGE_BY_ASPECT)
        return prompt_by_aspect(out, p, image_n_tiles(rows, cols));
    for (uint32_t r = 1; r <= rows; r++) {
        for (uint32_t c = 1; c <= cols; c++) {
            buf_printf(out, "<fake_token_around_image><row_%u_col_%u>", r, c);
            places(out, p);
        }
        buf_text(out, "\n");
    }
    buf_printf(out, "%s<fake_token_around_image><global-img>", rows ? "\n" : "");
    places(out, p);
    return buf_text(out, "<fake_token_around_image>");
}
