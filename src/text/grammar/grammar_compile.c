// grammar_compile.c - compiles expressions to the automaton, and refuses left recursion.
//
// Code is emitted backwards: every expression gets the node that follows it and returns its own first node. A
// repeated expression becomes a rule, so that a copy costs two nodes. A rule that can call itself before a
// byte is read would never end: such left recursion is found from the rules that each rule can call first.
#include "base/mem.h"
#include "text/grammar/grammar_node.h"

enum { NONE = UINT32_MAX, EXPRESSIONS_BYTES = 64 << 20, MAX_PASSES = 100 };

struct grammar_builder {
    struct grammar *g;
    const struct grammar_source *source;
    uint32_t rule_capacity;
    bool full;
};

static uint32_t add_node(struct grammar_builder *b, enum grammar_node_kind kind, uint32_t next,
                         uint32_t other)
{
    struct grammar *g = b->g;

    if (g->n_nodes == g->node_capacity && !b->full) {
        uint32_t capacity = g->node_capacity ? 2 * g->node_capacity : 256;
        struct grammar_node *nodes =
            capacity > GRAMMAR_MAX_NODES ? NULL : mem_realloc(g->nodes, capacity * sizeof *nodes);
        b->full = !nodes;
        g->nodes = nodes ? nodes : g->nodes;
        g->node_capacity = nodes ? capacity : g->node_capacity;
    }
    if (b->full)
        return 0;
    g->nodes[g->n_nodes] = (struct grammar_node){ kind, next, other };
    return g->n_nodes++;
}

static uint32_t add_rule(struct grammar_builder *b)
{
    struct grammar *g = b->g;

    if (g->n_rules == b->rule_capacity && !b->full) {
        uint32_t capacity = b->rule_capacity ? 2 * b->rule_capacity : 64;
        uint32_t *starts =
            capacity > 2 * GRAMMAR_MAX_RULES ? NULL : mem_realloc(g->starts, capacity * sizeof *starts);
        b->full = !starts;
        g->starts = starts ? starts : g->starts;
        b->rule_capacity = starts ? capacity : b->rule_capacity;
    }
    if (b->full)
        return 0;
    g->starts[g->n_rules] = 0;
    return g->n_rules++;
}

// ---- bytes

static uint32_t add_set(struct grammar_builder *b, const struct byte_set *set)
{
    struct grammar *g = b->g;

    for (uint32_t i = 0; i < g->n_sets; i++)
        if (!memcmp(&g->sets[i], set, sizeof *set))
            return i;
    if (g->n_sets == GRAMMAR_MAX_SETS) {
        b->full = true;
        return 0;
    }
    g->sets[g->n_sets] = *set;
    return g->n_sets++;
}

static void set_fill(struct byte_set *set, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i <= last; i++)
        set->words[i >> 6] |= (uint64_t)1 << (i & 63);
}

static uint32_t add_range(struct grammar_builder *b, uint32_t first, uint32_t last, uint32_t next)
{
    struct byte_set set = { { 0 } };

    if (first == last && b->g->single_sets[first])
        return add_node(b, NODE_BYTES, next, b->g->single_sets[first] - 1);
    set_fill(&set, first, last);
    uint32_t at = add_set(b, &set);
    if (first == last && !b->full)
        b->g->single_sets[first] = at + 1;
    return add_node(b, NODE_BYTES, next, at);
}

static uint32_t add_choice(struct grammar_builder *b, uint32_t a, uint32_t other)
{
    return other == NONE ? a : add_node(b, NODE_SPLIT, a, other);
}

