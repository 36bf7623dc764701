// cpu.c - plays tapes on the CPU: all threads walk the list of commands together; see cpu.h.
#include "device/cpu/cpu.h"
#include "device/cpu/cpu_stop.h"
#include "device/cpu/huge_pages.h"
#include "device/cpu/row_partition.h"
#include "device/cpu/thread_count.h"
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/cgroup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "device/tape_internal.h"

enum { LINE = 64, AHEAD_BYTES = 64 << 20 };

struct cpu {
    struct device device;
    struct cpu_options options;
    uint32_t features;
    struct thread_pool *pool;
    struct thread_count count;
    const struct cpu_kernel **kernels; // [n_ops], NULL: not supported
    struct huge_chunk *newest;         // for large buffers
    atomic_uint stop_at;               // the command before which the play that runs ends; UINT32_MAX: none
};

static atomic_bool stopped; // of the process

void cpu_stop(void)
{
    atomic_store(&stopped, true);
}

static bool is_stopped(void)
{
    return atomic_load_explicit(&stopped, memory_order_relaxed);
}

struct cpu_tape {
    // [2][threads][counter_stride], of them [commands][CPU_MAX_PHASES]: how many tiles of a thread's part are
    // taken in this play. Double buffered: each thread clears its own counters for the next play, which lie
    // in its cache.
    atomic_uint *tile_at;
    size_t counter_stride; // whole cache lines
    uint32_t turn;
    unsigned char *local; // [threads][local_bytes]
    size_t local_bytes;
    struct row_partition partition;
};

struct cpu_play {
    struct cpu *cpu;
    struct tape *tape;
    const struct step *step;
    uint32_t first, last;
    uint32_t n_threads;
    bool by_rows;             // the tape's first commands run on a row partition
    struct play_times *times; // or NULL
};

// Of one command and phase, each thread's.
struct tile_counters {
    atomic_uint *at;
    size_t stride;
};

static atomic_uint *counters_of_turn(const struct cpu_play *p, uint32_t turn)
{
    const struct cpu_tape *native = p->tape->native;
    return native->tile_at + turn * thread_pool_size(p->cpu->pool) * native->counter_stride;
}

static struct tile_counters counters_of(const struct cpu_play *p, uint32_t command, uint32_t phase)
{
    const struct cpu_tape *native = p->tape->native;
    return (struct tile_counters){
        counters_of_turn(p, native->turn) + (size_t)command * CPU_MAX_PHASES + phase, native->counter_stride
    };
}

struct tile_count {
    uint32_t n, even; // tiles of this part; of an even one
};

// Where a thread's part of the tiles begins. Parts are contiguous: each thread reads one stretch of a
// weight, from front to back.
static uint32_t part_begin(uint32_t n_tiles, uint32_t n_together, unsigned thread, unsigned n_threads)
{
    uint32_t at = (uint32_t)((uint64_t)n_tiles * thread / n_threads);

    return thread < n_threads && n_together ? at - at % n_together : at;
}

// The number of tiles in the next chunk: half of those left in the thread's part (guided self-scheduling). So
// there are few chunks, and the last ones, for which other threads may wait, are small. Tiles that belong
// together stay together, except for the ones by which a part exceeds an even one.
static uint32_t chunk_of(const struct cpu_plan *plan, uint32_t taken, struct tile_count part)
{
    uint32_t half = (part.n - taken + 1) / 2, together = plan->n_together ? plan->n_together : 1;

    if (half < together)
        return taken + together <= part.even ? together : half;
    return half - half % together;
}

