// emu_foundation.c - NSString, NSArray, NSURL, NSError, as far as a Metal program in C touches them.
#include "emu.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void string_destroy(void *o)
{
    free(((struct string *)o)->text);
}
static const char *string_utf8(struct string *o, selector s)
{
    (void)s;
    return o->text;
}
static ns_uint string_length(struct string *o, selector s)
{
    (void)s;
    return strlen(o->text);
}
static bool string_equals(struct string *o, selector s, struct string *other)
{
    (void)s;
    return other && !strcmp(o->text, other->text);
}
static void *string_with(void *class, selector s, const char *text)
{
    (void)class;
    (void)s;
    if (!text)
        emu_misuse("stringWithUTF8String: NULL");
    return text ? emu_autorelease(emu_string(text)) : NULL;
}
EMU_CLASS(NSString, &class_NSObject, struct string, string_destroy, false, METHOD("UTF8String", string_utf8),
          METHOD("length", string_length), METHOD("isEqualToString:", string_equals),
          METHOD("+stringWithUTF8String:", string_with))

void *emu_string(const char *text)
{
    struct string *o = emu_new(&class_NSString);

    o->text = strdup(text);
    return o;
}

void emu_array_destroy(void *object)
{
    struct emu_array *a = object;

    for (ns_uint i = 0; i < a->n_items; i++)
        emu_release(a->items[i]);
    free(a->items);
}
static ns_uint array_count(struct emu_array *a, selector s)
{
    (void)s;
    return a->n_items;
}
static void *array_at(struct emu_array *a, selector s, ns_uint i)
{
    (void)s;
    if (i >= a->n_items) {
        emu_misuse("objectAtIndex: %lu of %lu", i, a->n_items);
        return NULL;
    }
    return a->items[i];
}
static bool array_contains(struct emu_array *a, selector s, void *o)
{
    struct emu_object *object = o;

    (void)s;
    for (ns_uint i = 0; i < a->n_items; i++) {
        struct emu_object *item = a->items[i];
        if (item == object || (item->isa == &class_NSString && object->isa == &class_NSString &&
                               string_equals(o, s, (void *)item)))
            return true;
    }
    return false;
}
static void *array_with(void *class, selector s, void *o)
{
    (void)class;
    (void)s;
    return emu_autorelease(emu_array(&o, 1));
}
EMU_CLASS(NSArray, &class_NSObject, struct emu_array, emu_array_destroy, false, METHOD("count", array_count),
          METHOD("objectAtIndex:", array_at), METHOD("containsObject:", array_contains),
          METHOD("+arrayWithObject:", array_with))

void *emu_array(void **items, ns_uint n)
{
    struct emu_array *a = emu_new(&class_NSArray);

    a->items = calloc(n + 1, sizeof *a->items);
    a->n_items = n;
    for (ns_uint i = 0; i < n; i++)
        a->items[i] = emu_retain(items[i]);
    return a;
}

static void url_destroy(void *o)
{
    free(((struct url *)o)->path);
}
static void *url_with(void *class, selector s, struct string *path)
{
    struct url *u = emu_new(&class_NSURL);

    (void)class;
    (void)s;
    u->path = strdup(path->text);
    return emu_autorelease(u);
}
EMU_CLASS(NSURL, &class_NSObject, struct url, url_destroy, false, METHOD("+fileURLWithPath:", url_with))

struct error_object {
    struct emu_object object;
    struct string *description;
    long code;
};
static void error_destroy(void *o)
{
    emu_release(((struct error_object *)o)->description);
}
static void *error_description(struct error_object *e, selector s)
{
    (void)s;
    return e->description;
}
static ns_int error_code(struct error_object *e, selector s)
{
    (void)s;
    return e->code;
}
EMU_CLASS(NSError, &class_NSObject, struct error_object, error_destroy, false,
          METHOD("localizedDescription", error_description), METHOD("code", error_code))

void emu_error(void **error, long code, const char *format, ...)
{
    struct error_object *e;
    char message[4096];
    va_list list;

    if (!error)
        return;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    e = emu_new(&class_NSError);
    e->description = emu_string(message);
    e->code = code;
    *error = emu_autorelease(e);
}
