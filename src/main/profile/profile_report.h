// profile_report.h - what ingot profile found, as tables, JSON, CSV, a page, a trace, and beside an older
// one.
#pragma once
#include <jansson.h>
#include "base/str.h"
#include "main/profile/profile_result.h"

void profile_print(const struct profile_result *r);     // tables for people, on stdout
void profile_print_csv(const struct profile_result *r); // one table of all measurements
json_t *profile_json(const struct profile_result *r);   // schema ingot-profile-1; NULL without memory
// Gives the value up.
bool profile_json_write(json_t *value, const char *path, struct err *err);
bool profile_html(const struct profile_result *r, const char *path, struct err *err);  // one page
bool profile_trace(const struct profile_result *r, const char *path, struct err *err); // for ui.perfetto.dev

// Reads a profile that was written as JSON, from any hands: what is not such a profile is an error.
json_t *profile_read(const char *path, struct err *err);
// Prints what became faster or slower since, and where. False: another model, device, depth, so nothing can
// be said. *worst: the largest factor by which a time has certainly grown, at least 1.
bool profile_compare(const json_t *now, const json_t *before, double *worst, struct err *err);
