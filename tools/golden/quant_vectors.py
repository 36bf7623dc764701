#!/usr/bin/env python3
"""Makes tests/quant/vectors/*.bin: blocks of every weight format and the floats they stand for.

Needs numpy alone. Written from the descriptions of the formats (GGUF, and OCP's microscaling paper for MXFP4), by planes of
bits instead of shifts and masks, so that it shares no mistake with src/quant. A file holds n blocks and then n * elements
floats, little-endian. Blocks are random bits with chosen scales: both zeros, subnormals, infinities, NaN, ordinary numbers;
the first two blocks are all zeros and all ones. The grids of IQ1, IQ2 and IQ3 are facts that nothing computes: they are read from
src/quant/grids.c, and their checksum is that of ggml-common.h's tables in the same packing.

Usage: quant_vectors.py FOLDER
"""
import hashlib
import pathlib
import re
import sys
import numpy as np

f32 = np.float32


def bits(a):
    """[n, bytes] -> [n, bytes * 8], lowest bit first."""
    return np.unpackbits(a, axis=1, bitorder="little")


def number(planes):
    """Bit planes, lowest first -> integers."""
    return sum(p.astype(np.int32) << i for i, p in enumerate(planes))


def fields(a, width):
    """[n, bytes] -> [n, bytes * 8 / width] unsigned fields, lowest first."""
    b = bits(a).reshape(len(a), -1, width)
    return number([b[:, :, i] for i in range(width)])


def half(a):
    return a.copy().view(np.float16).astype(f32)


def split_nibbles(a, run):
    """Bytes in runs; the low halves of a run come first, then its high halves."""
    b = bits(a).reshape(len(a), -1, run, 2, 4)
    n = number([b[..., i] for i in range(4)])              # [n, runs, run, 2]
    return n.transpose(0, 1, 3, 2).reshape(len(a), -1)


def fifth_bits(a):
    return bits(a).astype(np.int32) << 4


def q4_0(a):
    return half(a[:, :2]) * (split_nibbles(a[:, 2:], 16) - 8).astype(f32)


def q4_1(a):
    return half(a[:, :2]) * split_nibbles(a[:, 4:], 16).astype(f32) + half(a[:, 2:4])


def q5_0(a):
    return half(a[:, :2]) * (split_nibbles(a[:, 6:], 16) + fifth_bits(a[:, 2:6]) - 16).astype(f32)


def q5_1(a):
    return half(a[:, :2]) * (split_nibbles(a[:, 8:], 16) + fifth_bits(a[:, 4:8])).astype(f32) + half(a[:, 2:4])


def q8_0(a):
    return half(a[:, :2]) * a[:, 2:].copy().view(np.int8).astype(f32)


def two_bits(a):
    """64 bytes in two runs of 32; pair j of bits of byte l is element 32 * j + l of the run's 128."""
    b = bits(a).reshape(len(a), 2, 32, 4, 2)
    n = number([b[..., 0], b[..., 1]])                     # [n, run, l, j]
    return n.transpose(0, 1, 3, 2).reshape(len(a), 256)


