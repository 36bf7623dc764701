// emu_mps.c - the one piece of Metal Performance Shaders that ingot asks for: MPSMatrixMultiplication, in
// plain loops.
//
// C = alpha op(A) op(B) + beta C over matrices by rows, of float or half. Apple's sums run in another order
// and may round otherwise: what is proven here is that the right matrices meet.
#include <stdlib.h>
#include <string.h>
#include "emu.h"

enum { MPS_FLOAT16 = 0x10000000 | 16, MPS_FLOAT32 = 0x10000000 | 32 };

struct matrix_shape {
    struct emu_object object;
    ns_uint rows, columns, row_bytes;
    uint32_t type;
};
struct matrix {
    struct emu_object object;
    struct buffer_object *buffer;
    ns_uint offset;
    struct matrix_shape *shape;
};
struct multiplication {
    struct emu_object object;
    bool transpose_left, transpose_right;
    ns_uint rows, columns, interior;
    double alpha, beta;
};
struct product_call {
    struct emu_object object;
    struct multiplication *what;
    struct matrix *left, *right, *result;
};

static ns_uint number_bytes(uint32_t type)
{
    return type == MPS_FLOAT32 ? 4 : type == MPS_FLOAT16 ? 2 : 0;
}

static void *shape_with(void *class, selector s, ns_uint rows, ns_uint columns, ns_uint row_bytes,
                        uint32_t type);
EMU_CLASS(MPSMatrixDescriptor, &class_NSObject, struct matrix_shape, NULL, false,
          METHOD("+matrixDescriptorWithRows:columns:rowBytes:dataType:", shape_with))

static void *shape_with(void *class, selector s, ns_uint rows, ns_uint columns, ns_uint row_bytes,
                        uint32_t type)
{
    struct matrix_shape *d = emu_new(&class_MPSMatrixDescriptor);

    (void)class;
    (void)s;
    if (!number_bytes(type) || rows == 0 || columns == 0 || row_bytes < columns * number_bytes(type) ||
        row_bytes % number_bytes(type))
        emu_misuse("a matrix of %lu rows, %lu columns, %lu bytes a row, type 0x%x", rows, columns, row_bytes,
                   type);
    *d = (struct matrix_shape){ d->object, rows, columns, row_bytes, type };
    return emu_autorelease(d);
}

static void matrix_destroy(void *o)
{
    struct matrix *m = o;

    emu_release(m->buffer);
    emu_release(m->shape);
}
static void *matrix_init(struct matrix *m, selector s, struct buffer_object *buffer, ns_uint offset,
                         struct matrix_shape *shape)
{
    (void)s;
    if (!buffer || !shape || offset > buffer->bytes ||
        shape->rows * shape->row_bytes > buffer->bytes - offset) {
        emu_misuse("a matrix beyond its buffer");
        return m;
    }
    m->buffer = emu_retain(buffer);
    m->offset = offset;
    m->shape = emu_retain(shape);
    return m;
}
EMU_CLASS(MPSMatrix, &class_NSObject, struct matrix, matrix_destroy, false,
          METHOD("initWithBuffer:offset:descriptor:", matrix_init))

static void call_destroy(void *o)
{
    struct product_call *c = o;

    emu_release(c->what);
    emu_release(c->left);
    emu_release(c->right);
    emu_release(c->result);
}
EMU_CLASS(EmuProductCall, &class_NSObject, struct product_call, call_destroy, true, { 0, 0, 0 })

static double number_at(const struct matrix *m, ns_uint row, ns_uint column)
{
    const unsigned char *at = m->buffer->at + m->offset + row * m->shape->row_bytes;
    _Float16 half;
    float number;

    if (m->shape->type == MPS_FLOAT32) {
        memcpy(&number, at + 4 * column, 4);
        return number;
    }
    memcpy(&half, at + 2 * column, 2);
    return (double)half;
}

static void number_set(const struct matrix *m, ns_uint row, ns_uint column, double value)
{
    unsigned char *at = m->buffer->at + m->offset + row * m->shape->row_bytes;
    _Float16 half = (_Float16)value;
    float number = (float)value;

    if (m->shape->type == MPS_FLOAT32)
        memcpy(at + 4 * column, &number, 4);
    else
        memcpy(at + 2 * column, &half, 2);
}

static bool multiply(void *object)
{
    struct product_call *c = object;
    const struct multiplication *w = c->what;

    for (ns_uint i = 0; i < w->rows; i++)
        for (ns_uint j = 0; j < w->columns; j++) {
            double sum = 0;
            for (ns_uint k = 0; k < w->interior; k++)
                sum += (w->transpose_left ? number_at(c->left, k, i) : number_at(c->left, i, k)) *
                       (w->transpose_right ? number_at(c->right, j, k) : number_at(c->right, k, j));
            number_set(c->result, i, j,
                       w->alpha * sum + (w->beta != 0 ? w->beta * number_at(c->result, i, j) : 0));
        }
    emu_release(c);
    return true;
}

static void *multiplication_init(struct multiplication *w, selector s, void *device, bool transpose_left,
                                 bool transpose_right, ns_uint rows, ns_uint columns, ns_uint interior,
                                 double alpha, double beta)
{
    (void)s;
    if (!device || rows == 0 || columns == 0 || interior == 0)
        emu_misuse("a product of %lu x %lu by %lu", rows, columns, interior);
    *w = (struct multiplication){ w->object, transpose_left, transpose_right, rows,
                                  columns,   interior,       alpha,           beta };
    return w;
}

static bool shape_is(const struct matrix *m, ns_uint rows, ns_uint columns)
{
    return m && m->shape && m->shape->rows >= rows && m->shape->columns >= columns;
}

static void multiplication_encode(struct multiplication *w, selector s, struct commands_object *commands,
                                  struct matrix *left, struct matrix *right, struct matrix *result)
{
    ns_uint left_rows = w->transpose_left ? w->interior : w->rows,
            left_columns = w->transpose_left ? w->rows : w->interior;
    ns_uint right_rows = w->transpose_right ? w->columns : w->interior,
            right_columns = w->transpose_right ? w->interior : w->columns;

    (void)s;
    if (!commands_are_open(commands, "encodeToCommandBuffer"))
        return;
    if (!shape_is(left, left_rows, left_columns) || !shape_is(right, right_rows, right_columns) ||
        !shape_is(result, w->rows, w->columns)) {
        emu_misuse("a product of %lu x %lu by %lu, and matrices of another size", w->rows, w->columns,
                   w->interior);
        return;
    }
    struct product_call *call = emu_new(&class_EmuProductCall);
    call->what = emu_retain(w);
    call->left = emu_retain(left);
    call->right = emu_retain(right);
    call->result = emu_retain(result);
    commands_add(commands, COMMAND_BEGIN); // an encoder of its own
    struct command_record *r = commands_add(commands, COMMAND_CALL);
    r->call = multiply;
    r->object = call;
}
EMU_CLASS(
    MPSMatrixMultiplication, &class_NSObject, struct multiplication, NULL, false,
    METHOD("initWithDevice:transposeLeft:transposeRight:resultRows:resultColumns:interiorColumns:alpha:beta:",
           multiplication_init),
    METHOD("encodeToCommandBuffer:leftMatrix:rightMatrix:resultMatrix:", multiplication_encode))