// Compiles the code points first to last, all of n bytes in UTF-8, to choices of sequences of byte ranges;
// `rest`: one more choice, or NONE.
static uint32_t add_encoded(struct grammar_builder *b, struct code_range r, uint32_t n, uint32_t next,
                            uint32_t rest)
{
    static const uint32_t leads[] = { 0, 0, 0xc0, 0xe0, 0xf0 };

    for (uint32_t i = 1; i < n;
         i++) { // split until the last i bytes take all values, or one lead byte is left
        uint32_t low = (1u << 6 * i) - 1;
        if ((r.first & ~low) == (r.last & ~low))
            continue;
        if (r.first & low) {
            rest = add_encoded(b, (struct code_range){ (r.first | low) + 1, r.last }, n, next, rest);
            return add_encoded(b, (struct code_range){ r.first, r.first | low }, n, next, rest);
        }
        if ((r.last & low) != low) {
            rest = add_encoded(b, (struct code_range){ r.last & ~low, r.last }, n, next, rest);
            return add_encoded(b, (struct code_range){ r.first, (r.last & ~low) - 1 }, n, next, rest);
        }
    }
    uint32_t at = next;
    for (uint32_t i = 0; i + 1 < n; i++)
        at = add_range(b, 0x80 | (r.first >> 6 * i & 63), 0x80 | (r.last >> 6 * i & 63), at);
    at = add_range(b, leads[n] | r.first >> 6 * (n - 1), leads[n] | r.last >> 6 * (n - 1), at);
    return add_choice(b, at, rest);
}

static uint32_t emit_class(struct grammar_builder *b, const struct expr *e, uint32_t next)
{
    static const struct code_range lengths[] = {
        { 0, 0x7f }, { 0x80, 0x7ff }, { 0x800, 0xd7ff }, { 0xe000, 0xffff }, { 0x10000, 0x10ffff }
    };
    static const uint32_t n_bytes[] = { 1, 2, 3, 3, 4 };
    struct byte_set ascii = { { 0 } };
    bool any = false;
    uint32_t at = NONE;

    for (uint32_t i = 0; i < e->n_ranges && !b->full; i++)
        for (uint32_t l = 0; l < 5; l++) {
            struct code_range r = { e->range[i].first > lengths[l].first ? e->range[i].first
                                                                         : lengths[l].first,
                                    e->range[i].last < lengths[l].last ? e->range[i].last : lengths[l].last };
            if (r.first > r.last)
                continue;
            if (l > 0)
                at = add_encoded(b, r, n_bytes[l], next, at);
            else
                set_fill(&ascii, r.first, r.last);
            any |= l == 0;
        }
    return any          ? add_choice(b, add_node(b, NODE_BYTES, next, add_set(b, &ascii)), at)
           : at == NONE ? next
                        : at;
}

// ---- expressions

static uint32_t emit(struct grammar_builder *b, const struct expr *e, uint32_t next);

static uint32_t emit_repeat(struct grammar_builder *b, const struct expr *e, uint32_t next)
{
    uint32_t n_copies = e->max == UINT32_MAX ? e->min + 1 : e->max, rule = e->parts->rule, at = next;

    if (e->parts->kind != EXPR_RULE && n_copies > 1) { // compiled once, called n times
        rule = add_rule(b);
        uint32_t start = emit(b, e->parts, 0);
        if (!b->full)
            b->g->starts[rule] = start;
    }
    bool calls = e->parts->kind == EXPR_RULE || n_copies > 1;
    if (e->max == UINT32_MAX) {
        at = add_node(b, NODE_SPLIT, 0, next);
        uint32_t body = calls ? add_node(b, NODE_CALL, at, rule) : emit(b, e->parts, at);
        if (!b->full)
            b->g->nodes[at].next = body;
    }
    for (uint32_t i = e->min; e->max != UINT32_MAX && i < e->max && !b->full; i++)
        at = add_node(b, NODE_SPLIT, calls ? add_node(b, NODE_CALL, at, rule) : emit(b, e->parts, at), next);
    for (uint32_t i = 0; i < e->min && !b->full; i++)
        at = calls ? add_node(b, NODE_CALL, at, rule) : emit(b, e->parts, at);
    return at;
}

