// agree.h - all ranks have the same model, options and version, or all end with one line that says who has
// not.
#pragma once
#include "engine/ranks/ranks.h"

// Every rank calls it as often as the others. Its own work up to here is well, or *err says what was wrong;
// `facts` are lines of "what: value", equal on all ranks. Waits for all. False: *err names the first rank
// that failed, or the first line that differs, the same on all ranks.
bool ranks_agree(struct ranks *g, bool ok, const char *facts, struct err *err);
// The same without a group: compares two lists of facts. False: *err has the line that differs.
bool agree_facts(const char *mine, const char *other, struct err *err);
