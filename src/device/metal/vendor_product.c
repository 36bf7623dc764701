// vendor_product.c - products by Apple's MPSMatrixMultiplication, for comparison with our own kernels.
//
// The objects are made when the tape is sealed. In a play each product ends the encoder and encodes itself,
// and the system keeps the order. Every product thus costs a new encoder, one reason why this is not the
// default.
#include "device/metal/metal_internal.h"

static objc_id new_matrix(const struct operand *o, ns_uint rows, ns_uint columns, uint32_t type)
{
    const struct metal_buffer *b = o->buffer->native;
    objc_id shape = mtl_matrix_shape(objc.objc_getClass("MPSMatrixDescriptor"), rows, columns,
                                     columns * (type == MPS_FLOAT16 ? 2 : 4), type);

    return mtl_matrix(mtl_alloc(objc.objc_getClass("MPSMatrix")), b->handle, b->offset + o->offset, shape);
}

void metal_product_add(struct metal_plan *p, const struct metal_product *product)
{
    const struct operand *operands = p->command->operands;
    const struct weight *w = operands[product->w].weight;
    struct metal_launch *l;

    CHECK(w->format == QUANT_F32 || w->format == QUANT_F16);
    if (p->error.code != ERR_NONE || !objc_load_mps(&p->error) || !(l = metal_launch_new(p)))
        return;
    p->metal->has_products = true;
    l->kernel = "MPSMatrixMultiplication";
    l->barrier = true;
    l->matrices[0] = new_matrix(&operands[product->in], product->rows, w->n_cols, MPS_FLOAT32);
    l->matrices[1] = new_matrix(&operands[product->w], w->n_rows, w->n_cols,
                                w->format == QUANT_F16 ? MPS_FLOAT16 : MPS_FLOAT32);
    l->matrices[2] = new_matrix(&operands[product->out], product->rows, w->n_rows, MPS_FLOAT32);
    l->product = mtl_product(mtl_alloc(objc.objc_getClass("MPSMatrixMultiplication")), p->metal->gpu, false,
                             true, product->rows, w->n_rows, w->n_cols, 1, product->adds);
    for (int i = 0; i < 3; i++)
        if (!l->matrices[i])
            err_set(&p->error, ERR_UNSUPPORTED, "%s: a matrix that Metal Performance Shaders refuse",
                    w->name);
    if (!l->product)
        err_set(&p->error, ERR_UNSUPPORTED, "%s: a product that Metal Performance Shaders refuse", w->name);
}

void metal_product_free(struct metal_launch *l)
{
    objc_id objects[] = { l->product, l->matrices[0], l->matrices[1], l->matrices[2] };

    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
        if (objects[i])
            mtl_release(objects[i]);
}
