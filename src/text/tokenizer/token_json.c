// token_json.c - see token_json.h.
#include "text/tokenizer/token_json.h"

json_t *token_json(struct str bytes)
{
    json_t *piece = json_stringn(bytes.at, bytes.n);

    if (piece)
        return piece;
    piece = json_array();
    for (size_t i = 0; i < bytes.n; i++)
        json_array_append_new(piece, json_integer((unsigned char)bytes.at[i]));
    return piece;
}
