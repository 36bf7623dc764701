// prompt_pictures.c - see prompt_pictures.h.
#include "engine/prompt_pictures.h"
#include "base/mem.h"
#include "engine/api.h"
#include "engine/tiles.h"

// What the templates of the models that see write where a picture stands.
static const char *const marks[] = { "<image>", "<IMG_CONTEXT>" };

static struct str mark_of(const struct engine *e)
{
    return str_from(image_mark(&e->tiles->vision.tower.config.processor));
}

struct image_processor prompt_picture_processor(const struct engine *e, const struct ingot_request_options *o,
                                                size_t i)
{
    struct image_processor p = e->tiles->vision.tower.config.processor;

    p.split &= !(o->no_splits ? o->no_splits[i] : o->no_split);
    return p;
}

bool prompt_pictures_known(const struct tokenizer *tokenizer)
{
    bool known = false;

    for (size_t i = 0; tokenizer && i < sizeof marks / sizeof *marks; i++)
        known |= tokenizer_find(tokenizer, str_from(marks[i])) >= 0;
    return known;
}

bool prompt_sees(const struct engine *e, const struct ingot_request_options *o, struct err *err)
{
    if (!e->tiles)
        return tiles_refuse(err);
    return o->n_pictures <= PROMPT_MOST_PICTURES ||
           err_set(err, ERR_LIMIT, "%zu pictures; want at most %d in a request", o->n_pictures,
                   PROMPT_MOST_PICTURES);
}

// ---- parts of messages ------------------------------------------------------------------------------------

static size_t count_parts(json_t *messages)
{
    json_t *message, *part;
    size_t n = 0, i, k;

    json_array_foreach(messages, i, message)
    {
        json_array_foreach(json_object_get(message, "content"), k, part)
        {
            const char *type = json_string_value(json_object_get(part, "type"));
            n += type && strcmp(type, "image") == 0;
        }
    }
    return n;
}

// The message's text after n pictures.
static json_t *parts_before(json_t *content, size_t n)
{
    json_t *parts = json_is_array(content) ? json_copy(content)
                                           : json_pack("[{s:s, s:O}]", "type", "text", "text", content);

    for (size_t i = 0; parts && i < n; i++)
        if (json_array_insert_new(parts, 0, json_pack("{s:s}", "type", "image")) != 0) {
            json_decref(parts);
            return NULL;
        }
    return parts;
}

bool prompt_pictures_to_messages(const struct ingot_request_options *o, json_t *messages, struct err *err)
{
    size_t n = count_parts(messages);
    json_t *last = json_array_get(messages, json_array_size(messages) - 1),
           *content = json_object_get(last, "content");

    if (n == o->n_pictures)
        return true;
    if (n > 0)
        return err_set(err, ERR_INPUT,
                       "the messages have %zu places for pictures, and there are %zu pictures", n,
                       o->n_pictures);
    if (!json_is_array(content) && !json_is_string(content))
        return err_set(err, ERR_INPUT, "the last message has no content that a picture could stand before");
    json_t *parts = parts_before(content, o->n_pictures);
    return (parts && json_object_set_new(last, "content", parts) == 0) || err_memory(err, "messages");
}

// ---- marks ------------------------------------------------------------------------------------------------

static size_t count_marks(const struct prompt *p, struct str mark)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n_spans; i++) {
        struct str rest = p->spans[i].text;
        for (size_t at; p->spans[i].trusted && (at = str_find(rest, mark)) != SIZE_MAX; n++)
            rest = str_from_to(rest, at + mark.n, rest.n);
    }
    return n;
}

// The texts of the image places, one after the other; ends[i] is the end of picture i's.
static bool write_pictures(const struct engine *e, const struct ingot_request_options *o, struct buf *out,
                           size_t *ends, struct err *err)
{
    for (size_t i = 0; i < o->n_pictures; i++) {
        struct image_processor processor = prompt_picture_processor(e, o, i);
        const struct picture *picture = &o->pictures[i]->inner;
        uint32_t rows, cols;
        image_grid(&processor, picture->width, picture->height, &rows, &cols);
        if (!image_prompt(out, &processor, rows, cols))
            return err_memory(err, "the prompt");
        ends[i] = out->n;
    }
    return true;
}

struct placing {
    struct str mark;
    struct text_span *spans;
    size_t n_spans, n_placed;
    const struct buf *texts;
    const size_t *ends;
};

static void push_span(struct placing *to, struct str text, bool trusted)
{
    if (text.n)
        to->spans[to->n_spans++] = (struct text_span){ text, trusted };
}

static void push_picture(struct placing *to)
{
    size_t i = to->n_placed++, begin = i ? to->ends[i - 1] : 0;

    push_span(to, (struct str){ to->texts->at + begin, to->ends[i] - begin }, true);
}

static void push_placed(struct placing *to, const struct text_span *span)
{
    struct str rest = span->text;

    for (size_t at; span->trusted && (at = str_find(rest, to->mark)) != SIZE_MAX;) {
        push_span(to, str_from_to(rest, 0, at), true);
        push_picture(to);
        rest = str_from_to(rest, at + to->mark.n, rest.n);
    }
    push_span(to, rest, span->trusted);
}

bool prompt_pictures_place(const struct engine *e, const struct ingot_request_options *o, struct prompt *p,
                           struct err *err)
{
    struct str mark = mark_of(e);
    size_t n_marks = count_marks(p, mark), ends[PROMPT_MOST_PICTURES];
    struct placing to = { .mark = mark, .texts = &p->pictures, .ends = ends };

    if (n_marks != o->n_pictures && (n_marks > 0 || !o->text))
        return err_set(err, ERR_INPUT, "the prompt has %zu places for pictures, and there are %zu pictures%s",
                       n_marks, o->n_pictures,
                       n_marks ? "" : "; this model's chat template has no place for them");
    if (!write_pictures(e, o, &p->pictures, ends, err))
        return false;
    to.spans = mem_alloc_array(p->n_spans + 2 * o->n_pictures + 1, sizeof *to.spans);
    if (!to.spans)
        return err_memory(err, "the prompt");
    while (n_marks == 0 && to.n_placed < o->n_pictures)
        push_picture(&to);
    for (size_t i = 0; i < p->n_spans; i++)
        push_placed(&to, &p->spans[i]);
    mem_free(p->spans);
    p->spans = to.spans;
    p->n_spans = to.n_spans;
    p->has_pictures = true;
    return true;
}

void prompt_pictures_mark(const struct engine *e, struct token_ids *ids)
{
    int64_t image = tokenizer_find(e->loaded->tokenizer, mark_of(e));

    for (size_t i = 0; image >= 0 && i < ids->n; i++)
        if (ids->ids[i] == (uint64_t)image)
            ids->ids[i] = INGOT_IMAGE_PLACE;
}
