// template_filter.h - filters on sequences, for the table in template_filter.c.
#pragma once
#include "text/template/template_value.h"

bool filter_length(struct render *r, struct call *c);
bool filter_join(struct render *r, struct call *c);
bool filter_list(struct render *r, struct call *c);
bool filter_items(struct render *r, struct call *c);
bool filter_first(struct render *r, struct call *c);
bool filter_last(struct render *r, struct call *c);
bool filter_map(struct render *r, struct call *c);
bool filter_select(struct render *r, struct call *c);
bool filter_reject(struct render *r, struct call *c);
bool filter_selectattr(struct render *r, struct call *c);
bool filter_rejectattr(struct render *r, struct call *c);
bool filter_dictsort(struct render *r, struct call *c);
bool filter_sort(struct render *r, struct call *c);
bool filter_unique(struct render *r, struct call *c);
bool filter_groupby(struct render *r, struct call *c);
bool filter_reverse(struct render *r, struct call *c);
bool filter_sum(struct render *r, struct call *c);
bool filter_min(struct render *r, struct call *c);
bool filter_max(struct render *r, struct call *c);
bool filter_batch(struct render *r, struct call *c);
bool filter_slice(struct render *r, struct call *c);
bool filter_attr(struct render *r, struct call *c);