static uint32_t emit(struct grammar_builder *b, const struct expr *e, uint32_t next)
{
    uint32_t at = NONE;

    if (b->full)
        return 0;
    switch (e->kind) {
    case EXPR_TEXT:
        for (size_t i = e->text.n; i-- > 0;)
            next = add_range(b, (uint8_t)e->text.at[i], (uint8_t)e->text.at[i], next);
        return next;
    case EXPR_CLASS:
        return emit_class(b, e, next);
    case EXPR_RULE:
        return add_node(b, NODE_CALL, next, e->rule);
    case EXPR_SEQUENCE:
        for (const struct expr *part = e->parts; part; part = part->next)
            next = emit(b, part, next);
        return next;
    case EXPR_CHOICE:
        for (const struct expr *part = e->parts; part; part = part->next)
            at = add_choice(b, emit(b, part, next), at);
        return at;
    case EXPR_REPEAT:
        return emit_repeat(b, e, next);
    }
    return next;
}

// ---- termination

struct grammar_walk { // over nodes or rules, without recursion
    uint32_t *stack, *mark;
    uint8_t *empty; // [n_rules] the rule can be nothing
};

// Whether the rule's end can be reached without a byte, given the empty rules found so far. calls: collects
// the rules called on the way.
static bool reaches_end(const struct grammar *g, struct grammar_walk *w, uint32_t rule, struct buf *calls)
{
    uint32_t n = 0, stamp = rule + 1;
    bool end = false;

    w->stack[n++] = g->starts[rule];
    while (n > 0) {
        uint32_t at = w->stack[--n];
        const struct grammar_node *node = &g->nodes[at];
        if (w->mark[at] == stamp)
            continue;
        w->mark[at] = stamp;
        end |= node->kind == NODE_RETURN;
        if (node->kind == NODE_CALL && calls)
            buf_append(calls, &node->other, sizeof node->other);
        if (node->kind == NODE_SPLIT || (node->kind == NODE_CALL && w->empty[node->other]))
            w->stack[n++] = node->next;
        if (node->kind == NODE_SPLIT)
            w->stack[n++] = node->other;
    }
    return end;
}

// Finds the rules that match the empty string. False: the search takes too many rounds.
static bool find_empty(const struct grammar *g, struct grammar_walk *w)
{
    bool changed = true;

    for (uint32_t pass = 0; changed && pass < MAX_PASSES; pass++) {
        changed = false;
        memset(w->mark, 0, g->n_nodes * sizeof *w->mark);
        for (uint32_t i = g->n_rules; i-- > 0;) // rules mostly call later ones
            if (!w->empty[i] && reaches_end(g, w, i, NULL))
                w->empty[i] = changed = true;
    }
    return !changed;
}

// Depth-first search over the rules that a rule can call first. A rule on its own path is left-recursive.
// Returns it, or NONE.
static uint32_t find_cycle(const struct grammar *g, const uint32_t *first, const uint32_t *calls,
                           uint32_t *next, uint32_t *path)
{
    for (uint32_t root = 0; root < g->n_rules; root++) {
        uint32_t n = 0;
        if (next[root])
            continue;
        path[n++] = root;
        next[root] = 1; // 0: not seen; k: the call k - 1 is next; NONE: done
        while (n > 0) {
            uint32_t at = path[n - 1], i = first[at] + next[at] - 1;
            if (i == first[at + 1]) {
                next[at] = NONE;
                n--;
                continue;
            }
            next[at]++;
            uint32_t called = calls[i];
            if (next[called] == 0) {
                next[called] = 1;
                path[n++] = called;
            } else if (next[called] != NONE) {
                return called;
            }
        }
    }
    return NONE;
}

