"""Golden models of gpt-oss: tiny, fully re-randomised, with logits from a numpy reference in double precision.

Usage: python3 make_gptoss_golden.py OUT [name ...]     (needs numpy alone)

Written from OpenAI's description of the model (2025) and the OCP microscaling paper, on top of make_mixture_golden.py. What it adds:
a sink per head in the softmax's denominator, a window on every other layer, biases everywhere, interleaved gate and up with the clamped
activation, YaRN whose ramp is not rounded, and experts as BF16 ([experts, in, out]) or as MXFP4 blocks. Experts are drawn so
wide that the clamp bites on both sides; a window is shorter than the tokens, and these pass the original context.
"""
import os

import numpy as np

import gguf_write as gguf
import hf_to_gguf
from golden_files import make_named, write_config, write_golden, write_safetensors
from make_mixture_golden import Reference

SEED = 20270
GGML_MXFP4 = 39
LEVELS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
LIMIT, ALPHA = 7.0, 1.702
BASE = dict(architectures=["GptOssForCausalLM"], model_type="gpt_oss", hidden_act="silu", tie_word_embeddings=False, attention_bias=True,
            bos_token_id=1, eos_token_id=2, torch_dtype="float32", attention_dropout=0.0, rms_norm_eps=1e-5, rope_theta=150000.0,
            swiglu_limit=LIMIT, router_aux_loss_coef=0.9)


def yarn(factor, original):
    return dict(rope_type="yarn", factor=factor, original_max_position_embeddings=original, beta_fast=32.0, beta_slow=1.0, truncate=False)


VARIANTS = {
    "gptoss": dict(n=71, mxfp4=False, config=dict(
        hidden_size=56, num_attention_heads=4, num_key_value_heads=2, head_dim=14, intermediate_size=20, num_local_experts=7,
        num_experts_per_tok=3, num_hidden_layers=3, vocab_size=257, sliding_window=9, max_position_embeddings=160,
        rope_theta=1000.0, rope_scaling=yarn(4.0, 40))),
    "gptoss-mxfp4": dict(n=83, mxfp4=True, config=dict(
        hidden_size=96, num_attention_heads=3, num_key_value_heads=1, head_dim=64, intermediate_size=32, num_local_experts=5,
        num_experts_per_tok=2, num_hidden_layers=2, vocab_size=257, sliding_window=21, max_position_embeddings=128,
        rope_scaling=yarn(8.0, 16), quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=[
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]))),
}


def layer_types(c):
    return ["full_attention" if layer % 2 else "sliding_attention" for layer in range(c["num_hidden_layers"])]


def decode_mxfp4(blocks, scales):
    """blocks [..., n, 16] bytes, scales [..., n]: byte j of a block holds elements 2j (low half) and 2j + 1."""
    pairs = np.stack([LEVELS[blocks & 15], LEVELS[blocks >> 4]], -1).reshape(*blocks.shape[:-1], 32)
    return (pairs * 2.0 ** (scales.astype(np.float64)[..., None] - 127)).reshape(*blocks.shape[:-2], -1)


