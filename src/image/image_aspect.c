// image_aspect.c - the grid of InternVL's tiles: of all grids with an allowed number of tiles the one whose
// aspect ratio is nearest to the picture's; see image.h.
//
// Of equally near ones a larger grid is taken while the picture has more than half of its pixels. Ratios are
// doubles and the order of the grids is the reference's, since both decide who wins.
#include <math.h>
#include "image/image.h"

struct best {
    double aspect, area, distance; // of the picture, and to the best grid
    uint32_t rows, cols;
};

static void try_grid(struct best *b, uint32_t cols, uint32_t rows, uint32_t tile)
{
    double distance = fabs(b->aspect - (double)cols / rows), pixels = (double)tile * tile * cols * rows;

    if (distance < b->distance || (distance == b->distance && b->area > 0.5 * pixels)) {
        b->distance = distance;
        b->rows = rows;
        b->cols = cols;
    }
}

// rows = cols = 0: one tile, without a whole beside it.
void image_grid_by_aspect(const struct image_processor *p, uint32_t width, uint32_t height, uint32_t *rows,
                          uint32_t *cols)
{
    struct best b = { (double)width / height, (double)width * height, INFINITY, 1, 1 };

    for (uint32_t n = p->min_tiles; n <= p->max_tiles; n++)
        for (uint32_t across = 1; across <= n; across++)
            if (n % across == 0)
                try_grid(&b, across, n / across, p->tile);
    bool whole = !p->split || b.rows * b.cols == 1;
    *rows = whole ? 0 : b.rows;
    *cols = whole ? 0 : b.cols;
}
