#!/usr/bin/env python3
"""picture_files.py - small pictures of every kind and the pixels they stand for, for tests/image and the fuzz targets.

    tools/golden/picture_files.py          (needs Pillow 12.2 or later with JPEG and WebP)

Writes tests/fuzz/corpus/{png,jpeg,webp}/NAME and tests/image/pictures.txt: a line FOLDER/NAME WIDTH HEIGHT SHA256-OF-RGB for each.
PNG files are written here from samples, so their pixels are known; where Pillow decides as ingot does it must find the same ones.
JPEG and WebP are written and read by Pillow. ingot decides otherwise, and the lines say "own", for: transparency (on white, before
anything else), 16-bit grey (the upper byte), and a key colour of grey below 8 bits or of 16 bits, which Pillow compares unscaled.
"""
import hashlib
import io
import os
import random
import struct
import sys
import zlib

import PIL
from PIL import Image, ImageOps

if tuple(int(n) for n in PIL.__version__.split(".")[:2]) < (12, 2):
    sys.exit(f"Pillow {PIL.__version__}; 12.2 or later is needed")
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
LINES = []
GREY, RGB, PALETTE, LA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, LA: 2, RGBA: 4}


def on_white(rgba):
    white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, rgba).convert("RGB")


def by_pillow(data):
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    return on_white(image.convert("RGBA")) if "A" in image.mode or "transparency" in image.info else image.convert("RGB")


def save(folder, name, data, own=None):
    """own: the pixels where Pillow's would be others"""
    image = own or by_pillow(data)
    path = os.path.join(ROOT, "tests/fuzz/corpus", folder)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, name), "wb") as f:
        f.write(data)
    LINES.append(f"{folder}/{name} {image.width} {image.height} {hashlib.sha256(image.tobytes()).hexdigest()}{' own' if own else ''}")


# ---- PNG ----

def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def packed_row(samples, depth):
    if depth == 16:
        return b"".join(struct.pack(">H", s) for s in samples)
    out, bits, n = bytearray(), 0, 0
    for s in samples:
        bits, n = bits << depth | s, n + depth
        if n == 8:
            out.append(bits)
            bits = n = 0
    if n:
        out.append(bits << (8 - n))
    return bytes(out)


ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def filtered(rows, bytes_a_pixel):
    """rows by filters 0, 1 and 2 in turn"""
    out, above = b"", None
    for i, row in enumerate(rows):
        kind = i % 3 if above is not None else 0
        left = bytes(bytes_a_pixel) + row
        if kind == 1:
            out += b"\1" + bytes((a - b) & 255 for a, b in zip(row, left))
        elif kind == 2:
            out += b"\2" + bytes((a - b) & 255 for a, b in zip(row, above))
        else:
            out += b"\0" + row
        above = row
    return out


def png(samples, kind, depth, interlaced=False, before=b"", after=b""):
    """samples: [height][width] of tuples"""
    height, width = len(samples), len(samples[0])
    data = b""
    for left, top, across, down in ADAM7 if interlaced else [(0, 0, 1, 1)]:
        part = [row[left::across] for row in samples[top::down]]
        rows = [packed_row([s for pixel in row for s in pixel], depth) for row in part if row]
        data += filtered(rows, max(1, CHANNELS[kind] * depth // 8))
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, int(interlaced))
    stream = zlib.compress(data, 9)
    half = len(stream) // 2
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + chunk(b"IDAT", stream[:half]) + chunk(b"IDAT", stream[half:]) +
            after + chunk(b"IEND", b""))


def eight(sample, depth):
    return sample >> 8 if depth == 16 else sample * 255 // ((1 << depth) - 1)


def pixels_of(samples, kind, depth, palette=None, key=None, alphas=()):
    """What the samples stand for, on white."""
    image = Image.new("RGBA", (len(samples[0]), len(samples)))
    for y, row in enumerate(samples):
        for x, s in enumerate(row):
            alpha = 255
            if kind == PALETTE:
                color = palette[s[0]]
                alpha = alphas[s[0]] if s[0] < len(alphas) else 255
            else:
                v = [eight(n, depth) for n in s]
                color = (v[0], v[0], v[0]) if kind in (GREY, LA) else tuple(v[:3])
                alpha = v[-1] if kind in (LA, RGBA) else 0 if s == key else 255
            image.putpixel((x, y), (*color, alpha))
    return on_white(image)


