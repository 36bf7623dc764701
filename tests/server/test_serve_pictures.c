// test_serve_pictures.c - pictures in every dialect, to a tiny model with eyes and random weights; and what
// is refused.
#include "server/shared.h"
#define N_OF(a) (sizeof(a) / sizeof *(a))

#define CHAT     "/v1/chat/completions"
#define RESPONSE "/v1/responses"
#define MESSAGES "/v1/messages"
#define COUNT    "/v1/messages/count_tokens"
#define OLLAMA   "/api/chat"
#define GENERATE "/api/generate"

// One pixel each, as PNG files.
#define GREY \
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
#define RED "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z6AAAAMhASBBa7giAAAAAElFTkSuQmCC"
#define NEW "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mMQLDcGAAFYALwemrQqAAAAAElFTkSuQmCC"
// 16,000 x 16,000 pixels, as its header says.
#define HUGE_HEADER "iVBORw0KGgoAAAANSUhEUgAAPoAAAD6AAQAAAABpBeJzAAAACUlEQVR4nGMAAAABAAFe/335AAAAAElFTkSuQmCC"

#define DATA(base64) "data:image/png;base64," base64
#define URL(url)     "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" url "\"}}"
#define LOW(url)     "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" url "\",\"detail\":\"low\"}}"
#define SOURCE(data)                                                                                         \
    "{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":\"image/png\",\"data\":\"" data "\"" \
    "}}"
#define TEXT        "{\"type\":\"text\",\"text\":\"what?\"}"
#define USER(parts) "\"messages\":[{\"role\":\"user\",\"content\":[" parts "]}]"
#define SOME        "\"max_tokens\":6,\"temperature\":0,"

enum { WHOLE_TOKENS = 6, TILES = 17, TILE_ROWS = 4 };

static int start_seeing(void **state)
{
    (void)state;
    shared = serve_start((const char *[]){ "-m", SOURCE_DIR "/tests/golden/smolvlm", NULL });
    return 0;
}

static void refused(const char *path, const char *body, const char *words)
{
    int status;
    json_t *r = reply_of(path, body, &status);
    const char *message = json_is_string(at(r, "error")) ? text(r, "error") : text(r, "error.message");

    if (status != 400 || !strstr(message, words) || strchr(message, '\n'))
        fail_msg("%.200s: %d '%s'; want 400 and '%s'", body, status, message, words);
    json_decref(r);
}

static json_int_t integer(json_t *r, const char *path)
{
    return json_integer_value(at(r, path));
}

// The same conversation in the words of each API is the same prompt, and so the same answer.
static void every_dialect_shows_the_model_the_same(void **state)
{
    static const struct {
        const char *path, *body, *answer;
    } others[] = {
        { RESPONSE,
          "{\"max_output_tokens\":6,\"temperature\":0,\"input\":[{\"role\":\"user\",\"content\":[{\"type\":"
          "\"input_image\","
          "\"image_url\":\"" DATA(
              GREY) "\",\"detail\":\"auto\"},{\"type\":\"input_text\",\"text\":\"what?\"}]}]}",
          "output.0.content.0.text" },
        { MESSAGES, "{" SOME USER(SOURCE(GREY) "," TEXT) "}", "content.0.text" },
        { OLLAMA,
          "{\"stream\":false,\"options\":{\"num_predict\":6,\"temperature\":0},\"messages\":[{\"role\":"
          "\"user\",\"content\":"
          "\"what?\",\"images\":[\"" GREY "\"]}]}",
          "message.content" },
        { GENERATE,
          "{\"stream\":false,\"options\":{\"num_predict\":6,\"temperature\":0},\"prompt\":\"what?\","
          "\"images\":[\"" GREY "\"]}",
          "response" },
    };
    json_t *first = post(CHAT, "{" SOME USER(URL(DATA(GREY)) "," TEXT) "}");

    (void)state;
    assert_int_equal(integer(first, "usage.completion_tokens"), WHOLE_TOKENS);
    assert_int_equal(integer(first, "timings.pictures.tiles"), TILES);
    assert_true(json_real_value(at(first, "timings.pictures.encode_ms")) > 0);
    for (size_t i = 0; i < N_OF(others); i++) {
        json_t *r = post(others[i].path, others[i].body);
        assert_string_equal(text(r, others[i].answer), text(first, "choices.0.message.content"));
        json_decref(r);
    }
    json_t *counted = post(COUNT, "{" USER(SOURCE(GREY) "," TEXT) "}");
    assert_int_equal(integer(counted, "input_tokens"), integer(first, "usage.prompt_tokens"));
    json_decref(counted);
    json_decref(first);
}

