// pictures.c - see pictures.h.
//
// Pictures come in the body, and its limits bound them. A server that fetched URLs would let clients reach
// hosts that only the server can reach (SSRF).
#include "server/api/pictures.h"
#include <string.h>
#include <strings.h>
#include "base/base64.h"
#include "server/api/api_request.h"

static bool add(struct api_request *request, struct ingot_picture *picture, struct err *err)
{
    struct pictures *p = &request->pictures;
    u32 width, height;

    p->at[p->n++] = picture;
    ingot_picture_size(picture, &width, &height);
    p->n_pixels += (u64)width * height;
    return p->n_pixels <= request->limits->pixels ||
           err_set(err, ERR_INPUT, "the pictures have %llu pixels up to this one; at most %u in a request",
                   (unsigned long long)p->n_pixels, request->limits->pixels);
}

static bool decode(struct str text, struct buf *bytes, struct err *err)
{
    if (!buf_reserve(bytes, base64_room(text.n)))
        return err_memory(err, "a picture");
    struct str decoded = base64_decode(text, bytes->at, bytes->capacity);
    bytes->n = decoded.n;
    return decoded.n || err_set(err, ERR_INPUT,
                                "%s; want base64 in groups of four characters, without blanks and line ends",
                                text.n == 0 ? "the picture has no base64" : "its base64 is broken");
}

static bool take(struct api_request *request, struct str base64, struct err *err)
{
    struct buf bytes = { 0 };

    if (!request->pictures.accepted)
        return err_set(err, ERR_UNSUPPORTED, "this model has no eyes: it reads text only, no pictures");
    if (request->pictures.n == PICTURES_MOST)
        return err_set(err, ERR_INPUT, "more than %d pictures in a request", PICTURES_MOST);
    struct ingot_picture *picture =
        decode(base64, &bytes, err) ? ingot_picture_from_memory(bytes.at, bytes.n, (struct ingot_error *)err)
                                    : NULL;
    buf_free(&bytes);
    if (!picture && err->code == ERR_LIMIT) // the limit is the picture's, not the context's
        err->code = ERR_INPUT;
    return picture && add(request, picture, err);
}

// The picture lies elsewhere; `as`: what its bytes are sent as.
static bool refuse_elsewhere(const char *why, const char *as, struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED, "this server %s: send the picture itself, as %s", why, as);
}

#define DATA_URL "data:image/png;base64,..."

static bool take_url(struct api_request *request, json_t *value, const char *as, struct err *err)
{
    struct str url = { json_string_value(value), json_string_length(value) };

    if (!url.at)
        return err_set(err, ERR_INPUT, "the picture has no URL; want " DATA_URL);
    if (strncasecmp(url.at, "http:", 5) == 0 || strncasecmp(url.at, "https:", 6) == 0)
        return refuse_elsewhere("fetches nothing", as, err);
    const char *comma = strchr(url.at, ',');
    if (strncasecmp(url.at, "data:", 5) != 0 || !comma || comma - url.at < 12 ||
        strncasecmp(comma - 7, ";base64", 7) != 0)
        return err_set(err, ERR_INPUT, "the picture's URL begins with \"%.24s\"; want " DATA_URL, url.at);
    return take(request, str_from_to(url, (size_t)(comma + 1 - url.at), url.n), err);
}

static bool take_detail(struct api_request *request, json_t *value, struct err *err)
{
    const char *word = json_string_value(value);

    if (!value || json_is_null(value))
        return true;
    request->pictures.low[request->pictures.n - 1] = word && strcmp(word, "low") == 0;
    return (word && (!strcmp(word, "low") || !strcmp(word, "high") || !strcmp(word, "auto"))) ||
           err_set(err, ERR_INPUT, "the picture's detail is \"%.24s\"; want low, high or auto",
                   word ? word : "?");
}

static bool take_source(struct api_request *request, json_t *source, struct err *err)
{
    static const char as[] = "a source of type base64";
    const char *type = json_string_value(json_object_get(source, "type"));

    if (type && !strcmp(type, "url"))
        return take_url(request, json_object_get(source, "url"), as, err);
    if (type && !strcmp(type, "file"))
        return refuse_elsewhere("keeps no files", as, err);
    if (!type || strcmp(type, "base64") != 0)
        return err_set(err, ERR_UNSUPPORTED, "the picture's source has the type \"%.40s\"; want base64",
                       type ? type : "?");
    return pictures_take_base64(request, json_object_get(source, "data"), err);
}

static bool is(json_t *part, const char *type)
{
    const char *word = json_string_value(json_object_get(part, "type"));
    return word && strcmp(word, type) == 0;
}

bool pictures_is_part(json_t *part)
{
    return is(part, "image_url") || is(part, "input_image") || is(part, "image");
}

bool pictures_take_part(struct api_request *request, json_t *part, struct err *err)
{
    json_t *url = json_object_get(part, "image_url"), *holder = json_is_object(url) ? url : part;

    if (is(part, "image"))
        return take_source(request, json_object_get(part, "source"), err);
    if (!url && json_object_get(part, "file_id"))
        return refuse_elsewhere("keeps no files", "image_url", err);
    return take_url(request, json_is_object(url) ? json_object_get(url, "url") : url, DATA_URL, err) &&
           take_detail(request, json_object_get(holder, "detail"), err);
}

bool pictures_take_base64(struct api_request *request, json_t *text, struct err *err)
{
    if (!json_is_string(text))
        return err_set(err, ERR_INPUT, "the picture has no data; want base64");
    return take(request, (struct str){ json_string_value(text), json_string_length(text) }, err);
}

void pictures_release(struct pictures *p)
{
    for (u32 i = 0; i < p->n; i++)
        ingot_picture_free(p->at[i]);
    *p = (struct pictures){ 0 };
}
