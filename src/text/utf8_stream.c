// utf8_stream.c - see utf8_stream.h.
#include "text/utf8_stream.h"
#include "text/utf8.h"

bool utf8_stream_push(struct utf8_stream *stream, struct str bytes, struct buf *out)
{
    // at most 4 rounds: a kept part is completed or refused within 4 bytes
    while (bytes.n && stream->n_kept) {
        struct str head = { stream->kept, stream->n_kept + 1 };
        stream->kept[stream->n_kept] = bytes.at[0];
        bytes = str_from_to(bytes, 1, bytes.n);
        size_t cut = utf8_n_cut(head);
        utf8_append_valid(out, str_from_to(head, 0, head.n - cut));
        memmove(stream->kept, stream->kept + head.n - cut, cut);
        stream->n_kept = cut;
    }
    size_t cut = utf8_n_cut(bytes);
    utf8_append_valid(out, str_from_to(bytes, 0, bytes.n - cut));
    if (cut) {
        memcpy(stream->kept, bytes.at + bytes.n - cut, cut);
        stream->n_kept = cut;
    }
    return !out->failed;
}

bool utf8_stream_finish(struct utf8_stream *stream, struct buf *out)
{
    utf8_append_valid(out, (struct str){ stream->kept, stream->n_kept });
    stream->n_kept = 0;
    return !out->failed;
}
