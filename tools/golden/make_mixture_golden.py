"""Golden models with experts: tiny, fully re-randomised, with logits from a numpy reference written from the published formulas.

Usage: python3 make_mixture_golden.py OUT [name ...]     (needs numpy alone)

This is not transformers: where that library is at hand make_golden.py is the stronger witness. It is a second, independent
implementation in double precision: whole matrices, no cache, dense masks, experts by loops over tokens; it shares no code and
no order of steps with the C. Sources: Jiang et al. 2024 (Mixtral), Muennighoff et al. 2024 (OLMoE), the Qwen team's model
cards (Qwen1.5-MoE, Qwen3), IBM's (Granite 3: four multipliers). Sizes are odd on purpose, as in make_golden.py; routers are drawn wide, so that a wrong choice of
experts shows, and every position's smallest gap between the last chosen and the first left out is checked to be no near tie.
"""
import os

import numpy as np

import gguf_write as gguf
import hf_to_gguf
from golden_files import make_named, write_config, write_golden, write_safetensors

SEED = 20261
BASE = dict(max_position_embeddings=256, hidden_act="silu", tie_word_embeddings=False, attention_bias=False, bos_token_id=1,
            eos_token_id=2, torch_dtype="float32")
# arch: GGUF's name; rule: (normalise), see route(); names: the checkpoint's part of a name for router, gate, up, down.
QWEN = ("mlp.gate", "mlp.experts.{e}.gate_proj", "mlp.experts.{e}.up_proj", "mlp.experts.{e}.down_proj")
VARIANTS = {
    "qwen3moe": dict(arch="qwen3moe", names=QWEN, head_norm=True, n=41, config=dict(
        model_type="qwen3_moe", hidden_size=56, num_attention_heads=4, num_key_value_heads=2, head_dim=24, intermediate_size=80,
        moe_intermediate_size=20, num_experts=7, num_experts_per_tok=3, norm_topk_prob=True, num_hidden_layers=2, vocab_size=257,
        rms_norm_eps=1e-6, rope_theta=1e6)),
    "mixtral": dict(arch="llama", n=37, names=("block_sparse_moe.gate", "block_sparse_moe.experts.{e}.w1",
                                               "block_sparse_moe.experts.{e}.w3", "block_sparse_moe.experts.{e}.w2"), config=dict(
        model_type="mixtral", hidden_size=72, num_attention_heads=6, num_key_value_heads=2, head_dim=12, intermediate_size=28,
        num_local_experts=5, num_experts_per_tok=2, num_hidden_layers=2, vocab_size=257, rms_norm_eps=1e-5, rope_theta=1e6,
        sliding_window=None)),
    "qwen2moe": dict(arch="qwen2moe", names=QWEN, n=39, config=dict(
        model_type="qwen2_moe", hidden_size=56, num_attention_heads=4, num_key_value_heads=4, head_dim=14, intermediate_size=90,
        moe_intermediate_size=18, shared_expert_intermediate_size=44, num_experts=6, num_experts_per_tok=4, norm_topk_prob=False,
        num_hidden_layers=2, vocab_size=257, rms_norm_eps=1e-6, rope_theta=1e6)),
    "olmoe": dict(arch="olmoe", names=QWEN, whole_norm=True, n=43, config=dict(
        model_type="olmoe", hidden_size=56, num_attention_heads=4, num_key_value_heads=2, head_dim=14, intermediate_size=24,
        num_experts=9, num_experts_per_tok=4, norm_topk_prob=False, num_hidden_layers=2, vocab_size=257, rms_norm_eps=1e-5,
        rope_theta=1e4)),
    "granitemoe": dict(arch="granitemoe", n=40, names=("block_sparse_moe.router.layer", "gate", "up", "down"), config=dict(
        model_type="granitemoe", hidden_size=72, num_attention_heads=6, num_key_value_heads=2, head_dim=12, intermediate_size=26,
        num_local_experts=6, num_experts_per_tok=3, num_hidden_layers=2, vocab_size=257, rms_norm_eps=1e-5, rope_theta=1e4,
        embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.125, logits_scaling=3.0)),
}
FUSED = "block_sparse_moe.{}_linear.weight"  # Granite: an expert's gate over its up, then down, each for all experts


