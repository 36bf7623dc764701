"""Golden models of GLM-4.5's kind: tiny, fully re-randomised, with logits from a numpy reference in double precision.

Usage: python3 make_glm_golden.py OUT [name ...]     (needs numpy alone)

Experts, routing and the dense layers are those of make_latent_golden.py; here is attention as Zhipu AI describes it (2025): GQA, biases
on q, k and v, norms a head or none, and a rotation of halves within the first part of a head.
"""
import os

import numpy as np

import gguf_write as gguf
import make_latent_golden as latent
from golden_files import make_named, write_config, write_golden, write_safetensors

SEED = 20280
BASE = dict(latent.BASE, model_type="glm4_moe", architectures=["Glm4MoeForCausalLM"], attention_bias=True, n_group=1, topk_group=1,
            norm_topk_prob=True, rms_norm_eps=1e-5, max_position_embeddings=256, attention_dropout=0.0, rope_scaling=None,
            topk_method="noaux_tc")
VARIANTS = {
    "glm45-air": dict(n=43, draft=1, config=dict(
        hidden_size=56, num_attention_heads=6, num_key_value_heads=2, head_dim=24, partial_rotary_factor=0.5, use_qk_norm=False,
        intermediate_size=90, moe_intermediate_size=22, n_routed_experts=9, num_experts_per_tok=4, n_shared_experts=1,
        routed_scaling_factor=1.0, rope_theta=1e6, num_nextn_predict_layers=1)),
    "glm45": dict(n=37, config=dict(
        hidden_size=72, num_attention_heads=4, num_key_value_heads=4, head_dim=20, partial_rotary_factor=0.3, use_qk_norm=True,
        intermediate_size=70, moe_intermediate_size=18, n_routed_experts=7, num_experts_per_tok=3, n_shared_experts=2,
        routed_scaling_factor=2.5, rope_theta=1e4, first_k_dense_replace=2, num_hidden_layers=4)),
}


def draw(v, generator):
    """Checkpoint name -> float32 array."""
    c, w = {**BASE, **v["config"]}, {}
    hidden, dim = c["hidden_size"], c["head_dim"]

    def matrix(name, rows, cols, wide=1.0):
        w[name + ".weight"] = (generator.standard_normal((rows, cols)) * wide / cols ** 0.5).astype(np.float32)

    def norm(name, n):
        w[name + ".weight"] = (0.5 + generator.random(n)).astype(np.float32)

    def ffn(at, wide):
        for part, rows, cols in (("gate", wide, hidden), ("up", wide, hidden), ("down", hidden, wide)):
            matrix(f"{at}{part}_proj", rows, cols)

    matrix("model.embed_tokens", c["vocab_size"], hidden, hidden ** 0.5)
    matrix("lm_head", c["vocab_size"], hidden, 2.0)
    norm("model.norm", hidden)
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        norm(at + "input_layernorm", hidden)
        norm(at + "post_attention_layernorm", hidden)
        for part, heads in (("q", c["num_attention_heads"]), ("k", c["num_key_value_heads"]), ("v", c["num_key_value_heads"])):
            matrix(f"{at}self_attn.{part}_proj", heads * dim, hidden, 1.0 if part == "v" else 1.5)
            w[f"{at}self_attn.{part}_proj.bias"] = (generator.standard_normal(heads * dim) * 0.3).astype(np.float32)
            if c["use_qk_norm"] and part != "v":
                norm(f"{at}self_attn.{part}_norm", dim)
        matrix(at + "self_attn.o_proj", hidden, c["num_attention_heads"] * dim)
        if layer < c["first_k_dense_replace"]:
            ffn(at + "mlp.", c["intermediate_size"])
            continue
        matrix(at + "mlp.gate", c["n_routed_experts"], hidden, 2.0)
        w[at + "mlp.gate.e_score_correction_bias"] = (generator.standard_normal(c["n_routed_experts"]) * 0.3).astype(np.float32)
        for e in range(c["n_routed_experts"]):
            ffn(f"{at}mlp.experts.{e}.", c["moe_intermediate_size"])
        ffn(at + "mlp.shared_experts.", c["moe_intermediate_size"] * c["n_shared_experts"])
    for layer in range(c["num_hidden_layers"], c["num_hidden_layers"] + v.get("draft", 0)):
        matrix(f"model.layers.{layer}.eh_proj", hidden, 2 * hidden)
    return w


