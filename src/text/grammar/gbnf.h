// gbnf.h - writes the pieces of a grammar in GBNF, llama.cpp's notation.
#pragma once
#include "base/str.h"

bool gbnf_literal(struct buf *to, struct str text);             // "text"; its bytes are valid UTF-8
void gbnf_times(struct buf *to, uint32_t least, uint32_t most); // {least,most}; most UINT32_MAX: no end
