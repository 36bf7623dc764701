// emu_objc.c - the Objective-C runtime: message send, selectors, classes, retain counts, autorelease pools.
//
// A released object keeps its header for a while (the last 65,536 of them), so that a message to it, a second
// release or its use by a command buffer without references is noticed and not merely possible.
#include "emu.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SELECTORS = 1024, MAX_CLASSES = 128, GRAVES = 65536 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *selectors[MAX_SELECTORS];
static struct emu_class *classes[MAX_CLASSES];
static int n_selectors, n_classes;
static void *graves[GRAVES];
static uint32_t n_graves;

selector sel_registerName(const char *name)
{
    selector found = NULL;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_selectors && !found; i++)
        if (!strcmp(selectors[i], name))
            found = selectors[i];
    if (!found && n_selectors < MAX_SELECTORS)
        found = selectors[n_selectors++] = strdup(name);
    pthread_mutex_unlock(&lock);
    return found;
}

static struct emu_class class_of_classes = { .name = "Class" };

void emu_class_register(struct emu_class *class)
{
    class->object.isa = &class_of_classes;
    for (struct method *m = class->methods; m->name; m++)
        m->name_interned = sel_registerName(m->name + (m->name[0] == '+'));
    classes[n_classes++] = class;
}

void *objc_getClass(const char *name)
{
    for (int i = 0; i < n_classes; i++)
        if (!classes[i]->is_private && !strcmp(classes[i]->name, name))
            return classes[i];
    return NULL;
}

static void *find(struct emu_object *o, selector s)
{
    bool of_class = o->isa == &class_of_classes;

    for (struct emu_class *c = of_class ? (struct emu_class *)o : o->isa; c; c = c->super)
        for (struct method *m = c->methods; m->name; m++)
            if (m->name_interned == s && (m->name[0] == '+') == of_class)
                return m->function;
    return NULL;
}

bool emu_responds(struct emu_object *o, selector s)
{
    return find(o, s) != NULL;
}

static long nothing(void)
{
    return 0;
}

void *emu_find(struct emu_object *o, selector s)
{
    const char *name = o->isa == &class_of_classes ? ((struct emu_class *)o)->name : o->isa->name;
    void *function;

    if (emu_is_dead(o)) {
        emu_misuse("%s sent to a %s that was released", s, name);
        return (void *)nothing;
    }
    function = find(o, s);
    if (!function) {
        emu_misuse("%s does not respond to %s", name, s);
        return (void *)nothing;
    }
    return function;
}

// All argument registers are kept; a message to nil gives zero.
__asm__(".text\n.globl objc_msgSend\n.type objc_msgSend,@function\n"
        "objc_msgSend:\n testq %rdi,%rdi\n jz 1f\n"
        " pushq %rbp\n movq %rsp,%rbp\n subq $192,%rsp\n"
        " movq %rdi,(%rsp)\n movq %rsi,8(%rsp)\n movq %rdx,16(%rsp)\n movq %rcx,24(%rsp)\n movq "
        "%r8,32(%rsp)\n movq %r9,40(%rsp)\n"
        " movaps %xmm0,64(%rsp)\n movaps %xmm1,80(%rsp)\n movaps %xmm2,96(%rsp)\n movaps %xmm3,112(%rsp)\n"
        " call emu_find@PLT\n movq %rax,%r11\n"
        " movq (%rsp),%rdi\n movq 8(%rsp),%rsi\n movq 16(%rsp),%rdx\n movq 24(%rsp),%rcx\n movq "
        "32(%rsp),%r8\n movq 40(%rsp),%r9\n"
        " movaps 64(%rsp),%xmm0\n movaps 80(%rsp),%xmm1\n movaps 96(%rsp),%xmm2\n movaps 112(%rsp),%xmm3\n"
        " leave\n jmp *%r11\n"
        "1: xorl %eax,%eax\n xorl %edx,%edx\n xorps %xmm0,%xmm0\n ret\n.size objc_msgSend,.-objc_msgSend\n");

void *emu_new(struct emu_class *class)
{
    struct emu_object *o = calloc(1, class->bytes);

    o->isa = class;
    o->n_retains = 1;
    emu_count(&emu_knobs.objects, 1);
    return o;
}

