#!/usr/bin/env python3
"""picture_vectors.py - resized pictures and tiles as SHA-256 sums, for tests/image/test_image.c.

    tools/golden/picture_vectors.py > tests/image/vectors.txt

The judge is Pillow, 12.2 or later (older ones resize tall pictures otherwise). Where it is not installed, the same integers come from the
formulas below, in minutes; where it is, the formulas are compared with it first. The first line says which of the two wrote the file.
The steps of the processor are those of Idefics3ImageProcessor, written down again here.

A line is   resize PATTERN WIDTH HEIGHT FILTER TO_WIDTH TO_HEIGHT SHA256
or          split PATTERN WIDTH HEIGHT LONGEST TILE SPLIT ROWS COLS SHA256-OF-TILES SHA256-OF-PROMPT
with 64 <image> marks a tile. The patterns are also in the test.
"""
import hashlib
import math
import sys

try:
    import PIL
    from PIL import Image
    if tuple(int(n) for n in PIL.__version__.split(".")[:2]) < (12, 2):
        PIL = None
except ImportError:
    PIL = None

FILTERS = {"lanczos": 1, "bilinear": 2, "bicubic": 3}  # Pillow's numbers
BITS = 22


def noise(width, height):
    state, out = (width * 65537 + height) | 1, bytearray(width * height * 3)
    for i in range(len(out)):
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        out[i] = state >> 24
    return bytes(out)


def checker(width, height):  # the filters overshoot at every edge
    return bytes((x + y + c) % 2 * 255 for y in range(height) for x in range(width) for c in range(3))


def ramp(width, height):
    return bytes((x * 7 + y * 13 + c * 85) & 255 for y in range(height) for x in range(width) for c in range(3))


PATTERNS = {"noise": noise, "checker": checker, "ramp": ramp}


# ---- the formulas ----

def sinc(x):
    return 1.0 if x == 0 else math.sin(x * math.pi) / (x * math.pi)


def kernel(name, x):
    if name == "lanczos":
        return sinc(x) * sinc(x / 3) if -3 <= x < 3 else 0.0
    x = abs(x)
    if name == "bilinear":
        return 1 - x if x < 1 else 0.0
    if x < 1:
        return (1.5 * x - 2.5) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * -0.5 if x < 2 else 0.0


def weights(n_in, n_out, name):
    scale = n_in / n_out
    stretch = max(scale, 1.0)
    support = {"lanczos": 3, "bilinear": 1, "bicubic": 2}[name] * stretch
    for i in range(n_out):
        center = (i + 0.5) * scale
        first, last = max(0, int(center - support + 0.5)), min(n_in, int(center + support + 0.5))
        values = [kernel(name, (j - center + 0.5) * (1 / stretch)) for j in range(first, last)]
        total = sum_in_order(values)
        yield first, [int(math.copysign(0.5, v / total) + v / total * (1 << BITS)) for v in values]


def sum_in_order(values):  # sum() of newer Pythons compensates
    total = 0.0
    for v in values:
        total += v
    return total


def along(pixels, width, height, n_out, name):  # the horizontal pass
    out = bytearray(n_out * height * 3)
    for i, (first, taps) in enumerate(weights(width, n_out, name)):
        for y in range(height):
            for c in range(3):
                at = (y * width + first) * 3 + c
                total = (1 << (BITS - 1)) + sum(t * pixels[at + 3 * j] for j, t in enumerate(taps))
                out[(y * n_out + i) * 3 + c] = min(max(total >> BITS, 0), 255)
    return bytes(out)


def turned(pixels, width, height):
    return b"".join(pixels[(y * width + x) * 3:(y * width + x) * 3 + 3] for x in range(width) for y in range(height))


def formula(pixels, width, height, to_width, to_height, name):
    down_first = height > 100 * width and to_height < height
    for down in ([True, False] if down_first else [False, True]):
        if down and height != to_height:
            pixels = turned(along(turned(pixels, width, height), height, width, to_height, name), to_height, width)
            height = to_height
        if not down and width != to_width:
            pixels = along(pixels, width, height, to_width, name)
            width = to_width
    return pixels


def resize(pixels, width, height, to_width, to_height, name):
    if not PIL:
        return formula(pixels, width, height, to_width, to_height, name)
    return Image.frombytes("RGB", (width, height), pixels).resize((to_width, to_height), FILTERS[name]).tobytes()


# ---- the processor ----

