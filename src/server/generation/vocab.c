// vocab.c - see vocab.h.
#include "server/generation/vocab.h"

enum { FEWEST = 16, BYTES_OF_TOKEN = 8 }; // first guesses of the size of a result; most fit

bool vocab_encode(const struct ingot_engine *engine, struct str text, unsigned flags, struct token_ids *ids,
                  struct err *err)
{
    size_t room = text.n + FEWEST, n;

    do {
        if (!token_ids_reserve(ids, room))
            return err_memory(err, "tokens");
        int64_t got =
            ingot_encode(engine, text.at, text.n, flags, ids->ids + ids->n, room, (struct ingot_error *)err);
        if (got < 0)
            return false;
        n = (size_t)got;
    } while (n > room && (room = n));
    ids->n += n;
    return true;
}

bool vocab_decode(const struct ingot_engine *engine, const struct token_ids *ids, unsigned flags,
                  struct buf *text)
{
    size_t room = ids->n * BYTES_OF_TOKEN + FEWEST, n;

    do {
        if (!buf_reserve(text, room))
            return false;
        int64_t got = ingot_decode(engine, ids->ids, ids->n, flags, text->at + text->n, room + 1, NULL);
        if (got < 0)
            return false;
        n = (size_t)got;
    } while (n > room && (room = n));
    text->n += n;
    return true;
}

struct str vocab_bytes(const struct ingot_engine *engine, uint32_t token)
{
    struct ingot_token_info info;

    return ingot_token_info(engine, token, &info) ? (struct str){ info.bytes, info.n_bytes } : STR("");
}
