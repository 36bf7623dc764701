"""A compact writer and reader of GGUF version 3.

Written from the format's description, so that the files our C reader is tested with do not come from the C reader's own
idea of the format. Only what the golden makers and the export need: scalar and array metadata, F32, F16, BF16 and Q8_0
tensors. The reader serves the checks of this folder; it believes the file and is not hardened.
"""
import struct

import numpy as np

ALIGNMENT = 32
U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
SCALARS = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", U64: "<Q", I64: "<q", F64: "<d"}
GGML_F32, GGML_F16, GGML_Q8_0, GGML_BF16 = 0, 1, 8, 30
QK8_0 = 32
BLOCKS = {GGML_F32: (1, 4), GGML_F16: (1, 2), GGML_Q8_0: (QK8_0, 34), GGML_BF16: (1, 2)}


def quantize_q8_0(x):
    """float32 [rows, cols] -> bytes. One block is 32 values: scale d = max|x| / 127 as f16, then round(x / d) as int8.
    The quotient uses the scale before it is rounded to f16, halves go away from zero: the usual encoder's bits."""
    x = np.ascontiguousarray(x, dtype=np.float32).reshape(-1, QK8_0)
    d = np.abs(x).max(axis=1) / np.float32(127)
    inverse = np.where(d > 0, np.float32(1) / np.where(d > 0, d, np.float32(1)), np.float32(0)).astype(np.float32)
    y = x * inverse[:, None]
    q = (np.sign(y) * np.floor(np.abs(y) + np.float32(0.5))).astype(np.int8)
    out = np.empty((x.shape[0], 34), dtype=np.uint8)
    out[:, :2] = d.astype("<f2").reshape(-1, 1).view(np.uint8)
    out[:, 2:] = q.view(np.uint8)
    return out.tobytes()


def dequantize_q8_0(data, shape):
    raw = np.frombuffer(data, dtype=np.uint8).reshape(-1, 34)
    d = raw[:, :2].copy().view("<f2").astype(np.float32)
    return (d * raw[:, 2:].view(np.int8).astype(np.float32)).reshape(shape)


class Writer:
    """add() and add_array() take an explicit type, because a reader is strict about it. tensor() takes numpy's row-major
    shape; the file stores dimensions innermost first."""

    def __init__(self, arch):
        self.meta, self.tensors = [], []
        self.add("general.architecture", STR, arch)

    @staticmethod
    def _string(s):
        raw = s if isinstance(s, bytes) else s.encode("utf-8")
        return struct.pack("<Q", len(raw)) + raw

    def _value(self, kind, value):
        return self._string(value) if kind == STR else struct.pack(SCALARS[kind], value)

    def add(self, key, kind, value):
        self.meta.append(self._string(key) + struct.pack("<I", kind) + self._value(kind, value))

    def add_array(self, key, kind, values):
        head = self._string(key) + struct.pack("<IIQ", ARR, kind, len(values))
        self.meta.append(head + b"".join(self._value(kind, v) for v in values))

    def tensor(self, name, x, kind=GGML_F32):
        x = np.ascontiguousarray(x, dtype=np.float32)
        if kind == GGML_Q8_0:
            assert x.shape[-1] % QK8_0 == 0, (name, x.shape)
            data = quantize_q8_0(x)
        elif kind == GGML_F16:
            data = x.astype("<f2").tobytes()
        else:
            assert kind == GGML_F32, kind
            data = x.astype("<f4").tobytes()
        self.tensors.append((name, x.shape, kind, data))

    def write(self, path):
        info, offset = [], 0
        for name, shape, kind, data in self.tensors:
            dims = list(reversed(shape))
            info.append(self._string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
                        + struct.pack("<IQ", kind, offset))
            offset += (len(data) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        with open(path, "wb") as f:
            f.write(b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.meta)))
            f.write(b"".join(self.meta) + b"".join(info))
            for _, _, _, data in self.tensors:
                f.write(b"\0" * (-f.tell() % ALIGNMENT))
                f.write(data)
            f.write(b"\0" * (-f.tell() % ALIGNMENT))


class Reader:
    """meta: key -> value, tensors: name -> float32 array in row-major shape, kinds: name -> format id."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read()
        self.at, self.meta, self.tensors, self.kinds = 0, {}, {}, {}
        assert self._take(4) == b"GGUF"
        version, n_tensors, n_meta = self._unpack("<IQQ")
        assert version == 3, version
        for _ in range(n_meta):
            key = self._string()
            self.meta[key] = self._value(self._unpack("<I")[0])
        assert len(self.meta) == n_meta, "a key twice"
        infos = [self._info() for _ in range(n_tensors)]
        base = self.at + (-self.at % ALIGNMENT)
        for name, shape, kind, offset in infos:
            per_block, n_bytes = BLOCKS[kind]
            size = int(np.prod(shape)) // per_block * n_bytes
            raw = self.data[base + offset:base + offset + size]
            assert len(raw) == size and offset % ALIGNMENT == 0 and name not in self.tensors, name
            self.kinds[name] = kind
            plain = np.frombuffer(raw, "<f2" if kind == GGML_F16 else "<f4") if kind != GGML_Q8_0 else None
            self.tensors[name] = dequantize_q8_0(raw, shape) if plain is None else plain.reshape(shape).astype(np.float32)

    def _take(self, n):
        self.at += n
        return self.data[self.at - n:self.at]

    def _unpack(self, form):
        return struct.unpack(form, self._take(struct.calcsize(form)))

    def _string(self):
        return self._take(self._unpack("<Q")[0]).decode("utf-8")

    def _value(self, kind):
        if kind == STR:
            return self._string()
        if kind == ARR:
            inner, n = self._unpack("<IQ")
            return [self._value(inner) for _ in range(n)]
        return self._unpack(SCALARS[kind])[0]

    def _info(self):
        name = self._string()
        dims = self._unpack(f"<{self._unpack('<I')[0]}Q")
        return (name, tuple(reversed(dims))) + self._unpack("<IQ")