static void a_picture_counts(void **state)
{
    json_t *grey = post(CHAT, "{" SOME "\"logprobs\":true," USER(URL(DATA(GREY)) "," TEXT) "}");
    json_t *red = post(CHAT, "{" SOME "\"logprobs\":true," USER(URL(DATA(RED)) "," TEXT) "}");
    const char *first = "choices.0.logprobs.content.0.logprob";

    (void)state;
    assert_int_equal(integer(grey, "usage.prompt_tokens"), integer(red, "usage.prompt_tokens"));
    assert_true(json_real_value(at(grey, first)) != json_real_value(at(red, first)));
    json_decref(grey);
    json_decref(red);
}

static void timings_tell_each_stage(void **state)
{
    static const char *const stages[] = { "timings.pictures.read_ms",    "timings.pictures.split_ms",
                                          "timings.pictures.patch_ms",   "timings.pictures.encode_ms",
                                          "timings.pictures.connect_ms", "timings.prompt_ms",
                                          "timings.first_token_ms",      "timings.predicted_ms" };
    json_t *r = post(CHAT, "{" SOME USER(LOW(DATA(NEW)) "," TEXT) "}");

    (void)state;
    for (size_t i = 0; i < N_OF(stages); i++)
        if (!(json_real_value(at(r, stages[i])) > 0))
            fail_msg("no %s", stages[i]);
    json_decref(r);
}

static void a_low_detail_is_one_tile(void **state)
{
    json_t *whole = post(CHAT, "{" SOME USER(TEXT "," URL(DATA(RED))) "}"),
           *low = post(CHAT, "{" SOME USER(TEXT "," LOW(DATA(RED))) "}");
    json_t *two = post(CHAT, "{" SOME "\"n\":2," USER(LOW(DATA(GREY)) "," TEXT "," LOW(DATA(RED))) "}");
    json_t *mixed = post(CHAT, "{" SOME USER(LOW(DATA(RED))) "}");

    (void)state;
    assert_int_equal(integer(low, "timings.pictures.tiles"), 1);
    assert_true(integer(low, "usage.prompt_tokens") <=
                integer(whole, "usage.prompt_tokens") - (TILES - 1) * TILE_ROWS);
    assert_int_equal(integer(two, "timings.pictures.tiles"), 2);
    assert_string_equal(text(two, "choices.0.message.content"), text(two, "choices.1.message.content"));
    json_decref(mixed);
    mixed = post(CHAT, "{" SOME USER(LOW(DATA(GREY)) "," URL(DATA(RED))) "}");
    assert_int_equal(integer(mixed, "timings.pictures.tiles"), 1 + TILES);
    assert_null(at(mixed, "warnings"));
    json_decref(whole);
    json_decref(low);
    json_decref(two);
    json_decref(mixed);
}

static void typed_marks_stay_text(void **state)
{
    json_t *r = post("/apply-template",
                     "{" USER("{\"type\":\"text\",\"text\":\"a <image> b\"}," LOW(DATA(GREY))) "}");

    (void)state;
    assert_non_null(strstr(text(r, "prompt"), "a <image> b<fake_token_around_image><global-img><image>"));
    json_decref(r);
    refused(CHAT, "{" USER("{\"type\":\"image\"}") "}", "source");
    refused(CHAT, "{" USER(URL(DATA(GREY)) "," URL(DATA(GREY)) "," URL(DATA(GREY))) "}", "context holds");
}

