// eval_report.h - prints what ingot eval measured: a table, or rows of fields; and draws it.
#pragma once
#include "ingot.h"
#include "main/terminal/out_rows.h"
#include "main/settings.h"
#include "model_tools/eval.h"

struct eval_line {
    char weights[48], pages[24]; // "Q4_K_M", "f16" or "q8_0:f16"
    struct ingot_engine_info info;
    double kv_bytes; // of one token's K and V
    bool compared;   // with a reference; else only the perplexity counts
    struct eval_summary summary;
    double prompt_ts, answer_ts; // tokens per second; 0: not measured
};

struct eval_report {
    const struct settings *settings;
    const struct eval_text *text;
    struct out_rows rows;
};

enum { EVAL_SPEED_PROMPT = 128, EVAL_SPEED_ANSWER = 32 }; // tokens that the speeds are measured with

void eval_report_begin(const struct eval_report *r);
void eval_report_add(struct eval_report *r, const struct eval_line *line);
void eval_report_end(const struct eval_report *r);

// An SVG of the lines that were compared: divergence against bytes of weights, a colour for each format of
// pages.
bool eval_plot(const char *path, const struct eval_line *lines, uint32_t n, struct err *err);
