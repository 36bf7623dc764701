// matcher.c - see matcher.h.
//
// A thread is (frame, node) in one word; frame 0 is the empty stack. A tail call pushes no frame, so that
// right recursion and loops need no stack. A state is a sorted set of threads that wait for a byte. States,
// frames and masks are caches: when they fill half of their memory, all except those that the current state
// needs are dropped before the next mask is computed.
#include "text/grammar/matcher.h"
#include <stdlib.h>
#include "base/hash_index.h"
#include "base/mem.h"
#include "text/grammar/grammar_node.h"

enum {
    MAX_STATES = 1 << 16,
    MAX_TABLE_BYTES = 8 << 20, // of cached transitions
    MAX_THREADS = 1 << 19,     // of all states
    MAX_STATE_THREADS = 1 << 13,
    MAX_FRAMES = 1 << 18,
    MAX_WORK = 1 << 21, // threads followed for one mask: some tens of milliseconds
    MAX_MASKS = 32,
    DEAD = 0,
    UNKNOWN = UINT32_MAX,
};

struct match_frame {
    uint32_t node, below;
};

struct state {
    uint32_t first, n; // in threads
    bool can_end;
    uint8_t mask; // index of its mask, plus 1; 0: none
};

struct matcher {
    const struct grammar *g;
    struct match_frame *frames;
    uint32_t n_frames, frame_capacity;
    struct state *states;
    uint32_t n_states, state_capacity, most_states;
    uint32_t *steps; // [n_states][n_classes] state after a byte of the class, DEAD, or UNKNOWN
    uint64_t *threads;
    uint32_t n_threads, thread_capacity;
    struct hash_index frame_index, state_index;
    uint32_t now;
    uint32_t work;
    uint64_t set[MAX_STATE_THREADS]; // the state under construction
    uint32_t n_set;
    uint64_t *todo;
    uint32_t n_todo, todo_capacity;
    uint64_t *seen; // hash table of threads, open addressing; stamped below
    uint32_t *stamps, seen_size, stamp, n_seen;
    bool set_can_end;
    const char *failed; // the limit that was reached
    uint32_t *masks;    // [MAX_MASKS][n_words]
    uint32_t n_masks, n_words;
};

static bool give_up(struct matcher *m, const char *why)
{
    if (!m->failed)
        m->failed = why;
    return false;
}

static bool no_memory(struct matcher *m)
{
    return give_up(m, "out of memory");
}

static bool grow(void **at, uint32_t *capacity, size_t bytes)
{
    uint32_t wanted = *capacity ? 2 * *capacity : 64;
    void *more = mem_realloc(*at, wanted * bytes);

    if (!more)
        return false;
    *at = more;
    *capacity = wanted;
    return true;
}