def spread(per_group, q):
    return np.repeat(per_group, q.shape[1] // per_group.shape[1], axis=1)


def q2_k(a):
    q = two_bits(a[:, 16:80]).astype(f32)
    nib = fields(a[:, :16], 4).reshape(-1, 16, 2).astype(f32)
    scale = half(a[:, 80:82]) * nib[:, :, 0]
    low = half(a[:, 82:84]) * nib[:, :, 1]
    return spread(scale, q) * q - spread(low, q)


def q3_k(a):
    plane = bits(a[:, :32]).reshape(-1, 32, 8).transpose(0, 2, 1).reshape(-1, 256).astype(np.int32)
    q = (two_bits(a[:, 32:96]) + 4 * plane - 4).astype(f32)
    low = fields(a[:, 96:104], 4).reshape(-1, 8, 2).transpose(0, 2, 1).reshape(-1, 16)
    high = fields(a[:, 104:108], 2).reshape(-1, 4, 4).transpose(0, 2, 1).reshape(-1, 16)
    scale = half(a[:, 108:110]) * (low + 16 * high - 32).astype(f32)
    return spread(scale, q) * q


def six_bit_pairs(s):
    """12 bytes -> eight scales and eight mins."""
    b = bits(s).reshape(-1, 12, 8)
    first = number([b[:, 0:8, i] for i in range(6)])       # scales 0..3, mins 0..3
    scale = number([b[:, 8:12, i] for i in range(4)] + [b[:, 0:4, 6], b[:, 0:4, 7]])
    low = number([b[:, 8:12, 4 + i] for i in range(4)] + [b[:, 4:8, 6], b[:, 4:8, 7]])
    return np.concatenate([first[:, :4], scale], 1), np.concatenate([first[:, 4:], low], 1)


def scale_and_min(a, q):
    scale, low = six_bit_pairs(a[:, 4:16])
    q = q.astype(f32)
    return spread(half(a[:, :2]) * scale.astype(f32), q) * q - spread(half(a[:, 2:4]) * low.astype(f32), q)


def q4_k(a):
    return scale_and_min(a, split_nibbles(a[:, 16:], 32))


def q5_k(a):
    plane = bits(a[:, 16:48]).reshape(-1, 32, 8).transpose(0, 2, 1).reshape(-1, 256).astype(np.int32)
    return scale_and_min(a, split_nibbles(a[:, 48:], 32) + 16 * plane)


def q6_k(a):
    low = fields(a[:, :128], 4).reshape(-1, 2, 64, 2).transpose(0, 1, 3, 2).reshape(-1, 256)
    q = (low + 16 * two_bits(a[:, 128:192]) - 32).astype(f32)
    return spread(half(a[:, 208:210]) * a[:, 192:208].copy().view(np.int8).astype(f32), q) * q


LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], f32)


def iq4_nl(a):
    return half(a[:, :2]) * LEVELS[split_nibbles(a[:, 2:], 16)]


def iq4_xs(a):
    high = fields(a[:, 2:4], 2)
    scale = half(a[:, :2]) * (fields(a[:, 4:8], 4) + 16 * high - 32).astype(f32)
    q = LEVELS[split_nibbles(a[:, 8:], 16)]
    return spread(scale, q) * q


def mxfp4(a):
    """E2M1: sign, two bits of exponent (bias 1), one of mantissa. Minus zero reads as plus zero."""
    n = split_nibbles(a[:, 1:], 16)
    exponent, mantissa = n >> 1 & 3, n & 1
    size = np.where(exponent == 0, mantissa * 0.5, (1 + mantissa * 0.5) * 2.0 ** (exponent - 1))
    value = np.where((n >= 8) & (size != 0), -size, size)
    with np.errstate(over="ignore"):
        return (np.ldexp(1.0, a[:, :1].astype(np.int32) - 127) * value).astype(f32)


GRIDS_SHA256 = "465e1cb3c689a76fe324b3877e7c9a66be673ecf034f74230c0515f9e2ecb120"


def read_grids():
    text = (pathlib.Path(__file__).parents[2] / "src/quant/grids.c").read_text()
    tables = {name: np.array([int(w, 16) for w in re.findall("0x[0-9a-f]+", words)], "<u2")
              for name, words in re.findall(r"const u16 grids_(\w+)\[\d+\] = \{(.*?)\};", text, re.S)}
    assert hashlib.sha256(b"".join(t.tobytes() for t in tables.values())).hexdigest() == GRIDS_SHA256
    return tables


GRIDS = read_grids()