static void nothing_is_fetched(void **state)
{
    static const char *const urls[] = { "http://127.0.0.1/x.png", "HTTPS://example.org/x.png" };
    char body[512];

    (void)state;
    for (size_t i = 0; i < N_OF(urls); i++) {
        snprintf(body, sizeof body, "{" USER(URL("%s")) "}", urls[i]);
        refused(CHAT, body, "messages[0].content[0]: this server fetches nothing");
        snprintf(
            body, sizeof body,
            "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":\"%s\"}]}]}",
            urls[i]);
        refused(RESPONSE, body, "input[0].content[0]: this server fetches nothing");
        snprintf(body, sizeof body,
                 "{\"max_tokens\":1," USER(
                     "{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"%s\"}}") "}",
                 urls[i]);
        refused(MESSAGES, body,
                "this server fetches nothing: send the picture itself, as a source of type base64");
    }
    refused(
        RESPONSE,
        "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"file_id\":\"file-1\"}]}]}",
        "input[0].content[0]: this server keeps no files: send the picture itself, as image_url");
    refused(MESSAGES,
            "{\"max_tokens\":1," USER(
                "{\"type\":\"image\",\"source\":{\"type\":\"file\",\"file_id\":\"file_1\"}}") "}",
            "this server keeps no files: send the picture itself, as a source of type base64");
    refused(CHAT, "{" USER(URL("file:///etc/passwd")) "}", "begins with");
    refused(CHAT, "{" USER(URL("//x/y,;base64,")) "}", "begins with");
}

static void broken_ones_are_refused(void **state)
{
    static const char *const bodies[][2] = {
        { "{" USER(URL(DATA("A=A="))) "}", "base64 is broken" },
        { "{" USER(URL(DATA("AAA"))) "}", "base64 is broken" },
        { "{" USER(URL(DATA("A==="))) "}", "base64 is broken" },
        { "{" USER(URL(DATA("AAAA\\n"))) "}", "base64 is broken" },
        { "{" USER(URL(DATA("AA\xc3\xa4"))) "}", "base64 is broken" },
        { "{" USER(URL(DATA(""))) "}", "no base64" },
        { "{" USER(URL(DATA("===="))) "}", "base64 is broken" },
        { "{" USER(URL(DATA("AAAA"))) "}", "no picture that is known" },
        { "{" USER(URL(DATA("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"))) "}",
          "messages[0].content[0]: " },
        { "{" USER(URL("data:image/png,abc")) "}", "begins with" },
        { "{" USER(URL("data:,")) "}", "begins with" },
        { "{" USER(URL("data:")) "}", "begins with" },
        { "{" USER(URL("")) "}", "begins with" },
        { "{" USER("{\"type\":\"image_url\"}") "}", "no URL" },
        { "{" USER("{\"type\":\"image_url\",\"image_url\":[]}") "}", "no URL" },
        { "{" USER("{\"type\":\"image_url\",\"image_url\":{\"url\":{}}}") "}", "no URL" },
        { "{" USER("{\"type\":\"input_image\",\"file_id\":\"file-1\"}") "}", "keeps no files" },
        { "{" USER(
              "{\"type\":\"image_url\",\"image_url\":{\"url\":\"" DATA(GREY) "\",\"detail\":\"huge\"}}") "}",
          "low, high or auto" },
        { "{" USER("{\"type\":\"image_url\",\"image_url\":{\"url\":\"" DATA(GREY) "\",\"detail\":3}}") "}",
          "low, high or auto" },
        { "{" USER("{\"type\":\"input_audio\"}") "}", "only text and pictures" },
        { "{\"messages\":[{\"role\":\"system\",\"content\":[" URL(DATA(GREY)) "]}]}", "only a user's" },
        { "{\"messages\":[{\"role\":\"user\",\"images\":[\"" GREY "\"],\"content\":[]}]}",
          "messages[0].images: they need" },
        { "{\"messages\":[{\"role\":\"assistant\",\"images\":[\"" GREY "\"],\"content\":\"x\"}]}",
          "they need a user's" },
        { "{\"messages\":[{\"role\":\"user\",\"images\":[\"" GREY "\",7],\"content\":\"x\"}]}",
          "messages[0].images[1]: the picture has no data" },
    };

    (void)state;
    for (size_t i = 0; i < N_OF(bodies); i++)
        refused(CHAT, bodies[i][0], bodies[i][1]);
    refused(MESSAGES,
            "{\"max_tokens\":1," USER(
                "{\"type\":\"image\",\"source\":{\"type\":\"file\",\"file_id\":\"x\"}}") "}",
            "keeps no files");
    refused(MESSAGES, "{\"max_tokens\":1," USER("{\"type\":\"image\"}") "}", "want base64");
    refused(MESSAGES, "{\"max_tokens\":1," USER("{\"type\":\"image\",\"source\":{\"type\":\"base64\"}}") "}",
            "no data");
    refused(GENERATE, "{\"prompt\":\"x\",\"raw\":true,\"images\":[\"" GREY "\"]}", "need a template");
    refused(GENERATE, "{\"prompt\":\"x\",\"images\":\"" GREY "\"}", "want a list");
}

