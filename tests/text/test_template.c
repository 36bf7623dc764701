// test_template.c - the template language against Python's Jinja: every vector gives the same bytes, or an
// error where Python has one. With a file of other vectors, of tools/golden/template_vectors.py, those alone.
#include "testing.h"
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include "base/file.h"
#include "text/template/template.h"

static json_t *vectors;
static const char *vectors_file = "tests/golden/template_vectors.json";
static size_t n_cases_least = 1000;

static int load_vectors(void **state)
{
    (void)state;
    setenv("TZ", "UTC", 1);
    tzset();
    vectors = json_load_file(vectors_file, 0, NULL);
    return vectors ? 0 : -1;
}

static int free_vectors(void **state)
{
    (void)state;
    json_decref(vectors);
    return 0;
}

static void read_template(struct buf *source, const char *name)
{
    char path[256];
    struct err err = { 0 };

    snprintf(path, sizeof path, "tests/golden/templates/%s.jinja", name);
    if (!strchr(name, '{') && strlen(name) < 64 && file_exists(path))
        assert_ok(file_read(source, path, 1 << 20, &err), &err);
    else
        buf_text(source, name);
}

static bool same_as_expected(json_t *item)
{
    json_t *names = json_array_get(item, 1), *expected = json_array_get(item, 2),
           *sets = json_object_get(vectors, "variables");
    json_t *variables = json_copy(json_object_get(sets, json_string_value(json_array_get(names, 0))));
    const char *name = json_string_value(json_array_get(item, 0));
    struct buf source = { 0 };
    struct template_output out = { 0 };
    struct template *t = NULL;
    struct err err = { 0 };

    json_object_update(variables, json_object_get(sets, json_string_value(json_array_get(names, 1))));
    read_template(&source, name);
    bool ok =
        template_parse(&t, buf_as_str(&source), NULL, &err) &&
        template_render_at(t, variables, json_integer_value(json_object_get(vectors, "now")), &out, &err);
    struct str wanted = { json_string_value(expected), json_string_length(expected) };
    bool same = ok == json_is_string(expected) && (!ok || str_eq(wanted, out.text));
    if (!same)
        print_error("%.200s (%s)\n  wanted: %.300s\n  found:  %.300s %s\n", name,
                    json_string_value(json_array_get(names, 0)), wanted.at ? wanted.at : "an error",
                    out.text.at ? out.text.at : "", err.message);
    template_output_free(&out);
    template_free(t);
    buf_free(&source);
    json_decref(variables);
    return same;
}

static void renders_what_python_renders(void **state)
{
    (void)state;
    size_t i, n_wrong = 0;
    json_t *item;

    assert_true(json_array_size(json_object_get(vectors, "cases")) > n_cases_least);
    json_array_foreach(json_object_get(vectors, "cases"), i, item)
    {
        n_wrong += !same_as_expected(item);
    }
    assert_int_equal(n_wrong, 0);
}

// Where @huggingface/jinja renders another text than Python (the case's fourth member) on a chat template,
// the two disagree with each other, and Python is followed: it is what models were trained with. There are
// two reasons and no others: the package prints None as nothing, and dicts and lists of them as JSON. Neither
// comes from a request: chat.c gives no null where it would be printed, and content is text.
static void npm_differs_only_where_it_prints_python_values_otherwise(void **state)
{
    size_t i, n_differ = 0;
    json_t *item;

    (void)state;
    json_array_foreach(json_object_get(vectors, "cases"), i, item)
    {
        const char *python = json_string_value(json_array_get(item, 2)),
                   *npm = json_string_value(json_array_get(item, 3));
        if (!npm)
            continue;
        bool none = strstr(python, "\nNone\n") && !strstr(npm, "None");
        bool dict = strstr(python, "{'t': 1}") && strstr(npm, "{\"t\": 1}");
        bool list = strstr(python, "[{'type': ") && strstr(npm, "{\"type\": \"text\"");
        if (strcmp(python, npm) == 0 || none + dict + list != 1)
            fail_msg("case %zu differs for another reason", i);
        n_differ++;
    }
    assert_int_equal(n_differ, 32);
}

struct shared {
    const struct template *t;
    json_t *variables;
    struct str wanted;
};

static void *render_often(void *argument)
{
    const struct shared *s = argument;
    struct template_output out;
    struct err err;
    uintptr_t n_wrong = 0;

    for (int i = 0; i < 50; i++) {
        bool ok = template_render_at(s->t, s->variables, 0, &out, &err) && str_eq(out.text, s->wanted);
        n_wrong += !ok;
        template_output_free(&out);
    }
    return (void *)n_wrong;
}

static void threads_share_a_template(void **state)
{
    (void)state;
    static const char source[] = "{% macro m(x) %}{{ x | upper }}{% endmacro %}{% for m1 in messages %}{{ "
                                 "m(m1.content) ~ m1 | tojson }}"
                                 "{% endfor %}";
    struct shared s = { .wanted = STR("HI{\"role\": \"user\", \"content\": \"hi\"}") };
    struct template *t;
    struct err err;
    pthread_t threads[4];
    void *n_wrong;

    assert_ok(template_parse(&t, str_from(source), NULL, &err), &err);
    s.t = t;
    s.variables = json_pack("{s:[{s:s, s:s}]}", "messages", "role", "user", "content", "hi");
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, &s), 0);
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], &n_wrong);
        assert_null(n_wrong);
    }
    json_decref(s.variables);
    template_free(t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest others[] = { cmocka_unit_test(renders_what_python_renders) };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_what_python_renders),
        cmocka_unit_test(npm_differs_only_where_it_prints_python_values_otherwise),
        cmocka_unit_test(threads_share_a_template),
    };
    if (argc > 1) {
        vectors_file = argv[1];
        n_cases_least = 0;
        return cmocka_run_group_tests(others, load_vectors, free_vectors);
    }
    return cmocka_run_group_tests(tests, load_vectors, free_vectors);
}
