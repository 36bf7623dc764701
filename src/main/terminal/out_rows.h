// out_rows.h - results as rows of named values on stdout: as JSON, JSON lines or CSV.
#pragma once
#include <stdint.h>
#include "main/terminal/out_json.h"

struct out_rows {
    const char *format; // "json", "jsonl" or "csv"
    uint32_t n;         // printed so far
};

void out_rows_begin(const struct out_rows *r);
void out_rows_add(
    struct out_rows *r,
    json_t *row); // gives the object up; CSV has no lists, and takes its columns from the first row
void out_rows_end(const struct out_rows *r);