def longest(width, height, edge):
    aspect = width / height
    if width >= height:
        width, height = edge, int(edge / aspect)
        height += height % 2
    else:
        width, height = int(edge * aspect), edge
        width += width % 2
    return max(width, 1), max(height, 1)


def whole_tiles(width, height, tile):
    aspect = width / height
    if width >= height:
        width = math.ceil(width / tile) * tile
        height = math.ceil(int(width / aspect) / tile) * tile
    else:
        height = math.ceil(height / tile) * tile
        width = math.ceil(int(height * aspect) / tile) * tile
    return width, height


def tiles(pixels, width, height, edge, tile, split):
    to = longest(width, height, edge)
    pixels = resize(pixels, width, height, *to, "lanczos")
    whole = whole_tiles(*to, tile) if split else (tile, tile)
    pixels = resize(pixels, *to, *whole, "lanczos")
    rows = cols = 0
    cut = []
    if max(whole) > tile:
        rows, cols = whole[1] // tile, whole[0] // tile
        for r in range(rows):
            for c in range(cols):
                for y in range(r * tile, (r + 1) * tile):
                    at = (y * whole[0] + c * tile) * 3
                    cut.append(pixels[at:at + tile * 3])
    cut.append(resize(pixels, *whole, tile, tile, "lanczos"))
    return b"".join(cut), rows, cols


def prompt(rows, cols, places):
    fake, image = "<fake_token_around_image>", "<image>" * places
    text = ""
    for r in range(rows):
        for c in range(cols):
            text += f"{fake}<row_{r + 1}_col_{c + 1}>{image}"
        text += "\n"
    if rows:
        text += "\n"
    return f"{text}{fake}<global-img>{image}{fake}".encode()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


RESIZES = [  # width, height, to width, to height
    (1, 1, 1, 1), (1, 1, 7, 5), (1, 1, 512, 512), (2, 3, 3, 2), (3, 2, 64, 64), (3, 5, 3, 7), (5, 3, 7, 3), (7, 7, 1, 1), (7, 1, 2, 3),
    (64, 64, 64, 64), (64, 7, 511, 13), (64, 64, 63, 65), (512, 512, 513, 511), (513, 511, 64, 63), (511, 513, 512, 2), (512, 3, 1, 512),
    (1, 4000, 1, 512), (1, 4000, 3, 64), (4000, 1, 512, 1), (4000, 1, 64, 3), (4000, 2, 4001, 1), (3, 299, 5, 200), (3, 301, 5, 200),
    (3, 301, 5, 400), (3, 301, 1, 200), (3, 300, 2, 100), (301, 3, 200, 5), (100, 37, 99, 38), (37, 100, 200, 11), (33, 31, 32, 32),
]
SPLITS = [  # width, height, longest, tile
    (1, 1, 2048, 512), (386, 386, 2048, 512), (1, 4000, 2048, 512), (4000, 1, 2048, 512), (513, 511, 2048, 512), (192, 108, 2048, 512),
    (1920, 1080, 2048, 512), (302, 403, 2048, 512), (2048, 513, 2048, 512), (2048, 1537, 2048, 512), (512, 512, 512, 512),
    (513, 511, 1536, 384), (640, 480, 1456, 364), (100, 100, 364, 364), (97, 31, 128, 64), (31, 97, 128, 64), (64, 64, 128, 64),
    (200, 3, 128, 64), (65, 64, 128, 48), (3, 5, 128, 64), (5, 3, 128, 64), (120, 119, 200, 64),
]


def main():
    sizes = [s for s in RESIZES if s[0] * s[1] + s[2] * s[3] < 3000]
    for name in FILTERS if PIL else []:
        for s in sizes:
            if formula(noise(*s[:2]), *s, name) != resize(noise(*s[:2]), *s, name):
                sys.exit(f"the formulas differ from Pillow: {name} {s}")
    print("# by tools/golden/picture_vectors.py,", f"with Pillow {PIL.__version__}" if PIL else "from its formulas")
    for pattern in PATTERNS:
        for name in FILTERS:
            for s in RESIZES:
                print("resize", pattern, *s[:2], name, *s[2:], sha256(resize(PATTERNS[pattern](*s[:2]), *s, name)))
    for width, height, edge, tile in SPLITS:
        pattern = "noise" if (width + height) % 2 else "checker"
        for split in (1, 0):
            data, rows, cols = tiles(PATTERNS[pattern](width, height), width, height, edge, tile, split)
            print("split", pattern, width, height, edge, tile, split, rows, cols, sha256(data), sha256(prompt(rows, cols, 64)))


main()