// Runs the thread's own part, in chunks, and then what the other threads have not taken of theirs.
static void run_tiles(const struct cpu_kernel *kernel, const struct cpu_call *call, uint32_t phase,
                      const struct cpu_plan *plan, const struct tile_counters *counters)
{
    const uint32_t n_tiles = plan->n_tiles[phase];

    for (unsigned i = 0; i < call->n_threads; i++) {
        unsigned owner = (call->thread + i) % call->n_threads;
        atomic_uint *tile_at = counters->at + owner * counters->stride;
        uint32_t begin = part_begin(n_tiles, plan->n_together, owner, call->n_threads),
                 n = part_begin(n_tiles, plan->n_together, owner + 1, call->n_threads) - begin, taken, chunk;
        while ((taken = atomic_load_explicit(tile_at, memory_order_relaxed)) < n) {
            chunk = chunk_of(plan, taken, (struct tile_count){ n, n_tiles / call->n_threads });
            taken = atomic_fetch_add_explicit(tile_at, chunk, memory_order_relaxed);
            if (taken < n)
                kernel->run(call, phase, begin + taken, begin + (n - taken < chunk ? n : taken + chunk));
        }
    }
}

static void play_command(const struct cpu_play *p, uint32_t index, struct cpu_call *call)
{
    const struct cpu_kernel *kernel = p->cpu->kernels[p->tape->commands[index].op];
    struct cpu_plan plan = { 0 };
    uint64_t fresh = ~(uint64_t)0;

    call->command = &p->tape->commands[index];
    call->fresh = &fresh;
    kernel->plan(call, &plan);
    for (uint32_t phase = 0, ran = 0; phase < plan.n_phases; phase++) {
        if (plan.n_tiles[phase] == 0)
            continue;
        if (ran++)
            thread_pool_barrier(p->cpu->pool, call->thread);
        struct tile_counters counters = counters_of(p, index, phase);
        run_tiles(kernel, call, phase, &plan, &counters);
    }
}

// Where to note the times of a command on this thread; NULL: nowhere.
static struct command_span *span_of(const struct cpu_play *p, unsigned thread, uint32_t command)
{
    return p->times ? &p->times->spans[(size_t)thread * p->tape->n_commands + command] : NULL;
}

static void span_begin(struct command_span *span)
{
    if (span)
        span->begin = clock_ns();
}

static void span_end(struct command_span *span)
{
    if (span)
        span->end = clock_ns();
}

// Plays the thread's part of the step, tile after tile.
static void play_part(const struct cpu_play *p, unsigned thread, void *local)
{
    struct row_partition *partition = &((struct cpu_tape *)p->tape->native)->partition;
    const struct row_part *part = row_partition_take(partition, p->tape, p->step, thread);

    for (uint32_t i = 0; i < partition->n_commands; i++) {
        const struct cpu_kernel *kernel = p->cpu->kernels[part->commands[i].op];
        uint64_t fresh = ~(uint64_t)0;
        struct cpu_call call = { &part->commands[i], part->step, local, &fresh, .thread = 0, .n_threads = 1 };
        struct command_span *span = span_of(p, thread, i);
        struct cpu_plan plan = { 0 };
        span_begin(span);
        kernel->plan(&call, &plan);
        for (uint32_t phase = 0; phase < plan.n_phases; phase++)
            if (plan.n_tiles[phase] > 0)
                kernel->run(&call, phase, 0, plan.n_tiles[phase]);
        span_end(span);
    }
}

// What thread 0 has asked the system to read of the file: the weights of commands before `next`, `bytes` of
// them not used yet.
struct ahead {
    uint32_t next;
    uint64_t bytes;
};

// The memory of a packed weight is the device's own.
static void ask_ahead(void *arg, const struct weight *w, uint64_t first, uint64_t n_rows)
{
    struct cpu *cpu = arg;
    uint64_t row_bytes = w->bytes / w->n_rows;

    if (w->buffer.native)
        return;
    file_map_ahead((const unsigned char *)w->buffer.host + first * row_bytes, n_rows * row_bytes);
    cpu->device.counters.ahead_bytes += n_rows * row_bytes;
}

static void add_bytes(void *sum, const struct weight *w, uint64_t first, uint64_t n_rows)
{
    (void)first;
    *(uint64_t *)sum += w->bytes / w->n_rows * n_rows;
}

