// test_serve_rerank.c - embedding models and rerankers with random weights behind the server, written by
// `synth`.
#include <math.h>
#include "folder.h"
#include "server/shared.h"

static char path[64];

static int make_folder(void **state)
{
    int result = folder_make(state);

    snprintf(path, sizeof path, "%s/toy.gguf", folder);
    return result;
}

static void serve_toy(const char *shape)
{
    shell(INGOT_PROGRAM " synth %s %s --type F32 2>/dev/null", shape, path);
    shared = serve_start((const char *[]){ "-m", path, "-c", "512", NULL });
}

static void refused(const char *where, const char *body, const char *part)
{
    int status;
    json_t *r = reply_of(where, body, &status);

    if (status != 400 || !strstr(text(r, "error.message"), part))
        fail_msg("%s: status %d, '%s' lacks '%s'", where, status, text(r, "error.message"), part);
    json_decref(r);
}

static double score(json_t *r, int i)
{
    char where[64];
    snprintf(where, sizeof where, "results.%d.relevance_score", i);
    return json_real_value(at(r, where));
}

static void documents_come_by_their_score(void **state)
{
    static const char body[] =
        "{\"query\":\"Where do foxes live?\",\"documents\":[\"In dens.\",{\"text\":\"Trains leave at "
        "noon.\"},\"A fox lives in a den, near a wood.\"],\"return_documents\":true}";
    double scores[3];

    (void)state;
    serve_toy("toy-qwen3-reranker");
    json_t *all = post("/v1/rerank", body);
    assert_int_equal(json_array_size(at(all, "results")), 3);
    assert_true(json_integer_value(at(all, "usage.total_tokens")) > 100);
    for (int i = 0; i < 3; i++) {
        char where[64];
        snprintf(where, sizeof where, "results.%d.index", i);
        scores[json_integer_value(at(all, where))] = score(all, i);
        assert_true(score(all, i) > 0 && score(all, i) < 1 && (i == 0 || score(all, i) <= score(all, i - 1)));
        snprintf(where, sizeof where, "results.%d.document.text", i);
        assert_true(strlen(text(all, where)) > 5);
    }
    json_t *one =
        post("/v1/rerank", "{\"query\":\"Where do foxes live?\",\"documents\":[\"Trains leave at noon.\"]}");
    assert_true(fabs(score(one, 0) - scores[1]) < 1e-6);
    assert_null(json_object_get(json_array_get(at(one, "results"), 0), "document"));
    json_t *best =
        post("/rerank",
             "{\"query\":\"q\",\"documents\":[\"a\",\"b\",\"c\"],\"top_n\":2,\"instruction\":\"Find it\"}");
    assert_int_equal(json_array_size(at(best, "results")), 2);
    json_decref(all);
    json_decref(one);
    json_decref(best);
    assert_int_equal(serve_stop(&shared), 0);
}

static void an_encoder_embeds_and_does_not_chat(void **state)
{
    static const char *const shapes[] = { "toy-bert", "toy-nomic", "toy-embeddinggemma" };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        serve_toy(shapes[i]);
        json_t *r = post("/v1/embeddings", "{\"input\":[\"A fox.\",\"A train leaves at noon.\",\"A fox.\"]}");
        assert_int_equal(json_array_size(at(r, "data.1.embedding")), 256);
        assert_true(json_equal(at(r, "data.0.embedding"), at(r, "data.2.embedding")));
        assert_false(json_equal(at(r, "data.0.embedding"), at(r, "data.1.embedding")));
        json_decref(r);
        json_t *told = post("/v1/embeddings", "{\"input\":[\"fox.\"],\"instruction\":\"A \"}");
        json_t *said = post("/v1/embeddings", "{\"input\":[\"A fox.\"]}");
        assert_true(json_equal(at(told, "data.0.embedding"), at(said, "data.0.embedding")));
        json_decref(told);
        json_decref(said);
        refused("/v1/embeddings", "{\"input\":[5,6],\"instruction\":\"A\"}",
                "it goes before texts; input has tokens");
        refused("/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":2}", "generate no text");
        refused("/v1/rerank", "{\"query\":\"x\",\"documents\":[\"a\"]}", "no reranker");
        assert_int_equal(serve_stop(&shared), 0);
    }
}

static void the_program_scores_lines(void **state)
{
    char line[64];

    (void)state;
    shell(INGOT_PROGRAM " synth toy-qwen3-reranker %s --type Q8_0 2>/dev/null", path);
    char command[256];
    snprintf(command, sizeof command,
             "printf 'one\\n\\ntwo\\r\\nthree' | " INGOT_PROGRAM " embed -m %s -c 512 --query q", path);
    FILE *out = popen(command, "r");
    int n = 0;
    for (; fgets(line, sizeof line, out); n++)
        assert_true(strtod(line, NULL) > 0 && strtod(line, NULL) < 1);
    assert_int_equal(pclose(out), 0);
    assert_int_equal(n, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(documents_come_by_their_score),
                                        cmocka_unit_test(an_encoder_embeds_and_does_not_chat),
                                        cmocka_unit_test(the_program_scores_lines) };
    return cmocka_run_group_tests(tests, make_folder, folder_remove);
}
