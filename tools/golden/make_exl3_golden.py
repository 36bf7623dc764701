"""Golden models and vectors of EXL3: matrices as trellis codes, with logits from a numpy reference in double precision.

Usage: python3 make_exl3_golden.py GOLDEN_FOLDER VECTORS_FILE     (needs numpy alone)

Written from the description of the format (exllamav3, after Tseng et al. 2024, QTIP), by arrays of single bits; it shares no code and no
order of steps with the C. Codes are random bits, which decode to normally distributed numbers, as any code does: so no encoder is
needed. The forward pass is that of make_mixture_golden.py, on matrices with their Hadamard transforms multiplied out.

VECTORS_FILE: for each of the three codebooks and 1 to 8 bits: a tile's words, then its 256 halves, [input][output].
"""
import os
import sys

import numpy as np

from golden_files import write_config, write_golden, write_safetensors
from make_mixture_golden import BASE, QWEN, Reference

SEED = 20321
CODEBOOKS = ("3inst", "mcg", "mul1")
MARKS = {"mcg": 0xCBAC1FED, "mul1": 0x83DCD12D}


def u32(x):
    return x.astype(np.uint64) & 0xFFFFFFFF


def values(states, codebook):
    """[...] states of 16 bits -> halves."""
    s = states.astype(np.uint64)
    if codebook == "mul1":
        x = u32(s * MARKS["mul1"])
        total = sum((x >> 8 * i & 255).astype(np.float64) for i in range(4))
        k, offset = (np.array([h], np.uint16).view(np.float16).astype(np.float64) for h in (0x1EEE, 0xC931))
        return ((1024 + total) * k + offset).astype(np.float16)
    x = u32(s * MARKS["mcg"]) if codebook == "mcg" else u32(s * 89226354 + 64248484)
    x = (x & 0x8FFF8FFF) ^ 0x3B603B60
    low, high = ((x >> 16 * i & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float64) for i in range(2))
    return (low + high).astype(np.float16)


def states(words, bits):
    """[..., 8 * bits] u32 -> [..., 256]: the 16 bits that end behind each position, in a ring."""
    stream = np.unpackbits(words.astype(">u4").view(np.uint8), axis=-1)
    ends = (np.arange(256) + 1) * bits
    ring = (ends[:, None] + np.arange(-16, 0)) % (256 * bits)
    return stream[..., ring].astype(np.int64) @ (1 << np.arange(15, -1, -1))


