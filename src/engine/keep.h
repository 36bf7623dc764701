// keep.h - what joins the engine's pages to those on disk: kept when their memory is needed and when the engine closes, and found again
// behind what memory knows.
#pragma once
#include "engine/engine.h"
#include "engine/prefix.h"

// Opens the store of the options' cache_dir, if there is one. After the stages were made.
bool keep_open(struct engine *e, struct err *err);
// No step is being played. Writes the index's pages that are not on disk yet; returns how many could not be written.
uint32_t keep_all(struct engine *e);
// The page behind the walk, from disk into a page of the index that nobody holds; KV_NONE: it is not there, or no page is free.
uint32_t keep_find(struct engine *e, const struct prefix_walk *walk, const uint32_t *tokens);
