"""Pictures drawn in code: shapes by signed distances, letters and digits of a small bitmap font, and the processor's resizing.

Needs numpy alone. A scene (scenes.py) is drawn at its own size; `whole` makes of it what the vision tower's tiles are cut from, with the steps
and integer weights of Idefics3's processor and Pillow's Lanczos filter. fp32 sums stand for the integer ones: a byte may differ by one.
"""
import functools
import math
import struct
import zlib

import numpy as np

EDGE, TILE, PATCH = 256, 128, 16  # longest edge of a picture, side of a tile, side of a patch

COLOURS = {"red": (222, 32, 36), "orange": (246, 140, 24), "yellow": (246, 226, 44), "green": (34, 150, 56), "blue": (32, 72, 220),
           "purple": (132, 42, 172), "pink": (246, 134, 192), "brown": (134, 76, 32), "black": (14, 14, 16), "white": (246, 246, 246),
           "grey": (130, 130, 132)}
SHAPES = ["circle", "square", "triangle", "star", "cross", "diamond", "ring", "heart"]

# Seven rows of five bits, the leftmost pixel in the highest bit.
FONT = {
    "0": "0E11131519110E", "1": "040C040404040E", "2": "0E11010204081F", "3": "1F02040201110E", "4": "02060A121F0202", "5": "1F101E0101110E",
    "6": "0608101E11110E", "7": "1F010204080808", "8": "0E11110E11110E", "9": "0E11110F01020C", "A": "0E11111F111111", "B": "1E11111E11111E",
    "C": "0E11101010110E", "D": "1E11111111111E", "E": "1F10101E10101F", "F": "1F10101E101010", "G": "0E11101711110F", "H": "1111111F111111",
    "I": "0E04040404040E", "J": "0702020202120C", "K": "11121418141211", "L": "1010101010101F", "M": "111B1515111111", "N": "11111915131111",
    "O": "0E11111111110E", "P": "1E11111E101010", "Q": "0E11111115120D", "R": "1E11111E141211", "S": "0F10100E01011E", "T": "1F040404040404",
    "U": "1111111111110E", "V": "11111111110A04", "W": "1111111515150A", "X": "11110A040A1111", "Y": "1111110A040404", "Z": "1F01020408101F"}
GLYPHS = {c: np.array([[(int(rows[2 * i:2 * i + 2], 16) >> (4 - k)) & 1 for k in range(5)] for i in range(7)], dtype=np.float32)
          for c, rows in FONT.items()}
CHARACTERS = list(FONT)


# --- drawing ----------------------------------------------------------------------------------------------------------

def star(x, y):
    fifth = 2 * math.pi / 5
    angle = np.abs(np.mod(np.arctan2(x, -y) + fifth / 2, fifth) - fifth / 2)
    length = np.hypot(x, y)
    vx, vy = 0.42 * math.cos(fifth / 2), 0.42 * math.sin(fifth / 2)  # a valley between two tips; a tip is at (1, 0)
    n = math.hypot(vy, 1 - vx)
    return (vy * (length * np.cos(angle) - 1) + (1 - vx) * length * np.sin(angle)) / n


def heart(x, y):
    x = np.abs(x)
    lobes = np.hypot(x - 0.45, y + 0.3) - 0.5
    body = np.maximum(np.maximum(0.7071 * (x + y - 0.858), 0.7071 * (x - y - 0.75)), -y - 0.45)
    return np.minimum(lobes, body)


DISTANCE = {  # negative inside; x to the right, y down, the shape reaches about 1
    "circle": lambda x, y: np.hypot(x, y) - 0.93,
    "square": lambda x, y: np.maximum(np.abs(x), np.abs(y)) - 0.82,
    "triangle": lambda x, y: np.maximum(y - 0.75, (1.75 * np.abs(x) - 0.98 * (y + 1)) / 2.006),
    "star": star,
    "cross": lambda x, y: np.minimum(np.maximum(np.abs(x) - 0.3, np.abs(y) - 0.95), np.maximum(np.abs(x) - 0.95, np.abs(y) - 0.3)),
    "diamond": lambda x, y: 0.7071 * (np.abs(x) + np.abs(y) - 1),
    "ring": lambda x, y: np.abs(np.hypot(x, y) - 0.7) - 0.24,
    "heart": heart,
}


class Canvas:
    """rgb [h, w, 3] as floats, owner [h, w]: the number of the item that is seen there, 0 the background."""

    def __init__(self, width, height, colour):
        self.rgb = np.empty((height, width, 3), dtype=np.float32)
        self.rgb[:] = colour
        self.owner = np.zeros((height, width), dtype=np.uint8)

    def paint(self, top, left, cover, colour, number):
        h, w = cover.shape
        part = self.rgb[top:top + h, left:left + w]
        part += cover[..., None] * (np.asarray(colour, dtype=np.float32) - part)
        self.owner[top:top + h, left:left + w][cover > 0.5] = number

    def box(self, x0, y0, x1, y1):
        height, width = self.owner.shape
        return max(0, int(x0)), max(0, int(y0)), min(width, int(x1) + 2), min(height, int(y1) + 2)

    def shape(self, item, number):
        r = item["r"]
        x0, y0, x1, y1 = self.box(item["x"] - r - 1, item["y"] - r - 1, item["x"] + r + 1, item["y"] + r + 1)
        x = (np.arange(x0, x1, dtype=np.float32) + 0.5 - item["x"])[None, :] / r
        y = (np.arange(y0, y1, dtype=np.float32) + 0.5 - item["y"])[:, None] / r
        c, s = math.cos(item["turn"]), math.sin(item["turn"])
        d = DISTANCE[item["shape"]](c * x + s * y, c * y - s * x)
        self.paint(y0, x0, np.clip(0.5 - d * r / item["soft"], 0, 1), item["rgb"], number)

    def text(self, item, number):
        """Every character has a number of its own, from `number` on."""
        cell = item["cell"]
        for i, character in enumerate(item["text"]):
            left, top = item["x"] + (6 * i - 3 * len(item["text"]) + 0.5) * cell, item["y"] - 3.5 * cell
            x0, y0, x1, y1 = self.box(left, top, left + 5 * cell, top + 7 * cell)
            cover = glyph_cover(top, y0, y1, cell, 7) @ GLYPHS[character] @ glyph_cover(left, x0, x1, cell, 5).T
            self.paint(y0, x0, cover, item["rgb"], number + i)