def png_files():
    chance = random.Random(7)
    for kind, depths in ((GREY, (1, 2, 4, 8, 16)), (RGB, (8, 16)), (PALETTE, (1, 2, 4, 8)), (LA, (8, 16)), (RGBA, (8, 16))):
        for depth in depths:
            width, height = 13, 9
            n = 1 << depth if kind != PALETTE or depth < 8 else 200
            samples = [[tuple(chance.randrange(n) for _ in range(CHANNELS[kind])) for _ in range(width)] for _ in range(height)]
            palette = [tuple(chance.randrange(256) for _ in range(3)) for _ in range(n)] if kind == PALETTE else None
            plte = chunk(b"PLTE", b"".join(bytes(c) for c in palette)) if palette else b""
            key = samples[4][5]
            trns = {GREY: struct.pack(">H", key[0]), RGB: b"".join(struct.pack(">H", s) for s in key),
                    PALETTE: bytes(chance.randrange(256) for _ in range(n // 2 + 1))}.get(kind)
            name = f"{ {GREY: 'grey', RGB: 'rgb', PALETTE: 'palette', LA: 'la', RGBA: 'rgba'}[kind] }{depth}"
            pixels = pixels_of(samples, kind, depth, palette)
            agrees = (kind, depth) != (GREY, 16)
            for interlaced in (False, True):
                data = png(samples, kind, depth, interlaced, before=plte)
                if agrees and by_pillow(data).tobytes() != pixels.tobytes():
                    sys.exit(f"{name}: Pillow reads other pixels")
                save("png", name + ("-adam7" if interlaced else ""), data, None if agrees and kind < LA else pixels)
            if trns:
                keyed = pixels_of(samples, kind, depth, palette, key, trns)
                save("png", name + "-trns", png(samples, kind, depth, depth == 4, before=plte + chunk(b"tRNS", trns)), keyed)
    samples = [[(chance.randrange(256), x * 16, y * 16) for x in range(11)] for y in range(6)]
    noise = b"".join(chunk(*c) for c in (
        (b"gAMA", struct.pack(">I", 22000)), (b"cHRM", struct.pack(">8I", *range(1000, 9000, 1000))), (b"sBIT", b"\5\6\5"),
        (b"iCCP", b"x\0\0" + zlib.compress(b"no profile" * 99)), (b"zTXt", b"Comment\0\0" + zlib.compress(bytes(1 << 16))),
        (b"tEXt", b"Title\0ingot"), (b"prVt", b"unknown")))
    save("png", "ancillary", png(samples, RGB, 8, before=noise, after=chunk(b"tEXt", b"A\0b")))
    for orientation in range(9):
        where = {"after" if orientation % 2 else "before": chunk(b"eXIf", exif(orientation, orientation % 3 == 0))}
        save("png", f"exif{orientation}", png(samples, RGB, 8, **where))
    beyond = chunk(b"PLTE", bytes(range(10, 40)))  # ten colours, and rows that ask for sixteen
    for depth in (4, 8):
        save("png", f"palette{depth}-beyond", png([[(i,) for i in range(16)]], PALETTE, depth, before=beyond))
    save("png", "one", png([[(1, 2, 3)]], RGB, 8))
    save("png", "wide", png([[(x & 255, x >> 8, 7) for x in range(700)]], RGB, 8))
    control = chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 4, 4, 0, 0, 1, 1, 0, 0))
    frame = chunk(b"fdAT", struct.pack(">I", 1) + zlib.compress(bytes(4 * 13)))
    save("png", "animated", png(samples, RGB, 8, before=chunk(b"acTL", struct.pack(">II", 1, 0)), after=control + frame))


def exif(orientation, big, kind=3, count=1):
    order = ">" if big else "<"
    value = struct.pack(order + "HH", orientation, 0) if kind == 3 else struct.pack(order + "I", orientation)
    entries = struct.pack(order + "HHI", 0x0100, 4, 1) + struct.pack(order + "I", 99)
    entries += struct.pack(order + "HHI", 0x0112, kind, count) + value
    return (b"MM\0*" if big else b"II*\0") + struct.pack(order + "IH", 8, 2) + entries + bytes(4)


# ---- JPEG ----

def drawn(mode, width, height):
    chance = random.Random(width * height)
    image = Image.new("RGB", (width, height))
    for y in range(height):
        for x in range(width):
            image.putpixel((x, y), (x * 255 // width, y * 255 // height, 255 if (x // 5 + y // 3) % 2 else chance.randrange(128)))
    return image.convert(mode)


def encoded(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def jpeg_files():
    save("jpeg", "grey", encoded(drawn("L", 37, 23), "JPEG"))
    for name, sampling in (("444", 0), ("422", 1), ("420", 2)):
        for progressive in (False, True):
            data = encoded(drawn("RGB", 37, 23), "JPEG", subsampling=sampling, progressive=progressive, quality=85)
            save("jpeg", f"{name}{'-progressive' if progressive else ''}", data)
    save("jpeg", "rgb", encoded(drawn("RGB", 19, 8), "JPEG", keep_rgb=True))
    save("jpeg", "one", encoded(drawn("RGB", 1, 1), "JPEG"))
    save("jpeg", "restart", encoded(drawn("RGB", 64, 40), "JPEG", restart_marker_blocks=2))
    save("jpeg", "icc", encoded(drawn("RGB", 16, 16), "JPEG", icc_profile=b"no profile"))
    cmyk = encoded(drawn("CMYK", 21, 17), "JPEG", quality=90)
    save("jpeg", "cmyk", cmyk)
    adobe = cmyk.index(b"Adobe")
    save("jpeg", "ycck", cmyk[:adobe + 11] + b"\2" + cmyk[adobe + 12:])
    for orientation in range(9):
        data = encoded(drawn("RGB", 24, 11), "JPEG", exif=b"Exif\0\0" + exif(orientation, orientation % 2))
        save("jpeg", f"exif{orientation}", data)


# ---- WebP ----

def riff(*chunks):
    data = b"".join(name + struct.pack("<I", len(c)) + c + bytes(len(c) % 2) for name, c in chunks)
    return b"RIFF" + struct.pack("<I", len(data) + 4) + b"WEBP" + data


def small24(n):
    return struct.pack("<I", n)[:3]


def webp_files():
    rgb = drawn("RGB", 37, 23)
    rgba = rgb.convert("RGBA")
    rgba.putdata([(r, g, b, (x * 7) % 256) for x, (r, g, b) in enumerate(rgb.getdata())])
    save("webp", "lossy", encoded(rgb, "WEBP", quality=80))
    save("webp", "lossless", encoded(rgb, "WEBP", lossless=True))
    lossless = encoded(rgba, "WEBP", lossless=True, exact=True)
    save("webp", "lossless-alpha", lossless, on_white(rgba))
    data = encoded(rgba, "WEBP", quality=80, exact=True)
    save("webp", "lossy-alpha", data, by_pillow(data))
    save("webp", "one", encoded(drawn("RGB", 1, 1), "WEBP"))
    for orientation in range(9):
        head = b"Exif\0\0" if orientation == 6 else b""
        data = encoded(drawn("RGB", 24, 11), "WEBP", exif=head + exif(orientation, orientation % 2), quality=30, method=0)
        save("webp", f"exif{orientation}", data)
    frames = [drawn("RGB", 32, 20), drawn("RGB", 32, 20).transpose(Image.Transpose.FLIP_LEFT_RIGHT)]
    save("webp", "animated", encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True))
    still = encoded(drawn("RGB", 9, 5), "WEBP", lossless=True)
    stream = still[20:20 + struct.unpack("<I", still[16:20])[0]]
    inner = b"VP8L" + struct.pack("<I", len(stream)) + stream + bytes(len(stream) % 2)
    frame = small24(2) + small24(3) + small24(8) + small24(4) + small24(100) + b"\0" + inner  # at 4, 6
    canvas = Image.new("RGB", (20, 15), (255, 255, 255))
    canvas.paste(drawn("RGB", 9, 5), (4, 6))
    data = riff((b"VP8X", b"\2\0\0\0" + small24(19) + small24(14)), (b"ANIM", bytes(6)), (b"ANMF", frame))
    save("webp", "animated-inset", data, canvas)


png_files()
jpeg_files()
webp_files()
with open(os.path.join(ROOT, "tests/image/pictures.txt"), "w", encoding="ascii") as f:
    f.write(f"# by tools/golden/picture_files.py, with Pillow {PIL.__version__}\n" + "\n".join(LINES) + "\n")