class Glm(latent.Reference):
    def __init__(self, v, weights):
        super().__init__({**v, "config": {**BASE, **v["config"]}}, weights)

    def linear(self, x, name):
        return super().linear(x, name) + self.w.get(name + ".bias", 0.0)

    def rotate(self, x):
        """x [n, heads, dim]: halves of the first part of a head."""
        n = int(x.shape[2] * self.c["partial_rotary_factor"])
        angle = np.outer(np.arange(x.shape[0]), self.c["rope_theta"] ** (-np.arange(0, n, 2) / n))[:, None, :]
        a, b, rest = x[..., :n // 2], x[..., n // 2:n], x[..., n:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle), rest], -1)

    def attention(self, x, at):
        c, n, dim, at = self.c, x.shape[0], self.c["head_dim"], at + "self_attn."
        q, k, value = (self.linear(x, f"{at}{p}_proj").reshape(n, -1, dim) for p in "qkv")
        if c["use_qk_norm"]:
            q, k = self.norm(q, at + "q_norm", c["rms_norm_eps"]), self.norm(k, at + "k_norm", c["rms_norm_eps"])
        group = c["num_attention_heads"] // c["num_key_value_heads"]
        q, k, value = self.rotate(q), self.rotate(k).repeat(group, 1), value.repeat(group, 1)
        scores = np.einsum("ihd,jhd->hij", q, k) * dim ** -0.5
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return self.linear(np.einsum("hij,jhd->ihd", p, value).reshape(n, -1), at + "o_proj")


MORE = {"post_attention_layernorm": "post_attention_norm", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}


def gguf_tensors(weights):
    out, names = {}, {**latent.NAMES, **MORE}
    for name, x in weights.items():
        if name.removesuffix(".weight") in latent.TOP:
            out[latent.TOP[name.removesuffix(".weight")] + ".weight"] = x
            continue
        _, _, layer, rest = name.split(".", 3)
        part, at = rest.removesuffix(".weight"), f"blk.{layer}."
        if part.endswith("e_score_correction_bias"):
            out[at + "exp_probs_b.bias"] = x
        elif part.startswith("mlp.experts."):
            out.setdefault(f"{at}ffn_{part.split('.')[3].removesuffix('_proj')}_exps.weight", []).append(x)
        elif part.endswith(".bias"):
            out[at + names[part.removesuffix(".bias")] + ".bias"] = x
        else:
            out[at + names[part] + ".weight"] = x
    return {name: np.stack(x) if isinstance(x, list) else x for name, x in out.items()}


def write_gguf(path, name, v, weights):
    c, arch = {**BASE, **v["config"]}, "glm4moe"
    w = gguf.Writer(arch)
    sizes = {"context_length": c["max_position_embeddings"], "embedding_length": c["hidden_size"],
             "block_count": c["num_hidden_layers"] + v.get("draft", 0), "feed_forward_length": c["intermediate_size"],
             "attention.head_count": c["num_attention_heads"], "attention.head_count_kv": c["num_key_value_heads"],
             "attention.key_length": c["head_dim"], "attention.value_length": c["head_dim"],
             "rope.dimension_count": int(c["head_dim"] * c["partial_rotary_factor"]), "vocab_size": c["vocab_size"],
             "expert_count": c["n_routed_experts"], "expert_used_count": c["num_experts_per_tok"],
             "expert_feed_forward_length": c["moe_intermediate_size"], "expert_shared_count": c["n_shared_experts"],
             "leading_dense_block_count": c["first_k_dense_replace"], "expert_gating_func": 2}
    if v.get("draft"):
        sizes["nextn_predict_layers"] = v["draft"]
    w.add("general.name", gguf.STR, f"golden {name}")
    w.add("general.file_type", gguf.U32, 0)
    for key, value in sizes.items():
        w.add(f"{arch}.{key}", gguf.U32, value)
    for key, value in (("attention.layer_norm_rms_epsilon", c["rms_norm_eps"]), ("rope.freq_base", c["rope_theta"]),
                       ("expert_weights_scale", c["routed_scaling_factor"])):
        w.add(f"{arch}.{key}", gguf.F32, value)
    w.add(f"{arch}.expert_weights_norm", gguf.BOOL, True)
    w.add("tokenizer.ggml.model", gguf.STR, "none")
    for tensor, x in gguf_tensors(weights).items():
        w.tensor(tensor, x)
    w.write(path)


def make(name, index, out):
    v, folder = VARIANTS[name], os.path.join(out, name)
    generator = np.random.Generator(np.random.PCG64(SEED + 100 * v.get("draw", 0) + index))
    os.makedirs(folder, exist_ok=True)
    weights, c = draw(v, generator), {**BASE, **v["config"]}
    tokens = generator.integers(0, c["vocab_size"], v["n"]).astype(np.int32)
    reference = Glm(v, weights)
    logits = reference.logits(tokens)
    assert reference.gap > 2e-4, f"{name}: a near tie of experts, {reference.gap}; take another draw"
    write_config(folder, c)
    write_safetensors(os.path.join(folder, "model.safetensors"), weights)
    write_gguf(os.path.join(folder, "model.gguf"), name, v, weights)
    write_golden(folder, tokens, logits)
    print(f"{name:10s} logits std {logits.std():.3f}, smallest gap between experts {reference.gap:.1e}")


if __name__ == "__main__":
    make_named(VARIANTS, make)