def places():
    """Position -> (input, output) in a tile."""
    p = np.arange(256)
    t, i = p // 8, p % 8
    return 2 * (t % 4) + i % 2 + 8 * (i // 2 % 2), t // 4 + 8 * (i // 4)


def decode(trellis, bits, codebook):
    """[inputs / 16, outputs / 16, 16 * bits] u16 -> [inputs, outputs] halves."""
    words = np.ascontiguousarray(trellis).view("<u4")
    v = values(states(words, bits), codebook)
    tiles = np.empty(trellis.shape[:2] + (16, 16), np.float16)
    tiles[:, :, places()[0], places()[1]] = v
    return tiles.transpose(0, 2, 1, 3).reshape(16 * trellis.shape[0], 16 * trellis.shape[1])


def hadamard():
    h = np.ones((1, 1))
    while len(h) < 128:
        h = np.block([[h, h], [h, -h]])
    return h / 128 ** 0.5


def turned(x):
    """Each 128 rows by the Hadamard matrix."""
    return (hadamard() @ x.reshape(-1, 128, x.shape[1])).reshape(x.shape)


def product(trellis, bits, codebook, suh, svh):
    """The matrix [outputs, inputs] that the stored parts stand for."""
    w = decode(trellis, bits, codebook).astype(np.float64)
    return (turned(turned(w).T).T * suh.astype(np.float64)[:, None] * svh.astype(np.float64)).T


def padded(n):
    return (n + 127) // 128 * 128


class Model:
    """Stored tensors, and the matrices they stand for."""

    def __init__(self, v, generator):
        self.v, self.c, self.generator, self.n = v, v["config"], generator, 0
        self.stored, self.w = {}, {}

    def plain(self, name, x):
        self.stored[name + ".weight"] = x.astype(np.float32)
        self.w[name + ".weight"] = self.stored[name + ".weight"]

    def norm(self, name, n):
        self.plain(name, 0.5 + self.generator.random(n))

    def kind(self):
        """Bits and codebook: all pairs in turn."""
        self.n += 5
        return 1 + (self.n - 5) % 8, CODEBOOKS[(self.n - 5) // 8 % 3]

    def matrix(self, name, rows, cols, wide=1.0, kind=None):
        bits, codebook = kind or self.kind()
        n_in, n_out, g = padded(cols), padded(rows), self.generator
        trellis = g.integers(0, 1 << 16, (n_in // 16, n_out // 16, 16 * bits), np.uint16)
        signs = [g.choice([-1.0, 1.0], n) * (0.8 + 0.4 * g.random(n)) for n in (n_in, n_out)]
        suh = signs[0].astype(np.float16)
        svh = (signs[1] * wide / cols ** 0.5 / 1.2).astype(np.float16)
        self.stored[name + ".trellis"], self.stored[name + ".suh"], self.stored[name + ".svh"] = trellis.view(np.int16), suh, svh
        if codebook in MARKS:
            self.stored[f"{name}.{codebook}"] = np.array(MARKS[codebook], np.uint32).view(np.int32).reshape(())
        self.w[name + ".weight"] = product(trellis, bits, codebook, suh, svh)[:rows, :cols]

    def draw(self):
        c, g = self.c, self.generator
        hidden, dim = c["hidden_size"], c["head_dim"]
        n_q, n_kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
        self.plain("model.embed_tokens", g.standard_normal((c["vocab_size"], hidden)))
        self.matrix("lm_head", c["vocab_size"], hidden, 2.0)
        self.norm("model.norm", hidden)
        for layer in range(c["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            for part, rows, cols, wide in (("q", n_q, hidden, 1.5), ("k", n_kv, hidden, 1.5), ("v", n_kv, hidden, 1), ("o", hidden, n_q, 1)):
                self.matrix(f"{at}self_attn.{part}_proj", rows, cols, wide)
            for name, n in (("self_attn.q_norm", dim), ("self_attn.k_norm", dim)) if self.v.get("head_norm") else ():
                self.norm(at + name, n)
            for name in ("input_layernorm", "post_attention_layernorm"):
                self.norm(at + name, hidden)
            names = self.v["names"][1:] if "num_experts" in c else [f"mlp.{p}_proj" for p in ("gate", "up", "down")]
            wide = c.get("moe_intermediate_size", c["intermediate_size"])
            if "num_experts" in c:
                self.plain(at + self.v["names"][0], g.standard_normal((c["num_experts"], hidden)) * 2 / hidden ** 0.5)
            kinds = [self.kind() for _ in names] if self.v.get("uniform") else [None] * 3
            for e in range(c.get("num_experts", 1)):
                for name, rows, cols, kind in zip(names, (wide, wide, hidden), (hidden, hidden, wide), kinds):
                    self.matrix(at + name.format(e=e), rows, cols, kind=kind)
            if "shared_expert_intermediate_size" in c:
                self.shared(at, c["shared_expert_intermediate_size"])

    def shared(self, at, wide):
        """Qwen2's shared expert with its gate, and the biases of its attention."""
        c, g = self.c, self.generator
        hidden, dim = c["hidden_size"], c["head_dim"]
        for part, rows, cols in (("gate", wide, hidden), ("up", wide, hidden), ("down", hidden, wide)):
            self.matrix(f"{at}mlp.shared_expert.{part}_proj", rows, cols)
        self.plain(at + "mlp.shared_expert_gate", g.standard_normal((1, hidden)) * 2 / hidden ** 0.5)
        for part, heads in (("q", "num_attention_heads"), ("k", "num_key_value_heads"), ("v", "num_key_value_heads")):
            name = f"{at}self_attn.{part}_proj.bias"
            self.w[name] = self.stored[name] = (g.standard_normal(c[heads] * dim) * 0.3).astype(np.float32)


class Dense(Reference):
    def mixture(self, x, at):
        return self.expert(x, [f"{at}mlp.{p}_proj" for p in ("gate", "up", "down")])


SHARED = dict(num_hidden_layers=2, vocab_size=257, rms_norm_eps=1e-6, rope_theta=1e6, num_attention_heads=4, num_key_value_heads=2,
              quantization_config=dict(quant_method="exl3", version="0.0.2", bits=4.0, head_bits=6, codebook="mul1"))
VARIANTS = {
    "exl3": (Dense, dict(arch="qwen3", head_norm=True, n=41, config=dict(
        SHARED, model_type="qwen3", hidden_size=144, head_dim=24, intermediate_size=200))),
    "exl3-moe": (Reference, dict(arch="qwen3moe", head_norm=True, n=37, names=QWEN, config=dict(
        SHARED, model_type="qwen3_moe", hidden_size=56, head_dim=20, intermediate_size=80, moe_intermediate_size=36, num_experts=5,
        num_experts_per_tok=2, norm_topk_prob=True))),
    # a layer's experts of a kind alike, as quantisers write them: they stay codes, and so does the shared expert
    "exl3-experts": (Reference, dict(arch="qwen2moe", uniform=True, n=37, names=QWEN, config=dict(
        SHARED, model_type="qwen2_moe", hidden_size=100, head_dim=36, intermediate_size=80, moe_intermediate_size=36, num_experts=4,
        num_experts_per_tok=2, shared_expert_intermediate_size=44, norm_topk_prob=False))),
}


def write_model(folder, v, kind, seed):
    generator = np.random.Generator(np.random.PCG64(seed))
    model = Model(v, generator)
    model.draw()
    reference = kind(v, model.w)
    tokens = generator.integers(0, v["config"]["vocab_size"], v["n"]).astype(np.int32)
    logits = reference.logits(tokens)
    assert reference.gap > 1e-2, f"a near tie of experts, {reference.gap}; take another seed"
    os.makedirs(folder, exist_ok=True)
    write_config(folder, {**BASE, **v["config"]})
    write_safetensors(os.path.join(folder, "model.safetensors"), model.stored)
    write_golden(folder, tokens, logits)
    print(f"{folder}: logits std {logits.std():.3f}, smallest gap between experts {reference.gap:.1e}")


def write_vectors(path):
    generator = np.random.default_rng(SEED)
    with open(path, "wb") as f:
        for codebook in CODEBOOKS:
            for bits in range(1, 9):
                tile = generator.integers(0, 1 << 16, (1, 1, 16 * bits), np.uint16)
                f.write(tile.tobytes() + decode(tile, bits, codebook).tobytes())


def check_facts():
    """Values that are published with the format's description."""
    want = {"3inst": (0.76806640625, -0.91943359375, -2.19921875), "mcg": (1.84375, 0.134521484375, 1.5146484375),
            "mul1": (-3.453125, 0.64111328125, -0.5771484375)}
    for codebook, expected in want.items():
        assert tuple(values(np.array([0, 1, 0x1234]), codebook).astype(float)) == expected


def main():
    check_facts()
    for i, (name, (kind, v)) in enumerate(VARIANTS.items()):
        write_model(os.path.join(sys.argv[1], name), v, kind, v.get("seed", SEED + i))
    write_vectors(sys.argv[2])


if __name__ == "__main__":
    main()
