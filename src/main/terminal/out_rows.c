// out_rows.c - see out_rows.h.
#include "main/terminal/out_rows.h"
#include <string.h>
#include "main/terminal/out.h"

static void csv_value(const json_t *value)
{
    out_text("\"");
    if (json_is_integer(value))
        out_printf("%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        out_printf("%.9g", json_real_value(value));
    else if (json_is_boolean(value))
        out_printf("%d", json_is_true(value));
    for (const char *c = json_string_value(value); c && *c; c++)
        out_printf("%s%c", *c == '"' ? "\"" : "", *c);
    out_text("\"");
}

static void csv_row(const struct out_rows *r, json_t *row)
{
    const char *key, *between = "";
    json_t *value;

    for (int names = r->n == 0; names >= 0; names--, between = "") {
        json_object_foreach(row, key, value)
        {
            if (json_is_array(value))
                continue;
            out_text(between);
            if (names)
                out_text(key);
            else
                csv_value(value);
            between = ",";
        }
        out_text("\n");
    }
    json_decref(row);
}

void out_rows_begin(const struct out_rows *r)
{
    if (!strcmp(r->format, "json"))
        out_text("[\n");
}

void out_rows_add(struct out_rows *r, json_t *row)
{
    bool list = !strcmp(r->format, "json");

    if (!strcmp(r->format, "csv")) {
        csv_row(r, row);
    } else {
        out_text(list && r->n ? ",\n" : "");
        out_json(row, list ? JSON_INDENT(2) : JSON_COMPACT);
        out_text(list ? "" : "\n");
    }
    r->n++;
    out_flush();
}

void out_rows_end(const struct out_rows *r)
{
    if (!strcmp(r->format, "json"))
        out_text("\n]\n");
}