static bool check_ends(const struct grammar *g, const struct grammar_source *source, struct err *err)
{
    uint32_t *words = mem_alloc_array((size_t)3 * g->n_rules + 1, sizeof *words);
    struct grammar_walk w = { mem_alloc_array((size_t)2 * g->n_nodes + 2, 4), mem_alloc_array(g->n_nodes, 4),
                              mem_alloc(g->n_rules) };
    struct buf calls = { 0 };
    uint32_t cycle = NONE;
    bool ok = words && w.stack && w.mark && w.empty, settled = false;

    if (ok && (settled = find_empty(g, &w))) {
        uint32_t *first = words, *next = words + g->n_rules + 1, *path = next + g->n_rules;
        memset(w.mark, 0, g->n_nodes * sizeof *w.mark);
        for (uint32_t i = 0; i < g->n_rules; i++) {
            reaches_end(g, &w, i, &calls);
            first[i + 1] = (uint32_t)(calls.n / sizeof(uint32_t));
        }
        ok = !calls.failed;
        if (ok && calls.n > 0)
            cycle = find_cycle(g, first, (const uint32_t *)(const void *)calls.at, next, path);
    }
    mem_free(words);
    mem_free(w.stack);
    mem_free(w.mark);
    mem_free(w.empty);
    buf_free(&calls);
    if (!ok)
        return err_memory(err, "a grammar");
    if (!settled)
        return err_set(err, ERR_INPUT,
                       "grammar: rules that may be empty depend on each other in more than %d steps",
                       MAX_PASSES);
    if (cycle == NONE)
        return true;
    return err_set(
        err, ERR_INPUT,
        "grammar: the rule '%.*s' is left recursive: it can call itself before it has read anything",
        STR_ARG(cycle < source->n_rules ? source->rules[cycle].name : STR("(repetition)")));
}

// Puts bytes that are in the same sets into one class.
static void find_classes(struct grammar *g)
{
    g->n_classes = 1;
    for (uint32_t s = 0; s < g->n_sets && g->n_classes < 256; s++) {
        uint16_t split[256];
        memset(split, 0xff, sizeof split);
        uint32_t inside[256] = { 0 }, outside[256] = { 0 };
        for (uint32_t b = 0; b < 256; b++)
            (byte_set_has(&g->sets[s], (uint8_t)b) ? inside : outside)[g->byte_class[b]]++;
        for (uint32_t b = 0; b < 256; b++) {
            uint32_t c = g->byte_class[b];
            if (!byte_set_has(&g->sets[s], (uint8_t)b) || !inside[c] || !outside[c])
                continue;
            if (split[c] == 0xffff)
                split[c] = (uint16_t)g->n_classes++;
            g->byte_class[b] = (uint8_t)split[c];
        }
    }
    for (uint32_t b = 256; b-- > 0;)
        g->class_example[g->byte_class[b]] = (uint8_t)b;
}

static bool find_root(struct grammar *g, const struct grammar_source *source, struct err *err)
{
    for (g->root = 0; g->root < source->n_rules; g->root++)
        if (str_is(source->rules[g->root].name, "root"))
            return true;
    return err_set(err, ERR_INPUT, "grammar: there is no rule 'root', with which an answer begins");
}

static bool build(struct grammar *g, const struct grammar_source *source, struct err *err)
{
    struct grammar_builder b = { .g = g, .source = source };

    g->sets = mem_alloc_array(GRAMMAR_MAX_SETS, sizeof *g->sets);
    if (!g->sets)
        return err_memory(err, "a grammar");
    add_node(&b, NODE_RETURN, 0, 0);
    for (uint32_t i = 0; i < source->n_rules; i++)
        add_rule(&b);
    for (uint32_t i = 0; i < source->n_rules && !b.full; i++) {
        uint32_t start = emit(&b, source->rules[i].body, 0);
        g->starts[i] = start;
    }
    if (b.full)
        return err_set(
            err, ERR_INPUT,
            "grammar: it is too large: more than %d nodes, %d rules or %d classes, repetition spelt out",
            GRAMMAR_MAX_NODES, GRAMMAR_MAX_RULES, GRAMMAR_MAX_SETS);
    find_classes(g);
    return check_ends(g, source, err);
}

bool grammar_create(struct grammar **out, struct str text, struct err *err)
{
    struct grammar_source source = { .arena = arena_create(EXPRESSIONS_BYTES) };
    struct grammar *g = mem_alloc(sizeof *g);
    bool ok = (source.arena && g) || err_memory(err, "a grammar");

    ok = ok && grammar_parse(&source, text, err) && find_root(g, &source, err) && build(g, &source, err);
    mem_free(source.rules);
    arena_destroy(source.arena);
    if (!ok)
        grammar_free(g);
    *out = ok ? g : NULL;
    return ok;
}

void grammar_free(struct grammar *g)
{
    if (!g)
        return;
    mem_free(g->nodes);
    mem_free(g->starts);
    mem_free(g->sets);
    mem_free(g);
}
