// picture_webp.c - WebP by libwebp; of an animation the first frame, at its place on the canvas. Transparency
// is put on white, and so is a frame that is smaller than the canvas.
#include "image/picture_codec.h"

static bool matches(struct str file)
{
    return file.n >= 12 && str_starts(file, STR("RIFF")) && !memcmp(file.at + 8, "WEBP", 4);
}

#ifdef INGOT_WEBP
#include <webp/decode.h>
#include <webp/demux.h>
#include "base/mem.h"

static const char *library(void)
{
    static _Thread_local char text[32];
    unsigned v = (unsigned)WebPGetDecoderVersion();

    snprintf(text, sizeof text, "%u.%u.%u", v >> 16 & 255, v >> 8 & 255, v & 255);
    return text;
}

static bool damaged(struct err *err, VP8StatusCode status)
{
    static const char *const texts[] = {
        [VP8_STATUS_OUT_OF_MEMORY] = "out of memory",
        [VP8_STATUS_INVALID_PARAM] = "the sizes contradict each other",
        [VP8_STATUS_BITSTREAM_ERROR] = "the file is damaged",
        [VP8_STATUS_UNSUPPORTED_FEATURE] = "not a kind that libwebp reads",
        [VP8_STATUS_SUSPENDED] = "the file is cut off",
        [VP8_STATUS_USER_ABORT] = "the file is damaged",
        [VP8_STATUS_NOT_ENOUGH_DATA] = "the file is cut off",
    };
    return err_set(err, status == VP8_STATUS_OUT_OF_MEMORY ? ERR_MEMORY : ERR_INPUT, "%s", texts[status]);
}

static WebPDemuxer *open_chunks(struct str file)
{
    return WebPDemux(&(WebPData){ (const uint8_t *)file.at, file.n });
}

static uint32_t orientation_of(struct str file)
{
    WebPDemuxer *chunks = open_chunks(file);
    WebPChunkIterator exif;
    uint32_t orientation = 1;

    if (chunks && WebPDemuxGetChunk(chunks, "EXIF", 1, &exif)) {
        orientation = picture_orientation((struct str){ (const char *)exif.chunk.bytes, exif.chunk.size });
        WebPDemuxReleaseChunkIterator(&exif);
    }
    WebPDemuxDelete(chunks);
    return orientation;
}

static bool head(struct picture_head *h, struct str file, struct err *err)
{
    WebPBitstreamFeatures features;
    VP8StatusCode status = WebPGetFeatures((const uint8_t *)file.at, file.n, &features);

    if (status != VP8_STATUS_OK)
        return damaged(err, status);
    h->width = (uint32_t)features.width;
    h->height = (uint32_t)features.height;
    h->orientation = orientation_of(file);
    return true;
}

// Decodes one still picture of this size into our memory.
static VP8StatusCode decode_into(uint8_t *pixels, uint32_t width, uint32_t height, bool alpha, WebPData data)
{
    size_t row_bytes = (size_t)width * (alpha ? 4 : 3);
    WebPDecoderConfig config;

    if (!WebPInitDecoderConfig(&config))
        return VP8_STATUS_INVALID_PARAM; // compiled against headers of another version
    config.output.colorspace = alpha ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = pixels;
    config.output.u.RGBA.stride = (int)row_bytes;
    config.output.u.RGBA.size = row_bytes * height;
    VP8StatusCode status = WebPDecode(data.bytes, data.size, &config);
    WebPFreeDecBuffer(&config.output);
    return status;
}

// Puts a frame with transparency, or smaller than p, on white at its place.
static bool place_frame(struct picture *p, const WebPIterator *frame, struct err *err)
{
    uint32_t width = (uint32_t)frame->width, height = (uint32_t)frame->height,
             left = (uint32_t)frame->x_offset, top = (uint32_t)frame->y_offset;

    if (left > p->width || width > p->width - left || top > p->height || height > p->height - top)
        return err_set(err, ERR_INPUT, "a frame of %u x %u pixels at %u, %u lies outside the canvas", width,
                       height, left, top);
    uint8_t *rgba = mem_alloc_array((size_t)width * height, 4);
    if (!rgba)
        return err_memory(err, "a frame");
    VP8StatusCode status = decode_into(rgba, width, height, true, frame->fragment);
    memset(p->rgb, 255, (size_t)p->width * p->height * 3);
    for (uint32_t y = 0; y < height; y++)
        picture_on_white(p->rgb + ((size_t)(top + y) * p->width + left) * 3, rgba + (size_t)y * width * 4,
                         width);
    mem_free(rgba);
    return status == VP8_STATUS_OK || damaged(err, status);
}

static bool decode(struct picture *p, struct str file, struct err *err)
{
    WebPDemuxer *chunks = open_chunks(file);
    WebPIterator frame;

    if (!chunks || !WebPDemuxGetFrame(chunks, 1, &frame)) {
        WebPDemuxDelete(chunks);
        return err_set(err, ERR_INPUT, "the file is cut off or damaged");
    }
    bool plain = !frame.has_alpha && (uint32_t)frame.width == p->width && (uint32_t)frame.height == p->height;
    VP8StatusCode status =
        plain ? decode_into(p->rgb, p->width, p->height, false, frame.fragment) : VP8_STATUS_OK;
    bool ok = plain ? status == VP8_STATUS_OK || damaged(err, status) : place_frame(p, &frame, err);
    WebPDemuxReleaseIterator(&frame);
    WebPDemuxDelete(chunks);
    return ok;
}
#else
static const char *library(void)
{
    return NULL;
}
#define head   NULL
#define decode NULL
#endif

const struct picture_codec picture_webp = { "WebP", "libwebp", library, matches, head, decode };