bool emu_is_dead(const void *object)
{
    return __atomic_load_n(&((const struct emu_object *)object)->n_retains, __ATOMIC_ACQUIRE) == EMU_DEAD;
}

static bool is_static(const struct emu_object *o)
{
    return o->isa == &class_of_classes || (const void *)o == (const void *)&emu_device;
}

void *emu_retain(void *object)
{
    struct emu_object *o = object;

    if (o && emu_is_dead(o))
        emu_misuse("retain of a %s that was released", o->isa->name);
    else if (o && !is_static(o))
        __atomic_add_fetch(&o->n_retains, 1, __ATOMIC_RELAXED);
    return object;
}

static void bury(struct emu_object *o)
{
    uint32_t i;

    pthread_mutex_lock(&lock);
    i = n_graves++ % GRAVES;
    free(graves[i]);
    graves[i] = o;
    pthread_mutex_unlock(&lock);
}

void emu_release(void *object)
{
    struct emu_object *o = object;

    if (!o || is_static(o))
        return;
    if (emu_is_dead(o)) {
        emu_misuse("release of a %s that was released before", o->isa->name);
        return;
    }
    if (__atomic_sub_fetch(&o->n_retains, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    for (struct emu_class *c = o->isa; c; c = c->super)
        if (c->destroy) {
            c->destroy(o);
            break;
        }
    __atomic_store_n(&o->n_retains, EMU_DEAD, __ATOMIC_RELEASE);
    emu_count(&emu_knobs.objects, -1);
    bury(o);
}

static __thread struct pools {
    void **objects;
    uint32_t n_objects, capacity, depth;
} pools;

void *objc_autoreleasePoolPush(void)
{
    pools.depth++;
    return (void *)(uintptr_t)(pools.n_objects + 1);
}

void objc_autoreleasePoolPop(void *pool)
{
    uint32_t to = (uint32_t)(uintptr_t)pool - 1;

    if (pools.depth == 0 || !pool || to > pools.n_objects) {
        emu_misuse("an autorelease pool is popped that is not there");
        return;
    }
    pools.depth--;
    while (pools.n_objects > to)
        emu_release(pools.objects[--pools.n_objects]);
    if (pools.depth > 0)
        return;
    free(pools.objects);
    pools = (struct pools){ 0 };
}

void *emu_autorelease(void *object)
{
    if (!object)
        return NULL;
    if (pools.depth == 0) {
        emu_misuse("a %s is autoreleased and no pool is in place: it leaks",
                   ((struct emu_object *)object)->isa->name);
        return object;
    }
    if (pools.n_objects == pools.capacity) {
        pools.capacity = 2 * pools.capacity + 64;
        pools.objects = realloc(pools.objects, sizeof *pools.objects * pools.capacity);
    }
    pools.objects[pools.n_objects++] = object;
    return object;
}

void *objc_retain(void *o);
void objc_release(void *o);
void *objc_retain(void *o)
{
    return emu_retain(o);
}
void objc_release(void *o)
{
    emu_release(o);
}

static void *object_retain(void *o, selector s)
{
    (void)s;
    return emu_retain(o);
}
static void object_release(void *o, selector s)
{
    (void)s;
    emu_release(o);
}
static void *object_autorelease(void *o, selector s)
{
    (void)s;
    return emu_autorelease(o);
}
static void *object_init(void *o, selector s)
{
    (void)s;
    return o;
}
static bool object_responds(struct emu_object *o, selector s, selector what)
{
    (void)s;
    return find(o, what) != NULL && !(strstr(what, "esidency") && !emu_knobs.residency);
}
static void *class_new(struct emu_class *class, selector s)
{
    (void)s;
    return emu_new(class);
}
EMU_CLASS(NSObject, NULL, struct emu_object, NULL, false, METHOD("retain", object_retain),
          METHOD("release", object_release), METHOD("autorelease", object_autorelease),
          METHOD("init", object_init), METHOD("respondsToSelector:", object_responds),
          METHOD("+alloc", class_new), METHOD("+new", class_new))
void *_NSConcreteGlobalBlock[32];
void *_NSConcreteStackBlock[32];