static void tell_weights(const struct command *c, cpu_tell *tell, void *arg)
{
    for (uint32_t i = 0; i < c->n_operands; i++)
        if (c->operands[i].weight && c->operands[i].weight->n_rows > 0)
            tell(arg, c->operands[i].weight, 0, c->operands[i].weight->n_rows);
}

// Before a command: its own weights where they were chosen just now, and those of the commands behind it.
static void read_ahead(const struct cpu_play *p, uint32_t index, struct cpu_call *call, struct ahead *ahead)
{
    const struct cpu_op *const *ops = p->cpu->options.table->ops;
    const struct command *commands = p->tape->commands;
    uint64_t used = 0;

    call->command = &commands[index];
    if (ops[commands[index].op]->reads)
        ops[commands[index].op]->reads(call, ask_ahead, p->cpu);
    else if (index < ahead->next)
        tell_weights(&commands[index], add_bytes, &used);
    ahead->bytes -= used;
    ahead->next = ahead->next > index ? ahead->next : index;
    for (; ahead->next < p->last && ahead->bytes < AHEAD_BYTES; ahead->next++)
        if (!ops[commands[ahead->next].op]->reads) {
            tell_weights(&commands[ahead->next], ask_ahead, p->cpu);
            tell_weights(&commands[ahead->next], add_bytes, &ahead->bytes);
        }
}

// False: the play ends here. One thread decides before the barrier for all: they leave at the same one.
static bool pass_barrier(const struct cpu_play *p, unsigned thread, uint32_t command)
{
    atomic_uint *stop_at = &p->cpu->stop_at;

    if (thread == 0 && is_stopped() && atomic_load_explicit(stop_at, memory_order_relaxed) == UINT32_MAX)
        atomic_store_explicit(stop_at, command, memory_order_relaxed);
    thread_pool_barrier(p->cpu->pool, thread);
    return command < atomic_load_explicit(stop_at, memory_order_relaxed);
}

// And those of threads that do not play.
static void clear_next_counters(const struct cpu_play *p, unsigned thread)
{
    const struct cpu_tape *native = p->tape->native;
    atomic_uint *next = counters_of_turn(p, 1 - native->turn);

    for (unsigned owner = thread; owner < thread_pool_size(p->cpu->pool); owner += p->n_threads)
        for (size_t i = 0; i < (size_t)p->tape->n_commands * CPU_MAX_PHASES; i++)
            atomic_store_explicit(&next[owner * native->counter_stride + i], 0, memory_order_relaxed);
}

static void play_commands(void *arg, unsigned thread)
{
    const struct cpu_play *p = arg;
    struct cpu_tape *native = p->tape->native;
    struct cpu_call call = { .step = p->step,
                             .local = native->local + thread * native->local_bytes,
                             .thread = thread,
                             .n_threads = p->n_threads };
    uint32_t first = p->first;
    struct ahead ahead = { 0 };

    clear_next_counters(p, thread);
    if (p->by_rows) {
        play_part(p, thread, call.local);
        first = native->partition.n_commands;
    }
    for (uint32_t i = first; i < p->last; i++) {
        if (i > p->first && (p->tape->commands[i].barrier || i == first) && !pass_barrier(p, thread, i))
            return;
        if (thread == 0 && p->cpu->device.uses_file)
            read_ahead(p, i, &call, &ahead);
        struct command_span *span = span_of(p, thread, i);
        span_begin(span);
        play_command(p, i, &call);
        span_end(span);
    }
}