static uint64_t mix(uint64_t h)
{
    h = (h ^ h >> 31) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

// ---- hashes

static uint64_t hash_frame(const struct match_frame *f)
{
    return mix((uint64_t)f->below << 32 | f->node);
}

static uint64_t hash_threads(const uint64_t *threads, uint32_t n, bool can_end)
{
    uint64_t h = can_end;
    for (uint32_t i = 0; i < n; i++)
        h = mix(h ^ threads[i]);
    return h;
}

// ---- frames

// The number of this frame; UNKNOWN after a failure.
static uint32_t frame_number(struct matcher *m, struct match_frame f)
{
    uint64_t hash = hash_frame(&f);

    for (struct hash_probe p = { 0 }; hash_index_next(&m->frame_index, hash, &p);)
        if (m->frames[p.number].node == f.node && m->frames[p.number].below == f.below)
            return p.number;
    if (!hash_index_reserve(&m->frame_index))
        return no_memory(m), UNKNOWN;
    if (m->n_frames == MAX_FRAMES)
        return give_up(m, "its calls nest too deep or in too many ways"), UNKNOWN;
    if (m->n_frames == m->frame_capacity && !grow((void **)&m->frames, &m->frame_capacity, sizeof *m->frames))
        return no_memory(m), UNKNOWN;
    m->frames[m->n_frames] = f;
    hash_index_add(&m->frame_index, hash, m->n_frames);
    return m->n_frames++;
}

// ---- making a state

static uint64_t thread_of(uint32_t frame, uint32_t node)
{
    return (uint64_t)frame << 32 | node;
}

static bool seen_make_room(struct matcher *m)
{
    if (2 * m->n_seen < m->seen_size)
        return true;
    uint32_t size = m->seen_size ? 2 * m->seen_size : 512, *stamps = mem_alloc_array(size, sizeof *stamps);
    uint64_t *seen = mem_alloc_array(size, sizeof *seen);

    for (uint32_t i = 0; seen && stamps && i < m->seen_size; i++) {
        if (m->stamps[i] != m->stamp)
            continue;
        uint64_t at = mix(m->seen[i]) & (size - 1);
        while (stamps[at] == m->stamp)
            at = (at + 1) & (size - 1);
        seen[at] = m->seen[i];
        stamps[at] = m->stamp;
    }
    mem_free(stamps && seen ? m->seen : seen);
    mem_free(stamps && seen ? m->stamps : stamps);
    if (!stamps || !seen)
        return no_memory(m);
    m->seen = seen;
    m->stamps = stamps;
    m->seen_size = size;
    return true;
}

// Queues a thread unless it was followed already.
static void push(struct matcher *m, uint32_t frame, uint32_t node)
{
    uint64_t thread = thread_of(frame, node), at;

    if (m->failed || !seen_make_room(m))
        return;
    for (at = mix(thread) & (m->seen_size - 1); m->stamps[at] == m->stamp; at = (at + 1) & (m->seen_size - 1))
        if (m->seen[at] == thread)
            return;
    m->seen[at] = thread;
    m->stamps[at] = m->stamp;
    m->n_seen++;
    if (m->n_todo == m->todo_capacity && !grow((void **)&m->todo, &m->todo_capacity, sizeof *m->todo)) {
        no_memory(m);
        return;
    }
    m->todo[m->n_todo++] = thread;
}

static void follow(struct matcher *m, uint64_t thread)
{
    uint32_t frame = (uint32_t)(thread >> 32);
    const struct grammar_node *node = &m->g->nodes[(uint32_t)thread];

    switch ((enum grammar_node_kind)node->kind) {
    case NODE_BYTES:
        if (m->n_set == MAX_STATE_THREADS)
            give_up(m, "the answer can be read in more than 8192 ways at once");
        else
            m->set[m->n_set++] = thread;
        return;
    case NODE_SPLIT:
        push(m, frame, node->next);
        push(m, frame, node->other);
        return;
    case NODE_CALL:
        if (m->g->nodes[node->next].kind != NODE_RETURN)
            frame = frame_number(m, (struct match_frame){ node->next, frame });
        push(m, frame, m->g->starts[node->other]);
        return;
    case NODE_RETURN:
        if (frame == 0)
            m->set_can_end = true;
        else
            push(m, m->frames[frame].below, m->frames[frame].node);
        return;
    }
}

static void set_begin(struct matcher *m)
{
    m->n_set = m->n_todo = m->n_seen = 0;
    m->set_can_end = false;
    if (++m->stamp == 0) { // once in 2^32 states
        memset(m->stamps, 0, m->seen_size * sizeof *m->stamps);
        m->stamp = 1;
    }
}

static void set_follow(struct matcher *m)
{
    while (m->n_todo > 0 && !m->failed) {
        if (m->work++ == MAX_WORK)
            give_up(m, "it has too many ways to go on");
        follow(m, m->todo[--m->n_todo]);
    }
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static bool state_make_room(struct matcher *m)
{
    uint32_t capacity = m->state_capacity;

    while (m->thread_capacity - m->n_threads <= m->n_set)
        if (!grow((void **)&m->threads, &m->thread_capacity, sizeof *m->threads))
            return no_memory(m);
    if (m->n_states < capacity)
        return true;
    if (!grow((void **)&m->states, &m->state_capacity, sizeof *m->states))
        return no_memory(m);
    uint32_t *steps = mem_realloc(m->steps, (size_t)m->state_capacity * m->g->n_classes * sizeof *steps);
    if (!steps) {
        m->state_capacity = capacity;
        return no_memory(m);
    }
    m->steps = steps;
    return true;
}

// The number of the state in m->set; DEAD when it is empty or after a failure.
static uint32_t set_number(struct matcher *m)
{
    if (m->failed || (m->n_set == 0 && !m->set_can_end))
        return DEAD;
    qsort(m->set, m->n_set, sizeof *m->set, by_value);
    uint64_t hash = hash_threads(m->set, m->n_set, m->set_can_end);
    for (struct hash_probe p = { 0 }; hash_index_next(&m->state_index, hash, &p);) {
        const struct state *s = &m->states[p.number];
        if (s->n == m->n_set && s->can_end == m->set_can_end &&
            !memcmp(m->threads + s->first, m->set, s->n * sizeof *m->set))
            return p.number;
    }
    if (!hash_index_reserve(&m->state_index))
        return no_memory(m), DEAD;
    if (m->n_states == m->most_states || m->n_threads + m->n_set > MAX_THREADS)
        return give_up(m, "it has too many states"), DEAD;
    if (!state_make_room(m))
        return DEAD;
    m->states[m->n_states] =
        (struct state){ .first = m->n_threads, .n = m->n_set, .can_end = m->set_can_end };
    memcpy(m->threads + m->n_threads, m->set, m->n_set * sizeof *m->set);
    memset(m->steps + (size_t)m->n_states * m->g->n_classes, 0xff, m->g->n_classes * sizeof *m->steps);
    m->n_threads += m->n_set;
    hash_index_add(&m->state_index, hash, m->n_states);
    return m->n_states++;
}

// Computes the transition of the state on a byte of the class.
static uint32_t state_step(struct matcher *m, uint32_t state, uint32_t class)
{
    const struct grammar *g = m->g;
    uint8_t byte = g->class_example[class];

    set_begin(m);
    for (uint32_t i = 0; i < m->states[state].n && !m->failed; i++) {
        uint64_t thread = m->threads[m->states[state].first + i];
        const struct grammar_node *node = &g->nodes[(uint32_t)thread];
        if (byte_set_has(&g->sets[node->other], byte))
            push(m, (uint32_t)(thread >> 32), node->next);
    }
    set_follow(m);
    uint32_t next = set_number(m);
    if (!m->failed)
        m->steps[(size_t)state * g->n_classes + class] = next;
    return next;
}

static inline uint32_t state_after(struct matcher *m, uint32_t state, uint8_t byte)
{
    uint32_t class = m->g->byte_class[byte], next = m->steps[(size_t)state * m->g->n_classes + class];
    return next != UNKNOWN ? next : state_step(m, state, class);
}

// ---- emptying the caches

// Keeps the frames below `threads`, in order, and renumbers the threads.
static bool keep_frames(struct matcher *m, uint64_t *threads, uint32_t n)
{
    uint32_t *place = mem_alloc_array(m->n_frames, sizeof *place), kept = 0;

    if (!place)
        return no_memory(m);
    place[0] = 1;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t f = (uint32_t)(threads[i] >> 32); !place[f]; f = m->frames[f].below)
            place[f] = 1;
    hash_index_clear(&m->frame_index);
    for (uint32_t f = 0, n_frames = m->n_frames; f < n_frames;
         f++) { // a frame's number is above that of the one below it
        if (!place[f])
            continue;
        m->n_frames = kept;
        place[f] =
            frame_number(m, (struct match_frame){ m->frames[f].node, f ? place[m->frames[f].below] : 0 });
        kept++;
    }
    m->n_frames = kept;
    for (uint32_t i = 0; i < n; i++)
        threads[i] = thread_of(place[threads[i] >> 32], (uint32_t)threads[i]);
    mem_free(place);
    return !m->failed;
}

static bool make_dead_state(struct matcher *m)
{
    if (!state_make_room(m))
        return false;
    m->states[DEAD] = (struct state){ 0 };
    memset(m->steps, 0, m->g->n_classes * sizeof *m->steps);
    m->n_states = 1;
    return true;
}

static bool forget(struct matcher *m)
{
    const struct state now = m->states[m->now];

    if (2 * m->n_states < m->most_states && 2 * m->n_threads < MAX_THREADS && 2 * m->n_frames < MAX_FRAMES)
        return true;
    memcpy(m->set, m->threads + now.first, now.n * sizeof *m->set);
    m->n_set = now.n;
    m->set_can_end = now.can_end;
    hash_index_clear(&m->state_index);
    m->n_states = m->n_threads = m->n_masks = 0;
    if (!keep_frames(m, m->set, m->n_set) || !make_dead_state(m))
        return false;
    m->now = set_number(m);
    return !m->failed;
}

// ---- the interface

static bool say_failure(const struct matcher *m, struct err *err)
{
    return err_set(err, ERR_INPUT, "the grammar cannot be followed any further: %s", m->failed);
}

bool matcher_create(struct matcher **out, const struct grammar *g, struct err *err)
{
    struct matcher *m = mem_alloc(sizeof *m);

    *out = m;
    if (!m)
        return err_memory(err, "a grammar's matcher");
    m->g = g;
    m->most_states = MAX_TABLE_BYTES / (g->n_classes * (uint32_t)sizeof *m->steps);
    m->most_states = m->most_states < MAX_STATES ? m->most_states : MAX_STATES;
    if (make_dead_state(m) && frame_number(m, (struct match_frame){ UNKNOWN, 0 }) == 0) {
        set_begin(m);
        push(m, 0, g->starts[g->root]);
        set_follow(m);
        m->now = set_number(m);
    }
    if (!m->failed && m->now != DEAD)
        return true;
    if (m->failed)
        say_failure(m, err);
    else
        err_set(err, ERR_INPUT, "grammar: no text fits it");
    matcher_free(m);
    *out = NULL;
    return false;
}

void matcher_free(struct matcher *m)
{
    if (!m)
        return;
    mem_free(m->frames);
    mem_free(m->states);
    mem_free(m->steps);
    mem_free(m->threads);
    hash_index_free(&m->frame_index);
    hash_index_free(&m->state_index);
    mem_free(m->todo);
    mem_free(m->seen);
    mem_free(m->stamps);
    mem_free(m->masks);
    mem_free(m);
}

bool matcher_accept(struct matcher *m, struct str bytes, struct err *err)
{
    uint32_t at = m->now;

    m->work = 0;
    if (!m->failed && !forget(m))
        return say_failure(m, err);
    at = m->now;
    for (size_t i = 0; i < bytes.n && at != DEAD && !m->failed; i++)
        at = state_after(m, at, (uint8_t)bytes.at[i]);
    if (m->failed)
        return say_failure(m, err);
    if (at == DEAD)
        return err_set(err, ERR_INPUT, "the text does not fit the grammar");
    m->now = at;
    return true;
}

bool matcher_can_end(const struct matcher *m)
{
    return m->states[m->now].can_end;
}

static void walk(struct matcher *m, const struct token_trie *trie, uint32_t *mask)
{
    uint32_t path[TRIE_MAX_DEPTH + 1] = { m->now };

    for (uint32_t i = 0; i < trie->n_nodes && !m->failed;) {
        const struct trie_node *node = &trie->nodes[i];
        uint32_t next = state_after(m, path[node->depth - 1], node->byte);
        path[node->depth] = next;
        i = next == DEAD ? node->end : i + 1;
        for (uint32_t t = next == DEAD ? TRIE_NO_TOKEN : node->token; t != TRIE_NO_TOKEN; t = trie->same[t])
            mask[t >> 5] |= 1u << (t & 31);
    }
}

static bool make_mask(struct matcher *m, const struct token_trie *trie, uint32_t *mask)
{
    uint32_t any = 0;

    memset(mask, 0, m->n_words * sizeof *mask);
    walk(m, trie, mask);
    for (uint32_t i = 0; matcher_can_end(m) && i < trie->n_ends; i++)
        mask[trie->ends[i] >> 5] |= 1u << (trie->ends[i] & 31);
    for (uint32_t i = 0; i < m->n_words; i++)
        any |= mask[i];
    return !m->failed && (any || give_up(m, "no token of the vocabulary fits what it asks for"));
}

bool matcher_mask(struct matcher *m, const struct token_trie *trie, uint32_t *mask, uint32_t n_bits,
                  struct err *err)
{
    uint32_t n_words = (n_bits + 31) / 32;

    CHECK(n_bits >= trie->n_tokens);
    m->work = 0;
    if (m->failed || !forget(m))
        return say_failure(m, err);
    if (n_words != m->n_words) {
        mem_free(m->masks);
        m->masks = mem_alloc_array((size_t)MAX_MASKS * n_words, sizeof *m->masks);
        m->n_words = m->masks ? n_words : 0;
        m->n_masks = 0;
        if (!m->masks)
            return err_memory(err, "a grammar's masks");
    }
    struct state *now = &m->states[m->now];
    if (now->mask == 0) {
        uint32_t place = m->n_masks++ % MAX_MASKS;
        for (uint32_t s = 0; s < m->n_states; s++) // drop the mask of the state that used this slot
            m->states[s].mask = m->states[s].mask == place + 1 ? 0 : m->states[s].mask;
        if (!make_mask(m, trie, m->masks + (size_t)place * n_words))
            return say_failure(m, err);
        now = &m->states[m->now]; // it may have moved
        now->mask = (uint8_t)(place + 1);
    }
    memcpy(mask, m->masks + (size_t)(now->mask - 1) * n_words, n_words * sizeof *mask);
    return true;
}