def draw(v, generator):
    """Checkpoint name -> array, as such checkpoints hold it."""
    c, w = v["config"], {}
    hidden, dim, ffn, n_experts = c["hidden_size"], c["head_dim"], c["intermediate_size"], c["num_local_experts"]
    n_q, n_kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim

    def normal(name, shape, deviation):
        w[name] = (generator.standard_normal(shape) * deviation).astype(np.float32)

    def experts(name, rows, cols, wide):
        if not v["mxfp4"]:
            normal(name, (n_experts, cols, rows), wide / cols ** 0.5)
            w[name] = (w[name].view(np.uint32) & 0xffff0000).view(np.float32)
            return
        w[name + "_blocks"] = generator.integers(0, 256, (n_experts, rows, cols // 32, 16)).astype(np.uint8)
        middle = round(np.log2(wide / cols ** 0.5 / 2.93)) + 127  # codes drawn evenly have a deviation of 2.93
        w[name + "_scales"] = generator.integers(middle - 1, middle + 2, (n_experts, rows, cols // 32)).astype(np.uint8)

    normal("model.embed_tokens.weight", (c["vocab_size"], hidden), 1)
    normal("lm_head.weight", (c["vocab_size"], hidden), 2 / hidden ** 0.5)
    w["model.norm.weight"] = (0.5 + generator.random(hidden)).astype(np.float32)
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for part, rows, cols, wide in (("q", n_q, hidden, 1.5), ("k", n_kv, hidden, 1.5), ("v", n_kv, hidden, 1), ("o", hidden, n_q, 1)):
            normal(f"{at}self_attn.{part}_proj.weight", (rows, cols), wide / cols ** 0.5)
            normal(f"{at}self_attn.{part}_proj.bias", rows, 0.3)
        w[f"{at}self_attn.sinks"] = (2 + 1.5 * generator.standard_normal(c["num_attention_heads"])).astype(np.float32)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            w[f"{at}{norm}.weight"] = (0.5 + generator.random(hidden)).astype(np.float32)
        normal(f"{at}mlp.router.weight", (n_experts, hidden), 2 / hidden ** 0.5)
        normal(f"{at}mlp.router.bias", n_experts, 1)
        experts(f"{at}mlp.experts.gate_up_proj", 2 * ffn, hidden, 4)
        normal(f"{at}mlp.experts.gate_up_proj_bias", (n_experts, 2 * ffn), 1)
        experts(f"{at}mlp.experts.down_proj", hidden, ffn, 0.2)
        normal(f"{at}mlp.experts.down_proj_bias", (n_experts, hidden), 0.5)
    return w


class GptOss(Reference):
    def __init__(self, v, weights):
        super().__init__(v, {name: x for name, x in weights.items() if x.dtype != np.uint8})
        self.clamped, self.sunk = np.zeros(3), 0.0
        for name, blocks in weights.items():  # an expert's matrices as [experts, out, in]
            if name.endswith("_blocks"):
                self.w[name[:-len("_blocks")]] = decode_mxfp4(blocks, weights[name[:-len("_blocks")] + "_scales"])
            elif name.endswith("_proj") and "experts" in name:
                self.w[name] = self.w[name].transpose(0, 2, 1)

    def rotate(self, x):
        """YaRN (Peng et al., 2023): between the pairs that turn beta_fast and beta_slow times over the original context a ramp."""
        c, n, dim = self.c, x.shape[0], x.shape[2]
        s, base, pair = c["rope_scaling"], c["rope_theta"], np.arange(dim // 2)
        low, high = (dim * np.log(s["original_max_position_embeddings"] / (beta * 2 * np.pi)) / (2 * np.log(base))
                     for beta in (s["beta_fast"], s["beta_slow"]))
        low, high = max(low, 0), min(high, dim - 1)
        ramp = np.clip((pair - low) / max(high - low, 0.001), 0, 1)
        frequency = base ** (-2.0 * pair / dim)
        angle = np.outer(np.arange(n), frequency / s["factor"] * ramp + frequency * (1 - ramp))[:, None, :]
        cos, sin = (f(angle) * (0.1 * np.log(s["factor"]) + 1) for f in (np.cos, np.sin))
        a, b = x[..., :dim // 2], x[..., dim // 2:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def attention(self, x, at):
        c, n, dim = self.c, x.shape[0], self.c["head_dim"]
        q, k, value = (self.linear(x, f"{at}self_attn.{p}_proj").reshape(n, -1, dim) for p in "qkv")
        group, window = c["num_attention_heads"] // c["num_key_value_heads"], c["sliding_window"]
        q, k, value = self.rotate(q), self.rotate(k).repeat(group, 1), value.repeat(group, 1)
        behind = np.arange(n)[:, None] - np.arange(n)[None, :]
        seen = (behind >= 0) & ((behind < window) | (int(at.split(".")[2]) % 2 == 1))
        scores = np.where(seen, np.einsum("ihd,jhd->hij", q, k) * self.scale, -np.inf)
        sinks = np.broadcast_to(self.w[at + "self_attn.sinks"][:, None, None], scores.shape[:2] + (1,))
        scores = np.concatenate([scores, sinks], -1)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        self.sunk = max(self.sunk, p[..., -1].mean())
        return self.linear(np.einsum("hij,jhd->ihd", p[..., :-1], value).reshape(n, -1), at + "self_attn.o_proj")

    def expert_of(self, row, at, e):
        at += "mlp.experts."
        both = self.w[at + "gate_up_proj"][e] @ row + self.w[at + "gate_up_proj_bias"][e]
        gate, up = both[::2], both[1::2]
        self.clamped += [(gate > LIMIT).mean(), (up > LIMIT).mean(), (up < -LIMIT).mean()]
        gate, up = np.minimum(gate, LIMIT), np.clip(up, -LIMIT, LIMIT)
        return self.w[at + "down_proj"][e] @ ((up + 1) * gate / (1 + np.exp(-ALPHA * gate))) + self.w[at + "down_proj_bias"][e]

    def mixture(self, x, at):
        out, k = np.zeros_like(x), self.c["num_experts_per_tok"]
        for row, logits in enumerate(self.linear(x, at + "mlp.router")):
            order = np.argsort(-logits, kind="stable")
            self.gap = min(self.gap, logits[order[k - 1]] - logits[order[k]])
            weights = np.exp(logits[order[:k]] - logits[order[0]])
            for e, weight in zip(order[:k], weights / weights.sum()):
                out[row] += weight * self.expert_of(x[row], at, e)
        return out


class Writer(gguf.Writer):
    def blocks(self, name, blocks, scales):
        """GGUF's order: byte j of a block holds elements j (low half) and j + 16, behind the scale."""
        codes = np.stack([blocks & 15, blocks >> 4], -1).reshape(*blocks.shape[:-1], 32)
        packed = codes[..., :16] | codes[..., 16:] << 4
        data = np.concatenate([scales[..., None], packed], -1)
        self.tensors.append((name, blocks.shape[:-2] + (blocks.shape[-2] * 32,), GGML_MXFP4, data.tobytes()))


def write_experts(writer, v, weights, layer):
    at, to = f"model.layers.{layer}.mlp.experts.", f"blk.{layer}.ffn_"
    for part, name, rows in (("gate", "gate_up_proj", slice(0, None, 2)), ("up", "gate_up_proj", slice(1, None, 2)),
                             ("down", "down_proj", slice(None))):
        if v["mxfp4"]:
            writer.blocks(f"{to}{part}_exps.weight", weights[at + name + "_blocks"][:, rows], weights[at + name + "_scales"][:, rows])
        else:
            writer.tensor(f"{to}{part}_exps.weight", weights[at + name].transpose(0, 2, 1)[:, rows])
        writer.tensor(f"{to}{part}_exps.bias", weights[at + name + "_bias"][:, rows])


def write_gguf(path, name, v, weights):
    c = {**BASE, **v["config"]}
    writer = Writer("gpt-oss")
    writer.add("general.name", gguf.STR, f"golden {name}")
    writer.add("general.file_type", gguf.U32, 38 if v["mxfp4"] else 0)
    hf_to_gguf.add_model(writer, "gpt-oss", c, {"rope_theta": c["rope_theta"], **c["rope_scaling"]})
    for key, field in (("expert_count", "num_local_experts"), ("expert_used_count", "num_experts_per_tok"),
                       ("expert_feed_forward_length", "intermediate_size"), ("attention.sliding_window", "sliding_window")):
        writer.add(f"gpt-oss.{key}", gguf.U32, c[field])
    writer.add("tokenizer.ggml.model", gguf.STR, "none")
    more = {"self_attn.o_proj.bias": "attn_output.bias", "self_attn.sinks": "attn_sinks.weight", "mlp.router.weight": "ffn_gate_inp.weight",
            "mlp.router.bias": "ffn_gate_inp.bias", "post_attention_layernorm.weight": "post_attention_norm.weight"}
    for tensor, x in weights.items():
        if ".experts." in tensor:
            continue
        rest = tensor.split(".", 3)[-1]
        writer.tensor(f"blk.{tensor.split('.')[2]}.{more[rest]}" if rest in more else hf_to_gguf.gguf_name(tensor), x)
    for layer in range(c["num_hidden_layers"]):
        write_experts(writer, v, weights, layer)
    writer.write(path)


def make(name, index, out):
    v, folder = VARIANTS[name], os.path.join(out, name)
    generator = np.random.Generator(np.random.PCG64(SEED + index))
    os.makedirs(folder, exist_ok=True)
    v["config"] = {**BASE, **v["config"], "layer_types": layer_types(v["config"])}
    weights = draw(v, generator)
    tokens = generator.integers(0, v["config"]["vocab_size"], v["n"]).astype(np.int32)
    reference = GptOss(v, weights)
    logits = reference.logits(tokens)
    assert reference.gap > 1e-3, f"{name}: a near tie of experts, {reference.gap}; take another seed"
    assert (reference.clamped > 0).all() and 0.05 < reference.sunk < 0.9, (reference.clamped, reference.sunk)
    write_config(folder, v["config"])
    write_safetensors(os.path.join(folder, "model.safetensors"), {
        tensor: (x.view(np.uint32) >> 16).astype(np.uint16) if x.ndim == 3 and x.dtype == np.float32 else x for tensor, x in weights.items()})
    write_gguf(os.path.join(folder, "model.gguf"), name, v, weights)
    write_golden(folder, tokens, logits)
    n = v["n"] * v["config"]["num_experts_per_tok"] * v["config"]["num_hidden_layers"]
    print(f"{name:13s} logits std {logits.std():.3f}, smallest gap between experts {reference.gap:.1e}, "
          f"clamped {reference.clamped / n}, to the sinks {reference.sunk:.2f}")


if __name__ == "__main__":
    make_named(VARIANTS, make)