static void play_range(struct cpu *cpu, struct cpu_play p)
{
    struct tape *t = p.tape;
    struct cpu_tape *native = t->native;
    const uint32_t first = p.first, last = p.last;

    p.by_rows = first == 0 && last == t->n_commands && row_partition_assign(&native->partition, p.step);
    if (p.by_rows) // no barriers, so all threads are worth their cost
        p.n_threads = thread_pool_size(cpu->pool);
    native->turn = 1 - native->turn;
    CHECK(p.step->n_rows <= t->limits.max_rows && p.step->n_outputs <= t->limits.max_outputs);
    atomic_store_explicit(&cpu->stop_at, UINT32_MAX, memory_order_relaxed);
    if (p.times)
        *p.times = (struct play_times){ clock_ns(), 0, p.n_threads, p.times->spans };
    thread_pool_be_patient(cpu->pool, cpu->count.patient);
    struct thread_pool_time time = thread_pool_run_some(cpu->pool, p.n_threads, play_commands, &p);
    if (p.times)
        p.times->ended = clock_ns();
    if (!p.by_rows)
        thread_count_note(&cpu->count, time, clock_ns());
    cpu->device.counters.submissions++;
    cpu->device.counters.commands += last - first;
    for (uint32_t i = p.by_rows ? native->partition.n_commands : first; i < last; i++)
        cpu->device.counters.barriers +=
            t->commands[i].barrier || (p.by_rows && i == native->partition.n_commands);
}

static bool cpu_play(struct device *d, struct tape *t, const struct buffer *step, uint32_t first,
                     uint32_t last, struct err *err)
{
    struct cpu *cpu = (struct cpu *)d;

    play_range(cpu, (struct cpu_play){ cpu, t, step->host, first, last, cpu->count.n, false, NULL });
    return !is_stopped() || err_set(err, ERR_CANCELLED, "the computation was stopped");
}

static bool cpu_play_timed(struct device *d, struct tape *t, const struct buffer *step,
                           struct play_times *times, struct err *err)
{
    struct cpu *cpu = (struct cpu *)d;

    play_range(cpu, (struct cpu_play){ cpu, t, step->host, 0, t->n_commands, cpu->count.n, false, times });
    return !is_stopped() || err_set(err, ERR_CANCELLED, "the computation was stopped");
}

static uint32_t cpu_n_lanes(struct device *d)
{
    return thread_pool_size(((struct cpu *)d)->pool);
}

static bool cpu_wait(struct device *d, struct err *err)
{
    (void)err;
    d->counters.waits++;
    return true;
}

// The largest local memory that a kernel needs in the largest step of the tape, with every position 0. 0
// without memory.
static size_t local_bytes_needed(struct cpu *cpu, struct tape *t)
{
    struct step *largest = mem_alloc(step_bytes(t->limits.max_rows, t->limits.max_outputs));
    uint64_t fresh = 0;
    size_t bytes = LINE;

    if (!largest)
        return 0;
    *largest = (struct step){ .n_rows = t->limits.max_rows,
                              .n_outputs = t->limits.max_outputs,
                              .max_rows = t->limits.max_rows,
                              .max_outputs = t->limits.max_outputs };

    for (uint32_t i = 0; i < t->n_commands; i++) {
        if (t->commands[i].border)
            continue;
        struct cpu_call call = { .command = &t->commands[i],
                                 .step = largest,
                                 .fresh = &fresh,
                                 .n_threads = thread_pool_size(cpu->pool) };
        struct cpu_plan plan = { 0 };
        cpu->kernels[t->commands[i].op]->plan(&call, &plan);
        CHECK(plan.n_phases <= CPU_MAX_PHASES);
        bytes = plan.local_bytes > bytes ? plan.local_bytes : bytes;
    }
    mem_free(largest);
    return (bytes + LINE - 1) / LINE * LINE;
}

static void cpu_drop(struct device *d, struct tape *t)
{
    struct cpu_tape *native = t->native;

    (void)d;
    if (!native)
        return;
    row_partition_close(&native->partition);
    mem_free_aligned(native->tile_at);
    mem_free_aligned(native->local);
    mem_free(native);
    t->native = NULL;
}