// A PNG file of 2 KB and 4000 x 4000 black pixels.
static void put_large(struct buf *base64)
{
    buf_text(base64, "iVBORw0KGgoAAAANSUhEUgAAD6AAAA+gAQAAAADGBN6vAAAHrUlEQVR42u3BMQEAAADCoPVPbQsvo");
    for (int i = 0; i < 2588; i++)
        buf_text(base64, "A");
    buf_text(base64, "IC3AZXiAAFUNIRGAAAAAElFTkSuQmCC");
}

static void large_ones_and_many_are_refused(void **state)
{
    struct buf body = { 0 };

    (void)state;
    refused(CHAT, "{" USER(URL(DATA(HUGE_HEADER))) "}", "messages[0].content[0]: ");
    buf_text(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"images\":[\"");
    for (int i = 0; i < 4; i++) {
        buf_text(&body, i ? "\",\"" : "");
        put_large(&body);
    }
    buf_text(&body, "\"]}]}");
    refused(CHAT, body.at, "messages[0].images[3]: the pictures have 64000000 pixels");
    body.n = 0;
    buf_text(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"images\":[\"");
    for (int i = 0; i < 17; i++)
        buf_text(&body, i ? "\",\"" GREY : GREY);
    buf_text(&body, "\"]}]}");
    refused(CHAT, body.at, "more than 16 pictures");
    buf_free(&body);
}

static void a_model_without_eyes_refuses_pictures(void **state)
{
    (void)state;
    assert_int_equal(serve_stop(&shared), 0);
    start(state);
    refused(CHAT, "{" USER(URL(DATA(GREY))) "}", "this model has no eyes");
    refused(MESSAGES, "{\"max_tokens\":1," USER(SOURCE(GREY)) "}", "this model has no eyes");
    refused(RESPONSE,
            "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":\"" DATA(
                GREY) "\"}]}]}",
            "this model has no eyes");
    refused(GENERATE, "{\"prompt\":\"x\",\"images\":[\"" GREY "\"]}", "this model has no eyes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dialect_shows_the_model_the_same),
        cmocka_unit_test(a_picture_counts),
        cmocka_unit_test(timings_tell_each_stage),
        cmocka_unit_test(a_low_detail_is_one_tile),
        cmocka_unit_test(typed_marks_stay_text),
        cmocka_unit_test(nothing_is_fetched),
        cmocka_unit_test(broken_ones_are_refused),
        cmocka_unit_test(large_ones_and_many_are_refused),
        cmocka_unit_test(a_model_without_eyes_refuses_pictures),
    };
    return cmocka_run_group_tests(tests, start_seeing, stop);
}