def glyph_cover(first, begin, end, cell, n):
    """[pixels, n]: how much of a pixel each of n cells covers."""
    pixels = np.arange(begin, end, dtype=np.float32)[:, None]
    edges = first + cell * np.arange(n + 1, dtype=np.float32)[None, :]
    return np.clip(np.minimum(pixels + 1, edges[:, 1:]) - np.maximum(pixels, edges[:, :-1]), 0, 1)


@functools.lru_cache(1)
def noise_bank():
    return np.random.default_rng(7).standard_normal((1024, 1024)).astype(np.float32)


def draw(scene):
    """-> uint8 [h, w, 3], owner [h, w]"""
    canvas, number = Canvas(scene["width"], scene["height"], scene["rgb"]), 1
    for item in scene["items"]:
        if "text" in item:
            canvas.text(item, number)
            number += len(item["text"])
        else:
            canvas.shape(item, number)
            number += 1
    if scene["noise"]:
        top, left = scene["noise_at"]
        canvas.rgb += scene["noise"] * noise_bank()[top:top + scene["height"], left:left + scene["width"], None]
    return np.clip(canvas.rgb + 0.5, 0, 255).astype(np.uint8), canvas.owner


# --- resizing ---------------------------------------------------------------------------------------------------------

@functools.lru_cache(64)
def lanczos(n_in, n_out):
    """Pillow's weights of an axis, [n_out, n_in] in fp32: multiples of 2^-22 that add up to about 1."""
    scale = n_in / n_out
    wide = max(scale, 1.0)
    center = (np.arange(n_out) + 0.5) * scale
    first = np.maximum(0, np.trunc(center - 3 * wide + 0.5).astype(int))
    last = np.minimum(n_in, np.trunc(center + 3 * wide + 0.5).astype(int))
    at = first[:, None] + np.arange((last - first).max())[None, :]
    x = (at - center[:, None] + 0.5) / wide
    k = np.where((at < last[:, None]) & (x >= -3) & (x < 3), np.sinc(x) * np.sinc(x / 3), 0)
    k = np.trunc(k / k.sum(axis=1, keepdims=True) * (1 << 22) + np.copysign(0.5, k)) / (1 << 22)
    out = np.zeros((n_out, n_in + k.shape[1]), dtype=np.float32)
    np.put_along_axis(out, at, k.astype(np.float32), axis=1)
    return np.ascontiguousarray(out[:, :n_in])


def resize(rgb, width, height):
    h, w, _ = rgb.shape
    x = rgb.transpose(0, 2, 1).reshape(h * 3, w).astype(np.float32)
    if w != width:
        x = np.clip(np.floor(x @ lanczos(w, width).T + 0.5), 0, 255)
    x = x.reshape(h, 3 * width)
    if h != height:
        x = np.clip(np.floor(lanczos(h, height) @ x + 0.5), 0, 255)
    return np.ascontiguousarray(x.reshape(height, 3, width).transpose(0, 2, 1).astype(np.uint8))


def whole_size(width, height):
    """The sizes after the first and the second resize: (width, height) twice. Quotients of quotients, as the reference computes them."""
    aspect = width / height
    if width >= height:
        w, h = EDGE, int(EDGE / aspect)
        h += h % 2
    else:
        w, h = int(EDGE * aspect), EDGE
        w += w % 2
    w, h = max(w, 1), max(h, 1)
    aspect = w / h
    if w >= h:
        w2 = math.ceil(w / TILE) * TILE
        h2 = math.ceil(int(w2 / aspect) / TILE) * TILE
    else:
        h2 = math.ceil(h / TILE) * TILE
        w2 = math.ceil(int(h2 * aspect) / TILE) * TILE
    return (w, h), (w2, h2)


def whole(rgb):
    """What the tiles are cut from: [256, 256, 3], [128, 256, 3] or [256, 128, 3]."""
    first, second = whole_size(rgb.shape[1], rgb.shape[0])
    for width, height in (first, second):
        if rgb.shape[:2] != (height, width):
            rgb = resize(rgb, width, height)
    return rgb


# --- files ------------------------------------------------------------------------------------------------------------

def write_png(path, rgb):
    h, w, _ = rgb.shape
    rows = np.zeros((h, 1 + 3 * w), dtype=np.uint8)  # filter 2: the difference to the row above
    rows[:, 0] = 2
    rows[:, 1:] = rgb.reshape(h, -1)
    rows[1:, 1:] -= rgb.reshape(h, -1)[:-1]

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0))
                + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b""))
