// fuzz_mmproj.c - any bytes as an mmproj file: a tower that is bound to it, or refused with a message. What
// it says of pictures must hold for pictures of any shape.
#include <string.h>
#include "base/mem.h"
#include "models/vision/tower.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_grid(const struct image_processor *p, uint32_t width, uint32_t height)
{
    uint32_t rows, cols;

    image_grid(p, width, height, &rows, &cols);
    CHECK(image_n_tiles(rows, cols) <= image_most_tiles(p) && image_most_tiles(p) <= IMAGE_MAX_TILES);
}

static void check_tower(const struct tower *t)
{
    const struct tower_config *c = &t->config;
    float table[3][256];
    struct err err = { 0 };

    CHECK(c->processor.tokens_a_tile == tower_rows(t) && tower_rows(t) > 0 && t->weight_bytes > 0);
    CHECK(c->side * c->patch <= c->processor.tile && tower_tile_rows(t) == c->side * c->side + c->n_class);
    image_normal_table(&c->processor, table);
    for (uint32_t i = 1; i <= 16384; i *= 128) {
        check_grid(&c->processor, i, 1);
        check_grid(&c->processor, 1, i);
        check_grid(&c->processor, i, i + 3);
    }
    float *positions =
        c->n_class ? mem_alloc_array((size_t)tower_tile_rows(t) * c->n_cols, sizeof *positions) : NULL;
    CHECK(!c->n_class || !positions || tower_positions(t, positions, &err));
    mem_free(positions);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_file *file;
    struct tower t;
    struct err err = { 0 };
    uint8_t *copy = mem_alloc_aligned(size ? size : 1, 64); // aligned, and exactly as long

    if (size)
        memcpy(copy, data, size);
    if (!model_file_open_memory(&file, copy, size, "fuzz", &err)) {
        CHECK(err.code != ERR_NONE && err.message[0]);
    } else if (tower_bind(&t, file, 8, &err)) {
        check_tower(&t);
        tower_release(&t);
    } else {
        CHECK(err.code != ERR_NONE && err.message[0] && !strchr(err.message, '\n'));
    }
    model_file_close(file);
    mem_free_aligned(copy);
    return 0;
}
