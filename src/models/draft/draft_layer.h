// draft_layer.h - the layer behind a model's own that drafts the token after the next one (multi-token
// prediction, MTP; DeepSeek-AI, 2024: DeepSeek-V3; "nextn" in GGUF files).
//
// h[q] is what the model makes of the tokens up to position q, behind its last norm. The layer's row at q is
//   x[q] = W [norm(embedding of token q + 1), norm(h[q])]
// then one decoder layer with pages of its own, a norm, and a head: the logits of token q + 2. Rows stand at
// q, not at q + 1, so that none needs the h of a step before; the key of a page's last row depends on a token
// of the next page, and where that page is shared and the texts part there, a draft may suffer: nothing else.
//
// The matrix W is taken as two, for either input. Of several such layers the first is used.
#pragma once
#include "models/model.h"

struct weight_key;

// Binds it where the file has it: m->drafts. A file without it is as good; of one whose layer is not whole,
// or misshapen, the log says so, and nothing drafts. Fails without memory.
bool draft_layer_bind(struct model *m, struct err *err);
// The tensors that it has beside those of a layer.
enum { DRAFT_LAYER_KEYS = 7 };
const struct weight_key *draft_layer_keys(const struct model *m);
// Records it. The stage has the one layer m->config.n_layers; s->block holds the residual stream behind the
// model's last layer, [rows, n_cols], and stays as it is; the step's tokens are those behind the rows.
void draft_layer_record(struct tape *t, const struct model_stage *s);