def draw(v, generator):
    """Checkpoint name -> float32 array."""
    c, w = v["config"], {}
    hidden, dim = c["hidden_size"], c["head_dim"]
    n_q, n_kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    ffn = c.get("moe_intermediate_size", c["intermediate_size"])
    n_experts = c.get("num_experts") or c["num_local_experts"]

    def matrix(name, rows, cols, wide=1.0):
        w[name + ".weight"] = (generator.standard_normal((rows, cols)) * wide / cols ** 0.5).astype(np.float32)

    def norm(name, n):
        w[name + ".weight"] = (0.5 + generator.random(n)).astype(np.float32)

    matrix("model.embed_tokens", c["vocab_size"], hidden, hidden ** 0.5 / c.get("embedding_multiplier", 1.0))
    matrix("lm_head", c["vocab_size"], hidden, 2.0)
    norm("model.norm", hidden)
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for part, rows, cols, wide in (("q", n_q, hidden, 1.5), ("k", n_kv, hidden, 1.5), ("v", n_kv, hidden, 1), ("o", hidden, n_q, 1)):
            matrix(f"{at}self_attn.{part}_proj", rows, cols, wide)
        if v["arch"] == "qwen2moe":
            for part, rows in (("q", n_q), ("k", n_kv), ("v", n_kv)):
                w[f"{at}self_attn.{part}_proj.bias"] = (generator.standard_normal(rows) * 0.1).astype(np.float32)
        for name, n in ((v.get("head_norm") and "self_attn.q_norm", dim), (v.get("head_norm") and "self_attn.k_norm", dim),
                        (v.get("whole_norm") and "self_attn.q_norm", n_q), (v.get("whole_norm") and "self_attn.k_norm", n_kv),
                        ("input_layernorm", hidden), ("post_attention_layernorm", hidden)):
            if name:
                norm(at + name, n)
        router, gate, up, down = v["names"]
        matrix(at + router, n_experts, hidden, 2.0)
        if v["arch"] == "granitemoe":
            for part, rows, cols in (("input", 2 * ffn, hidden), ("output", hidden, ffn)):
                w[at + FUSED.format(part)] = (generator.standard_normal((n_experts, rows, cols)) / cols ** 0.5).astype(np.float32)
            continue
        for e in range(n_experts):
            matrix(at + gate.format(e=e), ffn, hidden)
            matrix(at + up.format(e=e), ffn, hidden)
            matrix(at + down.format(e=e), hidden, ffn)
        if "shared_expert_intermediate_size" in c:
            wide = c["shared_expert_intermediate_size"]
            matrix(at + "mlp.shared_expert_gate", 1, hidden, 2.0)
            matrix(at + "mlp.shared_expert.gate_proj", wide, hidden)
            matrix(at + "mlp.shared_expert.up_proj", wide, hidden)
            matrix(at + "mlp.shared_expert.down_proj", hidden, wide)
    return w