static bool cpu_seal(struct device *d, struct tape *t, struct err *err)
{
    struct cpu *cpu = (struct cpu *)d;

    for (uint32_t i = 0; i < t->n_commands; i++)
        if (!t->commands[i].border && !cpu->kernels[t->commands[i].op])
            return err_set(err, ERR_UNSUPPORTED, "%s: the CPU has no kernel for %s", t->commands[i].label,
                           t->commands[i].name);
    struct cpu_tape *native = mem_alloc(sizeof *native);
    if (!native)
        return err_memory(err, "a tape");
    t->native = native;
    native->local_bytes = local_bytes_needed(cpu, t);
    native->local = native->local_bytes
                        ? mem_alloc_aligned(native->local_bytes * thread_pool_size(cpu->pool), LINE)
                        : NULL;
    native->counter_stride = ((size_t)t->n_commands * CPU_MAX_PHASES / LINE + 1) * LINE;
    size_t counter_bytes = 2 * native->counter_stride * thread_pool_size(cpu->pool) * sizeof *native->tile_at;
    native->tile_at = mem_alloc_aligned(counter_bytes, LINE);
    if (native->tile_at)
        memset(native->tile_at, 0, counter_bytes);
    if (native->local && native->tile_at &&
        row_partition_open(&native->partition, t, cpu->options.table->ops, thread_pool_size(cpu->pool)))
        return true;
    cpu_drop(d, t);
    return err_memory(err, "a tape");
}

// Small buffers come from the heap, large ones from pages that take no memory until they are touched.
static bool buffer_is_paged(uint64_t bytes)
{
    return bytes >= 1 << 16;
}

bool cpu_buffer_alloc(struct device *d, uint64_t bytes, struct buffer *b, struct err *err)
{
    uint64_t rounded = (bytes / LINE + 1) * LINE; // never empty
    struct huge_chunk *chunk = NULL;
    void *host = rounded < bytes || rounded > SIZE_MAX ? NULL
                 : buffer_is_paged(bytes) ? huge_chunk_take(&((struct cpu *)d)->newest, rounded, &chunk)
                                          : mem_alloc_aligned(rounded, LINE);

    if (!host)
        return err_set(err, ERR_MEMORY, "out of memory for %llu bytes on %s", (unsigned long long)bytes,
                       d->name);
    if (!buffer_is_paged(bytes))
        memset(host, 0, rounded);
    *b = (struct buffer){ .device = d, .host = host, .bytes = bytes, .native = chunk ? (void *)chunk : host };
    return true;
}

static void cpu_release(struct device *d, struct buffer *b)
{
    if (b->native && buffer_is_paged(b->bytes)) // native is NULL for memory that belongs to the model file
        huge_chunk_drop(&((struct cpu *)d)->newest, b->native);
    else
        mem_free_aligned(b->native);
}

static bool cpu_write(struct device *d, struct buffer *b, uint64_t offset, const void *from, uint64_t bytes,
                      struct err *err)
{
    (void)d, (void)err;
    memcpy((unsigned char *)b->host + offset, from, bytes);
    return true;
}

static bool cpu_read(struct device *d, const struct buffer *b, uint64_t offset, void *to, uint64_t bytes,
                     struct err *err)
{
    (void)d, (void)err;
    memcpy(to, (const unsigned char *)b->host + offset, bytes);
    return true;
}

static bool cpu_weight_take(struct device *d, const struct weight_source *source, struct weight *w,
                            struct err *err)
{
    struct cpu *cpu = (struct cpu *)d;
    struct err packed = { 0 };
    bool pack =
        source->use >= WEIGHT_PRODUCT && !cpu->options.plain && !cpu->options.no_repack && !d->uses_file;

    *w = (struct weight){ .bytes = source->bytes,
                          .n_rows = source->n_rows,
                          .n_cols = source->n_cols,
                          .format = source->format,
                          .name = source->name };
    w->buffer =
        (struct buffer){ .device = d, .host = (void *)(uintptr_t)source->data, .bytes = source->bytes };
    if (cpu->options.no_repack &&
        !d->uses_file) // else a page that is missing would be read with 2 MB around it
        file_map_large_pages(source->data, source->bytes);
    if (!pack || cpu->options.table->pack(cpu->features, cpu->pool, source, w, &packed))
        return true;
    if (packed.code != ERR_NONE && err)
        *err = packed;
    return packed.code == ERR_NONE;
}

static bool cpu_supports(struct device *d, uint32_t op)
{
    return ((struct cpu *)d)->kernels[op] != NULL;
}

