"""Golden models with latent attention and experts: tiny, fully re-randomised, with logits from a numpy reference.

Usage: python3 make_latent_golden.py OUT [name ...]     (needs numpy alone)

As make_mixture_golden.py: an independent implementation in double precision from the published formulas (DeepSeek-AI 2024, V2 and
V3; Zhipu AI's GLM-4.7-Flash; Mistral AI's Small 4), that shares no code and no order of steps with the C. It expands keys and values to full size,
where the C multiplies queries into the latent space; it rotates pairs as complex numbers. Sizes are odd on purpose; routers and their
correction biases are drawn wide, so that a wrong choice of groups or experts shows; no position is a near tie.
check_transformers.py asks transformers for the same logits.
"""
import os

import numpy as np

import gguf_write as gguf
from golden_files import make_named, write_config, write_golden, write_safetensors

SEED = 20270  # and a variant's draw, chosen so that no position is a near tie
EPS = 1e-6  # of the norms inside of attention, whatever rms_norm_eps is
BASE = dict(hidden_act="silu", tie_word_embeddings=False, attention_bias=False, bos_token_id=1, eos_token_id=2, torch_dtype="float32",
            vocab_size=257, num_hidden_layers=3, moe_layer_freq=1, first_k_dense_replace=1)
VARIANTS = {
    # greedy: groups are named and do not count; queries without a latent; a context four times beyond the original
    "deepseek2-lite": dict(n=43, legacy=True, config=dict(
        model_type="deepseek_v2", hidden_size=60, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=None, kv_lora_rank=40,
        qk_nope_head_dim=20, qk_rope_head_dim=12, v_head_dim=18, intermediate_size=90, moe_intermediate_size=22, n_routed_experts=7,
        num_experts_per_tok=3, n_shared_experts=2, topk_method="greedy", scoring_func="softmax", n_group=1, topk_group=1,
        norm_topk_prob=False, routed_scaling_factor=1.0, rms_norm_eps=1e-6, rope_theta=1e4, max_position_embeddings=400,
        rope_scaling=dict(type="yarn", factor=40, original_max_position_embeddings=10, beta_fast=32, beta_slow=1, mscale=0.707,
                          mscale_all_dim=0.707))),
    "deepseek2": dict(n=37, draw=13, config=dict(
        model_type="deepseek_v2", hidden_size=72, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=30, kv_lora_rank=26,
        qk_nope_head_dim=14, qk_rope_head_dim=8, v_head_dim=22, intermediate_size=70, moe_intermediate_size=26, n_routed_experts=12,
        num_experts_per_tok=4, n_shared_experts=1, topk_method="group_limited_greedy", scoring_func="softmax", n_group=6, topk_group=3,
        norm_topk_prob=False, routed_scaling_factor=4.0, rms_norm_eps=1e-6, rope_theta=1e4, max_position_embeddings=256,
        rope_scaling=None)),
    "deepseek3": dict(n=41, config=dict(
        model_type="deepseek_v3", hidden_size=72, num_attention_heads=5, num_key_value_heads=5, q_lora_rank=34, kv_lora_rank=36,
        qk_nope_head_dim=18, qk_rope_head_dim=10, v_head_dim=16, intermediate_size=80, moe_intermediate_size=24, n_routed_experts=8,
        num_experts_per_tok=3, n_shared_experts=1, topk_method="noaux_tc", scoring_func="sigmoid", n_group=4, topk_group=2,
        norm_topk_prob=True, routed_scaling_factor=2.5, rms_norm_eps=1e-6, rope_theta=1e4, max_position_embeddings=320,
        rope_scaling=dict(type="yarn", factor=8, original_max_position_embeddings=16, beta_fast=32, beta_slow=1, mscale=1.0,
                          mscale_all_dim=1.0))),
    # a draft layer behind the model's, which nothing uses; rms_norm_eps is not that of the inner norms
    "glm47-flash": dict(n=39, draft=1, config=dict(
        model_type="glm4_moe_lite", hidden_size=56, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=28, kv_lora_rank=44,
        qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=24, intermediate_size=88, moe_intermediate_size=20, n_routed_experts=9,
        num_experts_per_tok=4, n_shared_experts=1, topk_method="noaux_tc", n_group=1, topk_group=1, norm_topk_prob=True,
        routed_scaling_factor=1.8, rms_norm_eps=1e-3, max_position_embeddings=256, num_nextn_predict_layers=1,
        rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    # queries grow in the fourth and fifth period; an expert's gate and up in one tensor of the checkpoint; no leading dense layer
    "mistral4": dict(n=41, arch="mistral4", config=dict(
        model_type="mistral4", hidden_size=52, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=26, kv_lora_rank=24,
        qk_nope_head_dim=14, qk_rope_head_dim=10, v_head_dim=12, intermediate_size=60, moe_intermediate_size=18, n_routed_experts=6,
        num_experts_per_tok=2, n_shared_experts=1, topk_method="greedy", n_group=1, topk_group=1, norm_topk_prob=True,
        routed_scaling_factor=1.5, rms_norm_eps=1e-6, max_position_embeddings=320, first_k_dense_replace=0, num_hidden_layers=2,
        vocab_size=131, rope_interleave=True,
        rope_parameters=dict(rope_type="yarn", type="yarn", rope_theta=1e4, factor=16.0, original_max_position_embeddings=8, beta_fast=32.0,
                             beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3, partial_rotary_factor=10 / 24))),
}


def yarn_of(c):
    rope = c.get("rope_parameters", {})
    return rope if rope.get("rope_type") == "yarn" else c.get("rope_scaling")


def join_experts(w, at, n):
    """A tensor for each expert's matrix becomes two of all, gate over up."""
    part = {p: [w.pop(f"{at}{e}.{p}_proj.weight") for e in range(n)] for p in ("gate", "up", "down")}
    w[at + "gate_up_proj"] = np.stack([np.concatenate(pair) for pair in zip(part["gate"], part["up"])])
    w[at + "down_proj"] = np.stack(part["down"])


def draw(v, generator):
    """Checkpoint name -> float32 array."""
    c, w = {**BASE, **v["config"]}, {}
    hidden, heads, latent, rope = (c[k] for k in ("hidden_size", "num_attention_heads", "kv_lora_rank", "qk_rope_head_dim"))
    nope, value, q_latent = c["qk_nope_head_dim"], c["v_head_dim"], c["q_lora_rank"]

    def matrix(name, rows, cols, wide=1.0):
        w[name + ".weight"] = (generator.standard_normal((rows, cols)) * wide / cols ** 0.5).astype(np.float32)

    def norm(name, n):
        w[name + ".weight"] = (0.5 + generator.random(n)).astype(np.float32)

    def ffn(at, wide):
        matrix(at + "gate_proj", wide, hidden)
        matrix(at + "up_proj", wide, hidden)
        matrix(at + "down_proj", hidden, wide)

    matrix("model.embed_tokens", c["vocab_size"], hidden, 0.2 * hidden ** 0.5)  # small: the norms' eps counts
    matrix("lm_head", c["vocab_size"], hidden, 2.0)
    norm("model.norm", hidden)
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        norm(at + "input_layernorm", hidden)
        norm(at + "post_attention_layernorm", hidden)
        if q_latent:
            matrix(at + "self_attn.q_a_proj", q_latent, hidden)
            norm(at + "self_attn.q_a_layernorm", q_latent)
            matrix(at + "self_attn.q_b_proj", heads * (nope + rope), q_latent, 1.5)
        else:
            matrix(at + "self_attn.q_proj", heads * (nope + rope), hidden, 1.5)
        matrix(at + "self_attn.kv_a_proj_with_mqa", latent + rope, hidden, 0.02)  # small: eps counts
        norm(at + "self_attn.kv_a_layernorm", latent)
        matrix(at + "self_attn.kv_b_proj", heads * (nope + value), latent, 1.5)
        matrix(at + "self_attn.o_proj", hidden, heads * value)
        w[at + "self_attn.kv_a_proj_with_mqa.weight"][latent:] *= 60
        if layer < c["first_k_dense_replace"]:
            ffn(at + "mlp.", c["intermediate_size"])
            continue
        matrix(at + "mlp.gate", c["n_routed_experts"], hidden, 2.0)
        if c["topk_method"] == "noaux_tc":
            w[at + "mlp.gate.e_score_correction_bias"] = (generator.standard_normal(c["n_routed_experts"]) * 0.3).astype(np.float32)
        for e in range(c["n_routed_experts"]):
            ffn(f"{at}mlp.experts.{e}.", c["moe_intermediate_size"])
        if c["model_type"] == "mistral4":
            join_experts(w, at + "mlp.experts.", c["n_routed_experts"])
        ffn(at + "mlp.shared_experts.", c["moe_intermediate_size"] * c["n_shared_experts"])
    for layer in range(c["num_hidden_layers"], c["num_hidden_layers"] + v.get("draft", 0)):
        matrix(f"model.layers.{layer}.eh_proj", hidden, 2 * hidden)
    return w


class Reference:
    """The forward pass in double, with keys and values of full size."""

    def __init__(self, v, weights):
        self.c, self.gap = {**BASE, **v["config"]}, np.inf
        self.w = {name: x.astype(np.float64) for name, x in weights.items()}

    def norm(self, x, name, eps):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * self.w[name + ".weight"]

    def linear(self, x, name):
        return x @ self.w[name + ".weight"].T

    def frequencies(self):
        """Of each pair, and what YaRN multiplies rotated numbers and scores with."""
        c, n = self.c, self.c["qk_rope_head_dim"]
        y = yarn_of(c)
        base = c["rope_theta"] if "rope_theta" in c else c["rope_parameters"]["rope_theta"]
        f = base ** (-np.arange(0, n, 2) / n)
        if not y:
            return f, 1.0, 1.0

        def pair(turns):
            return n * np.log(y["original_max_position_embeddings"] / (turns * 2 * np.pi)) / (2 * np.log(base))

        def stretch(m):
            return 0.1 * m * np.log(y["factor"]) + 1

        low, high = max(np.floor(pair(y["beta_fast"])), 0), min(np.ceil(pair(y["beta_slow"])), n - 1)
        ramp = np.clip((np.arange(n // 2) - low) / max(high - low, 0.001), 0, 1)
        return (f / y["factor"] * ramp + f * (1 - ramp), stretch(y["mscale"]) / stretch(y["mscale_all_dim"]),
                stretch(y["mscale_all_dim"]) ** 2)

    def rotate(self, x):
        """x [n, heads, dim]: neighbours are the parts of a complex number."""
        f, factor, _ = self.frequencies()
        z = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * np.outer(np.arange(x.shape[0]), f))[:, None, :] * factor
        return np.stack([z.real, z.imag], -1).reshape(x.shape)

    def attention(self, x, at):
        c, n, at = self.c, x.shape[0], at + "self_attn."
        nope, rope, value, latent = (c[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank"))
        if c["q_lora_rank"]:
            q = self.linear(self.norm(self.linear(x, at + "q_a_proj"), at + "q_a_layernorm", EPS), at + "q_b_proj")
        else:
            q = self.linear(x, at + "q_proj")
        q = q.reshape(n, -1, nope + rope)
        kv = self.linear(x, at + "kv_a_proj_with_mqa")
        full = self.linear(self.norm(kv[:, :latent], at + "kv_a_layernorm", EPS), at + "kv_b_proj").reshape(n, -1, nope + value)
        shared = np.broadcast_to(self.rotate(kv[:, None, latent:]), (n, c["num_attention_heads"], rope))
        q = np.concatenate([q[..., :nope], self.rotate(q[..., nope:])], -1)
        k = np.concatenate([full[..., :nope], shared], -1)
        if c["model_type"] == "mistral4":
            y = c["rope_parameters"]
            periods = np.floor(np.arange(n) / y["original_max_position_embeddings"])
            q = q * (1 + y["llama_4_scaling_beta"] * np.log(1 + periods))[:, None, None]
        scores = np.einsum("ihd,jhd->hij", q, k) * (nope + rope) ** -0.5 * self.frequencies()[2]
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return self.linear(np.einsum("hij,jhd->ihd", p, full[..., nope:]).reshape(n, -1), at + "o_proj")

    def expert(self, x, at):
        if at + "gate_proj.weight" not in self.w:  # joined
            at, e = at[:-1].rsplit(".", 1)
            gate, up = np.split(self.w[at + ".gate_up_proj"][int(e)] @ x, 2)
            return self.w[at + ".down_proj"][int(e)] @ (gate / (1 + np.exp(-gate)) * up)
        gate = self.linear(x, at + "gate_proj")
        return self.linear(gate / (1 + np.exp(-gate)) * self.linear(x, at + "up_proj"), at + "down_proj")

    def close(self, keys, n):
        """Notes how near a tie the n-th best of the keys is."""
        best = np.sort(keys)[::-1]
        if n < len(best) and np.isfinite(best[n]):
            self.gap = min(self.gap, best[n - 1] - best[n])

    def route(self, logits, bias):
        """The chosen ids and their weights."""
        c, k = self.c, self.c["num_experts_per_tok"]
        if bias is None:
            scores = np.exp(logits - logits.max())
            keys = scores = scores / scores.sum()
        else:
            scores = 1 / (1 + np.exp(-logits))
            keys = scores + bias
        if c["topk_method"] != "greedy" and c["n_group"] > 1:
            groups = keys.reshape(c["n_group"], -1)
            rank = groups.max(1) if bias is None else np.sort(groups, 1)[:, -2:].sum(1)
            self.close(rank, c["topk_group"])
            kept = np.isin(np.arange(c["n_group"]), np.argsort(-rank, kind="stable")[:c["topk_group"]])
            keys = np.where(np.repeat(kept, groups.shape[1]), keys, -np.inf)
        self.close(keys, k)
        ids = np.argsort(-keys, kind="stable")[:k]
        weights = scores[ids]
        if c["norm_topk_prob"]:
            weights = weights / (weights.sum() + 1e-20)
        return ids, weights * c["routed_scaling_factor"]

    def mixture(self, x, at):
        out, bias = self.expert(x, at + "shared_experts."), self.w.get(at + "gate.e_score_correction_bias")
        for row, logits in enumerate(self.linear(x, at + "gate")):
            for e, weight in zip(*self.route(logits, bias)):
                out[row] += weight * self.expert(x[row], f"{at}experts.{e}.")
        return out

    def logits(self, tokens):
        eps = self.c["rms_norm_eps"]
        x = self.w["model.embed_tokens.weight"][tokens]
        for layer in range(self.c["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            x = x + self.attention(self.norm(x, at + "input_layernorm", eps), at)
            n = self.norm(x, at + "post_attention_layernorm", eps)
            x = x + (self.expert(n, at + "mlp.") if layer < self.c["first_k_dense_replace"] else self.mixture(n, at + "mlp."))
        return self.linear(self.norm(x, "model.norm", eps), "lm_head")


NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp", "eh_proj": "nextn.eh_proj",
    "enorm": "nextn.enorm", "hnorm": "nextn.hnorm", "shared_head.norm": "nextn.shared_head_norm",
    "shared_head.head": "nextn.shared_head_head", "embed_tokens": "nextn.embed_tokens",
}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_tensors(c, weights, legacy):
    """GGUF's name -> array. Since llama.cpp's PR 12801 kv_b is two tensors: the key's part transposed, and the value's."""
    out, heads, nope = {}, c["num_attention_heads"], c["qk_nope_head_dim"]
    for name, x in weights.items():
        if name[:-len(".weight")] in TOP:
            out[TOP[name[:-len(".weight")]] + ".weight"] = x
            continue
        _, _, layer, rest = name.split(".", 3)
        at, part = f"blk.{layer}.", rest.removesuffix(".weight")
        if part == "self_attn.kv_b_proj" and not legacy:
            full = x.reshape(heads, nope + c["v_head_dim"], -1)
            out[at + "attn_k_b.weight"] = full[:, :nope].swapaxes(1, 2)
            out[at + "attn_v_b.weight"] = full[:, nope:]
        elif part.endswith("e_score_correction_bias"):
            out[at + "exp_probs_b.bias"] = x
        elif part == "mlp.experts.gate_up_proj":
            out[at + "ffn_gate_exps.weight"], out[at + "ffn_up_exps.weight"] = np.split(x, 2, axis=1)
        elif part == "mlp.experts.down_proj":
            out[at + "ffn_down_exps.weight"] = x
        elif part.startswith("mlp.experts."):
            kind = part.split(".")[3].removesuffix("_proj")
            out.setdefault(f"{at}ffn_{kind}_exps.weight", []).append(x)
        else:
            out[at + NAMES[part] + ".weight"] = x
    return {name: np.stack(x) if isinstance(x, list) else x for name, x in out.items()}


def write_gguf(path, name, v, weights, legacy):
    c, arch = {**BASE, **v["config"]}, v.get("arch", "deepseek2")
    w = gguf.Writer(arch)
    latent, rope, full = c["kv_lora_rank"], c["qk_rope_head_dim"], c["qk_nope_head_dim"] + c["qk_rope_head_dim"]
    sizes = {"context_length": c["max_position_embeddings"], "embedding_length": c["hidden_size"],
             "block_count": c["num_hidden_layers"] + v.get("draft", 0), "feed_forward_length": c["intermediate_size"],
             "attention.head_count": c["num_attention_heads"], "attention.head_count_kv": c["num_attention_heads"] if legacy else 1,
             "attention.key_length": full if legacy else latent + rope, "attention.value_length": c["v_head_dim"] if legacy else latent,
             "attention.kv_lora_rank": latent, "rope.dimension_count": rope, "vocab_size": c["vocab_size"],
             "expert_count": c["n_routed_experts"], "expert_used_count": c["num_experts_per_tok"],
             "expert_feed_forward_length": c["moe_intermediate_size"], "expert_shared_count": c["n_shared_experts"],
             "leading_dense_block_count": c["first_k_dense_replace"]}
    if not legacy:
        sizes |= {"attention.key_length_mla": full, "attention.value_length_mla": c["v_head_dim"]}
    if c["q_lora_rank"]:
        sizes["attention.q_lora_rank"] = c["q_lora_rank"]
    if c["topk_method"] == "noaux_tc":
        sizes["expert_gating_func"] = 2
    if c["topk_method"] != "greedy" and c["n_group"] > 1:
        sizes |= {"expert_group_count": c["n_group"], "expert_group_used_count": c["topk_group"]}
    if v.get("draft"):
        sizes["nextn_predict_layers"] = v["draft"]
    w.add("general.name", gguf.STR, f"golden {name}")
    w.add("general.file_type", gguf.U32, 0)
    for key, value in sizes.items():
        w.add(f"{arch}.{key}", gguf.U32, value)
    w.add(f"{arch}.attention.layer_norm_rms_epsilon", gguf.F32, c["rms_norm_eps"])
    w.add(f"{arch}.rope.freq_base", gguf.F32, c["rope_theta"] if "rope_theta" in c else c["rope_parameters"]["rope_theta"])
    w.add(f"{arch}.expert_weights_scale", gguf.F32, c["routed_scaling_factor"])
    if c["norm_topk_prob"]:
        w.add(f"{arch}.expert_weights_norm", gguf.BOOL, True)
    y = yarn_of(c)
    if arch == "mistral4":
        w.add(f"{arch}.attention.temperature_scale", gguf.F32, y["llama_4_scaling_beta"])
        w.add(f"{arch}.expert_gating_func", gguf.U32, 1)
    if y:
        w.add(f"{arch}.rope.scaling.type", gguf.STR, "yarn")
        w.add(f"{arch}.rope.scaling.factor", gguf.F32, y["factor"])
        w.add(f"{arch}.rope.scaling.original_context_length", gguf.U32, y["original_max_position_embeddings"])
        w.add(f"{arch}.rope.scaling.yarn_log_multiplier", gguf.F32, 0.1 * y["mscale_all_dim"])
    w.add("tokenizer.ggml.model", gguf.STR, "none")
    for tensor, x in gguf_tensors(c, weights, legacy).items():
        w.tensor(tensor, x)
    w.write(path)


def make(name, index, out):
    v, folder = VARIANTS[name], os.path.join(out, name)
    generator = np.random.Generator(np.random.PCG64(SEED + 100 * v.get("draw", 0) + index))
    os.makedirs(folder, exist_ok=True)
    weights, c = draw(v, generator), {**BASE, **v["config"]}
    tokens = generator.integers(0, c["vocab_size"], v["n"]).astype(np.int32)
    reference = Reference(v, weights)
    logits = reference.logits(tokens)
    assert reference.gap > 2e-4, f"{name}: a near tie of experts, {reference.gap}; take another draw"
    write_config(folder, c)
    write_safetensors(os.path.join(folder, "model.safetensors"), weights)
    write_gguf(os.path.join(folder, "model.gguf"), name, v, weights, False)
    if v.get("legacy"):
        write_gguf(os.path.join(folder, "legacy.gguf"), name, v, weights, True)
    write_golden(folder, tokens, logits)
    print(f"{name:14s} logits std {logits.std():.3f}, smallest gap between experts {reference.gap:.1e}")


if __name__ == "__main__":
    make_named(VARIANTS, make)