def points(grid, index, width, levels):
    """[n, k] indices -> [n, k * coordinates] levels."""
    word = fields(GRIDS[grid].view(np.uint8).reshape(-1, 2), 1)[:, :16 // width * width]
    level = np.array(levels, f32)[number([word[:, i::width] for i in range(width)])]
    return level[:, :8 if width == 2 else 4][index].reshape(len(index), -1)


TWOS, ONES = [8, 25, 43, 0], [-1, 0, 1, 2]
XXS_LEVELS, S_LEVELS = [4, 12, 20, 28, 36, 44, 52, 62], [1, 3, 5, 7, 9, 11, 13, 15]


def minus(plane):
    return np.where(plane, f32(-1), f32(1))


def with_parity(sevens):
    """[..., 7] bits -> [n, ...] bits in eights, an even number of them set."""
    eights = np.concatenate([sevens, sevens.sum(-1, keepdims=True) % 2], -1)
    return eights.reshape(len(eights), -1)


def words_of_signs(a):
    """[n, 32] bytes: of each word, 28 bits of signs and 4 of scale."""
    b = bits(a).reshape(len(a), 8, 32)
    return with_parity(b[:, :, :28].reshape(len(a), 8, 4, 7)), number([b[:, :, 28 + i] for i in range(4)])


def scaled(d, scale, q):
    return spread(d * scale.astype(f32), q) * q


def iq2_xxs(a):
    pairs = a[:, 2:].reshape(-1, 8, 8)
    signs, scale = words_of_signs(pairs[:, :, 4:].reshape(-1, 32))
    q = points("iq2_xxs", pairs[:, :, :4].reshape(-1, 32), 2, TWOS) * minus(signs)
    return scaled(half(a[:, :2]), (scale + 0.5) / 4, q)


def iq2_xs(a):
    b = bits(a[:, 2:66]).reshape(-1, 32, 16)
    q = points("iq2_xs", number([b[:, :, i] for i in range(9)]), 2, TWOS) * minus(with_parity(b[:, :, 9:]))
    return scaled(half(a[:, :2]), (fields(a[:, 66:], 4) + 0.5) / 4, q)


def iq2_s(a):
    q = points("iq2_s", a[:, 2:34] + 256 * fields(a[:, 66:74], 2), 2, TWOS) * minus(bits(a[:, 34:66]))
    return scaled(half(a[:, :2]), (fields(a[:, 74:], 4) + 0.5) / 4, q)


def iq3_xxs(a):
    signs, scale = words_of_signs(a[:, 66:])
    return scaled(half(a[:, :2]), (scale + 0.5) / 2, points("iq3_xxs", a[:, 2:66], 3, XXS_LEVELS) * minus(signs))


def iq3_s(a):
    q = points("iq3_s", a[:, 2:66] + 256 * bits(a[:, 66:74]).astype(np.int32), 3, S_LEVELS) * minus(bits(a[:, 74:106]))
    return scaled(half(a[:, :2]), 1 + 2 * fields(a[:, 106:], 4), q)


def iq1_s(a):
    b = bits(a[:, 34:]).reshape(-1, 8, 16)
    high = number([b[:, :, i:12:3] for i in range(3)]).reshape(-1, 32)
    q = points("iq1", a[:, 2:34] + 256 * high, 2, ONES) + spread(minus(b[:, :, 15]) / 8, np.empty((1, 256)))
    return scaled(half(a[:, :2]), 1 + 2 * number([b[:, :, 12 + i] for i in range(3)]), q)


def iq1_m(a):
    b = bits(a[:, 48:]).reshape(-1, 4, 16)
    d = half(np.packbits(b[:, :, 12:].reshape(-1, 16), axis=1, bitorder="little"))
    scale = number([b[:, :, i:12:3] for i in range(3)]).reshape(-1, 16)
    high = fields(a[:, 32:48], 4)
    q = points("iq1", a[:, :32] + 256 * (high % 8), 2, ONES) + spread(minus(high // 8) / 8, np.empty((1, 256)))
    return scaled(d, 1 + 2 * scale, q)


def digits(a, n):
    """Digit n of each byte, the top digit of what is left of a fraction of 256."""
    return (a.astype(np.int32) * 3 ** n % 256 * 3 // 256 - 1).astype(f32)


def tq1_0(a):
    parts = [(a[:, :32], 5), (a[:, 32:48], 5), (a[:, 48:52], 4)]
    q = np.concatenate([digits(p, i) for p, n in parts for i in range(n)], 1)
    return half(a[:, 52:]) * q


def tq2_0(a):
    return half(a[:, 64:]) * (two_bits(a[:, :64]) - 1).astype(f32)


def trellis(index, n):
    """[rows, k] indices -> [rows, k * n] integers: powers of the multiplier times the index, six bits of each byte added up."""
    powers = np.array([pow(0xCBAC1FED, i + 1, 2 ** 32) for i in range(n)], np.uint64)
    x = (index.astype(np.uint64)[:, :, None] + np.uint64(4096)) * powers % np.uint64(2 ** 32)
    sixes = [bits(x.astype("<u4").view(np.uint8).reshape(-1, 4))[:, 8 * b:8 * b + 6] for b in range(4)]
    total = sum(number([s[:, i] for i in range(6)]) for s in sixes) - 126
    return total.reshape(len(index), -1)


def nibbles_by_halves(a):
    n = fields(a, 4)
    return np.concatenate([n[:, ::2], n[:, 1::2]], 1)


def of_head(a, scale, q):
    return scaled(a[:, :4].copy().view("<f4"), scale, q.astype(f32))


def iq1_kt(a):
    b = bits(a[:, 4:12]).reshape(-1, 8, 8)
    index = a[:, 12:44] + 256 * nibbles_by_halves(a[:, 44:60]) + 4096 * b[:, :, 4:].reshape(-1, 32).astype(np.int32)
    return of_head(a, LEVELS[number([b[:, :, i] for i in range(4)])], trellis(index, 8))


def iq2_kt(a):
    return of_head(a, LEVELS[nibbles_by_halves(a[:, 4:8])], trellis(fields(a[:, 8:72], 16), 8))


def iq3_kt(a):
    plane = bits(a[:, 72:104]).reshape(-1, 32, 8).transpose(0, 2, 1).reshape(-1, 256)
    size = abs(trellis(fields(a[:, 8:72], 16), 8))
    return of_head(a, nibbles_by_halves(a[:, 4:8]), np.where(plane, -size, size))


def iq4_kt(a):
    b = bits(a[:, 4:36]).reshape(-1, 8, 32)
    top = number([b[:, :, 8 + i::3] for i in range(3)]).reshape(-1, 64)
    index = a[:, 36:100] + 256 * nibbles_by_halves(a[:, 100:132]) + 4096 * top
    start = np.repeat(b[:, :, 0].astype(np.int32) * 32768, 8, axis=1)
    return of_head(a, number([b[:, :, 1 + i] for i in range(7)]) - 64, trellis(index + start, 4))


# name: decode, elements, bytes, places of the halves that scale
FORMATS = {
    "q4_0": (q4_0, 32, 18, [0]), "q4_1": (q4_1, 32, 20, [0, 2]), "q5_0": (q5_0, 32, 22, [0]), "q5_1": (q5_1, 32, 24, [0, 2]),
    "q8_0": (q8_0, 32, 34, [0]), "q2_k": (q2_k, 256, 84, [80, 82]), "q3_k": (q3_k, 256, 110, [108]),
    "q4_k": (q4_k, 256, 144, [0, 2]), "q5_k": (q5_k, 256, 176, [0, 2]), "q6_k": (q6_k, 256, 210, [208]),
    "iq4_nl": (iq4_nl, 32, 18, [0]), "iq4_xs": (iq4_xs, 256, 136, [0]), "mxfp4": (mxfp4, 32, 17, []),
    "iq2_xxs": (iq2_xxs, 256, 66, [0]), "iq2_xs": (iq2_xs, 256, 74, [0]), "iq2_s": (iq2_s, 256, 82, [0]),
    "iq3_xxs": (iq3_xxs, 256, 98, [0]), "iq3_s": (iq3_s, 256, 110, [0]), "iq1_s": (iq1_s, 256, 50, [0]),
    "iq1_m": (iq1_m, 256, 56, []), "tq1_0": (tq1_0, 256, 54, [52]), "tq2_0": (tq2_0, 256, 66, [64]),
    # rows of one block behind the row's scale, a float
    "iq1_kt": (iq1_kt, 256, 60, []), "iq2_kt": (iq2_kt, 256, 72, []), "iq3_kt": (iq3_kt, 256, 104, []),
    "iq4_kt": (iq4_kt, 256, 132, []),
}
HEADS = [0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000]
SPECIAL = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x3C00, 0xBC00]


def blocks(name, n, rng):
    _, _, size, scales = FORMATS[name]
    a = rng.integers(0, 256, (n, size), np.uint8)
    for at in scales:
        ordinary = (rng.standard_normal(n) * 0.01).astype(np.float16).view(np.uint16)
        special = rng.choice(np.array(SPECIAL, np.uint16), n)
        d = np.where(rng.random(n) < 0.4, special, ordinary).astype("<u2")
        a[:, at:at + 2] = d.view(np.uint8).reshape(n, 2)
    if name.endswith("_kt"):
        ordinary = (rng.standard_normal(n) * 1e-5).astype("<f4").view(np.uint32)
        ordinary[2:2 + len(HEADS)] = HEADS
        a[:, :4] = ordinary.astype("<u4").view(np.uint8).reshape(n, 4)
    a[0], a[1] = 0, 255
    if name == "mxfp4":
        a[2:6, 0] = [0, 1, 2, 254]
    return a


def main():
    rng = np.random.default_rng(20)
    for name, (decode, elements, _, _) in FORMATS.items():
        n = 64 if elements == 32 else 32
        a = blocks(name, n, rng)
        with np.errstate(all="ignore"):
            out = decode(a)
        assert out.shape == (n, elements) and out.dtype == f32
        with open(f"{sys.argv[1]}/{name}.bin", "wb") as f:
            f.write(a.tobytes() + out.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