// How well the file was read ahead: a page that is missing when it is touched makes a thread wait.
static void tell_reading(const struct cpu *cpu)
{
    struct rusage use = { 0 };

    if (cpu->device.uses_file && getrusage(RUSAGE_SELF, &use) == 0)
        log_line(LOG_INFO, "cpu", "%.2f GiB of weights were read ahead; %ld times a page was missing",
                 (double)cpu->device.counters.ahead_bytes / (1 << 30), use.ru_majflt);
}

static void cpu_close(struct device *d)
{
    struct cpu *cpu = (struct cpu *)d;

    tell_reading(cpu);
    thread_pool_destroy(cpu->pool);
    mem_free(cpu->kernels);
    mem_free(cpu);
}

static void cpu_info(struct device *d, struct device_info *info)
{
    struct cpu *cpu = (struct cpu *)d;
    char features[96];

    cpu_features_print(cpu->features, features, sizeof features);
    snprintf(info->name, sizeof info->name, "%u thread%s, %s", thread_pool_size(cpu->pool),
             str_plural(thread_pool_size(cpu->pool)), cpu->options.plain ? "plain loops" : features);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    info->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
#if defined(_SC_AVPHYS_PAGES)
    info->free_bytes = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
#else
    info->free_bytes = info->memory_bytes;
#endif
    uint64_t limit = cgroup_memory_bytes("/proc/self/cgroup", "/sys/fs/cgroup");
    if (limit && limit < info->memory_bytes)
        info->memory_bytes = limit;
    if (info->free_bytes > info->memory_bytes)
        info->free_bytes = info->memory_bytes;
}

static const struct cpu_kernel *kernel_choose(const struct cpu_op *op, uint32_t features,
                                              const struct cpu_options *options)
{
    if (!op || (op->parts_are_faster && (!options->plain || options->parts)))
        return NULL;
    for (uint32_t i = 0; !options->plain && i < CPU_MAX_KERNELS && op->fast[i].kernel.run; i++)
        if ((op->fast[i].needs & ~features) == 0)
            return &op->fast[i].kernel;
    return &op->plain;
}

struct device *cpu_open(const struct cpu_options *options, struct err *err)
{
    static const struct device_ops ops = { cpu_close, cpu_info, cpu_buffer_alloc, cpu_release,
                                           cpu_write, cpu_read, cpu_weight_take,  cpu_supports,
                                           cpu_seal,  cpu_drop, cpu_play,         cpu_wait,
                                           NULL };
    static const struct device_timing timing = { cpu_n_lanes, cpu_play_timed };
    unsigned n_threads = options->n_threads ? options->n_threads : thread_count_available();

    if (!cpu_isa_check(err))
        return NULL;
    struct cpu *cpu = mem_alloc(sizeof *cpu);
    if (n_threads > 1024) {
        mem_free(cpu);
        err_set(err, ERR_INPUT, "%u threads asked for; at most 1024", n_threads);
        return NULL;
    }
    if (cpu) {
        cpu->options = *options;
        cpu->features = cpu_features() & (options->features ? options->features : (uint32_t)CPU_ALL);
        cpu->device.ops = &ops;
        cpu->device.timing = &timing;
        cpu->device.can_use_file = true;
        snprintf(cpu->device.name, sizeof cpu->device.name, options->plain ? "cpu:plain" : "cpu");
        cpu->pool = thread_pool_create(n_threads);
        cpu->count = thread_count_of(n_threads);
        cpu->kernels = mem_alloc_array(options->table->n_ops, sizeof *cpu->kernels);
    }
    if (!cpu || !cpu->pool || !cpu->kernels) {
        if (cpu)
            cpu_close(&cpu->device);
        err_memory(err, "the CPU's threads");
        return NULL;
    }
    for (uint32_t i = 0; i < options->table->n_ops; i++)
        cpu->kernels[i] = kernel_choose(options->table->ops[i], cpu->features, options);
    return &cpu->device;
}