class Reference:
    """The forward pass in double. Rotation is of halves, as checkpoints have it."""

    def __init__(self, v, weights):
        self.v, self.c, self.gap = v, v["config"], np.inf
        self.w = {name: x.astype(np.float64) for name, x in weights.items()}
        self.scale = self.c.get("attention_multiplier", self.c["head_dim"] ** -0.5)
        self.residual = self.c.get("residual_multiplier", 1.0)

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.c["rms_norm_eps"]) * self.w[name + ".weight"]

    def linear(self, x, name):
        return x @ self.w[name + ".weight"].T + self.w.get(name + ".bias", 0.0)

    def rotate(self, x):
        """x [n, heads, dim]"""
        n, dim = x.shape[0], x.shape[2]
        angle = np.outer(np.arange(n), self.c["rope_theta"] ** (-np.arange(0, dim, 2) / dim))[:, None, :]
        a, b = x[..., :dim // 2], x[..., dim // 2:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)

    def attention(self, x, at):
        c, n, dim = self.c, x.shape[0], self.c["head_dim"]
        q, k, value = (self.linear(x, f"{at}self_attn.{p}_proj") for p in "qkv")
        if self.v.get("whole_norm"):
            q, k = self.norm(q, at + "self_attn.q_norm"), self.norm(k, at + "self_attn.k_norm")
        q, k, value = (t.reshape(n, -1, dim) for t in (q, k, value))
        if self.v.get("head_norm"):
            q, k = self.norm(q, at + "self_attn.q_norm"), self.norm(k, at + "self_attn.k_norm")
        group = c["num_attention_heads"] // c["num_key_value_heads"]
        q, k, value = self.rotate(q), self.rotate(k).repeat(group, 1), value.repeat(group, 1)
        scores = np.einsum("ihd,jhd->hij", q, k) * self.scale
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return self.linear(np.einsum("hij,jhd->ihd", p, value).reshape(n, -1), at + "self_attn.o_proj")

    def expert(self, x, names):
        gate, up = self.linear(x, names[0]), self.linear(x, names[1])
        return self.linear(gate / (1 + np.exp(-gate)) * up, names[2])

    def route(self, logits):
        """The chosen ids and their weights: softmax over all, the best k, brought to a sum of one where the model wants that."""
        p = np.exp(logits - logits.max())
        p /= p.sum()
        order, k = np.argsort(-p, kind="stable"), self.c["num_experts_per_tok"]
        self.gap = min(self.gap, logits[order[k - 1]] - logits[order[k]])
        weights = p[order[:k]]
        return order[:k], weights / weights.sum() if self.c.get("norm_topk_prob", True) else weights

    def granite(self, row, at, e):
        gate, up = np.split(self.w[at + FUSED.format("input")][e] @ row, 2)
        return self.w[at + FUSED.format("output")][e] @ (gate / (1 + np.exp(-gate)) * up)

    def mixture(self, x, at):
        names, out = [at + name for name in self.v["names"]], np.zeros_like(x)
        for row, logits in enumerate(self.linear(x, names[0])):
            for e, weight in zip(*self.route(logits)):
                out[row] += weight * (self.granite(x[row], at, e) if self.v["arch"] == "granitemoe" else
                                      self.expert(x[row], [name.format(e=e) for name in names[1:]]))
        if "shared_expert_intermediate_size" in self.c:
            gate = 1 / (1 + np.exp(-self.linear(x, at + "mlp.shared_expert_gate")))
            out += gate * self.expert(x, [f"{at}mlp.shared_expert.{p}_proj" for p in ("gate", "up", "down")])
        return out

    def logits(self, tokens):
        x = self.w["model.embed_tokens.weight"][tokens] * self.c.get("embedding_multiplier", 1.0)
        for layer in range(self.c["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            x = x + self.residual * self.attention(self.norm(x, at + "input_layernorm"), at)
            x = x + self.residual * self.mixture(self.norm(x, at + "post_attention_layernorm"), at)
        return self.linear(self.norm(x, "model.norm"), "lm_head") / self.c.get("logits_scaling", 1.0)


def gguf_tensors(v, weights):
    """GGUF's name -> array: an expert's matrices one behind the other."""
    c, out, arch = v["config"], {}, v["arch"]
    n_experts = c.get("num_experts") or c["num_local_experts"]
    more = {"shared_expert_gate": "ffn_gate_inp_shexp", "shared_expert.gate_proj": "ffn_gate_shexp",
            "shared_expert.up_proj": "ffn_up_shexp", "shared_expert.down_proj": "ffn_down_shexp"}
    for name, x in weights.items():
        if "experts" not in name and "_linear." not in name and v["names"][0] not in name and "shared_expert" not in name:
            heads = hf_to_gguf.heads_to_permute(name, v["arch"], c)
            out[hf_to_gguf.gguf_name(name)] = hf_to_gguf.permute(x, heads) if heads else x
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        out[f"blk.{layer}.ffn_gate_inp.weight"] = weights[at + v["names"][0] + ".weight"]
        if arch == "granitemoe":
            gate, up = np.split(weights[at + FUSED.format("input")], 2, axis=1)
            for part, x in (("gate", gate), ("up", up), ("down", weights[at + FUSED.format("output")])):
                out[f"blk.{layer}.ffn_{part}_exps.weight"] = x
            continue
        for name, part in zip(v["names"][1:], ("gate", "up", "down")):
            out[f"blk.{layer}.ffn_{part}_exps.weight"] = np.stack(
                [weights[at + name.format(e=e) + ".weight"] for e in range(n_experts)])
        for name, ours in more.items():
            if f"{at}mlp.{name}.weight" in weights:
                x = weights[f"{at}mlp.{name}.weight"]
                out[f"blk.{layer}.{ours}.weight"] = x[0] if x.shape[0] == 1 else x
    return out


def write_gguf(path, name, v, weights):
    c, arch = {**BASE, **v["config"]}, v["arch"]
    writer = gguf.Writer(arch)
    writer.add("general.name", gguf.STR, f"golden {name}")
    writer.add("general.file_type", gguf.U32, 0)
    hf_to_gguf.add_model(writer, arch, c, {"rope_type": "default", "rope_theta": c["rope_theta"]})
    writer.add(f"{arch}.expert_count", gguf.U32, c.get("num_experts") or c["num_local_experts"])
    writer.add(f"{arch}.expert_used_count", gguf.U32, c["num_experts_per_tok"])
    for key, field in (("expert_feed_forward_length", "moe_intermediate_size"),
                       ("expert_shared_feed_forward_length", "shared_expert_intermediate_size")):
        if field in c:
            writer.add(f"{arch}.{key}", gguf.U32, c[field])
    for key, field in (("embedding_scale", "embedding_multiplier"), ("residual_scale", "residual_multiplier"),
                       ("attention.scale", "attention_multiplier"), ("logit_scale", "logits_scaling")):
        if field in c:
            writer.add(f"{arch}.{key}", gguf.F32, c[field])
    writer.add("tokenizer.ggml.model", gguf.STR, "none")
    for tensor, x in gguf_tensors(v, weights).items():
        writer.tensor(tensor, x)
    writer.write(path)


def make(name, index, out):
    v, folder = VARIANTS[name], os.path.join(out, name)
    generator = np.random.Generator(np.random.PCG64(SEED + index))
    os.makedirs(folder, exist_ok=True)
    weights = draw(v, generator)
    tokens = generator.integers(0, v["config"]["vocab_size"], v["n"]).astype(np.int32)
    reference = Reference(v, weights)
    logits = reference.logits(tokens)
    assert reference.gap > 1e-3, f"{name}: a near tie of experts, {reference.gap}; take another seed"
    write_config(folder, {**BASE, **v["config"]})
    write_safetensors(os.path.join(folder, "model.safetensors"), weights)
    write_gguf(os.path.join(folder, "model.gguf"), name, v, weights)
    write_golden(folder, tokens, logits)
    print(f"{name:10s} logits std {logits.std():.3f}, smallest gap between experts {reference.gap:.1e}")


if __name__ == "__main__":
    make_named(VARIANTS, make)
