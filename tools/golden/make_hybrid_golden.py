"""Golden models with recurrent layers: tiny, fully re-randomised, with logits from a numpy reference in double precision.

Usage: python3 make_hybrid_golden.py OUT [name ...]     (needs numpy alone)

As make_mixture_golden.py: an independent implementation from the published formulas (Liquid AI 2025, LFM2; Yang et al. 2024,
gated delta networks; the Qwen team 2026, Qwen3.5; Dao and Gu 2024, Mamba2; IBM 2025, Granite 4; NVIDIA 2025, Nemotron-H), that shares no code and no order of steps with the C: convolutions over a
padded sequence, the recurrence by whole matrices, attention by dense masks. Sizes are odd on purpose; the eps inside of norms counts.
check_transformers.py asks transformers for the same logits.
"""
import os

import numpy as np

import gguf_write as gguf
from golden_files import make_named, write_config, write_golden, write_safetensors

SEED = 20290  # and a variant's draw, chosen so that no position is a near tie of experts
BASE = dict(bos_token_id=1, eos_token_id=2, torch_dtype="float32", vocab_size=131, max_position_embeddings=256, tie_word_embeddings=True)
LFM2 = dict(conv_bias=False, norm_eps=1e-5, rope_theta=1e6, layer_types=["conv", "conv", "full_attention", "conv"], num_hidden_layers=4)
QWEN35 = dict(hidden_act="silu", rms_norm_eps=1e-4, linear_conv_kernel_dim=4, attn_output_gate=True, attention_bias=False,
              layer_types=["linear_attention", "linear_attention", "full_attention"], num_hidden_layers=3, full_attention_interval=3,
              tie_word_embeddings=False, mamba_ssm_dtype="float32",
              rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.25, mrope_section=[1, 1, 0],
                                   mrope_interleaved=True))
GRANITE = dict(model_type="granitemoehybrid", hidden_act="silu", rms_norm_eps=1e-4, position_embedding_type="nope",
               layer_types=["mamba", "attention", "mamba"], num_hidden_layers=3, attention_bias=False, mamba_conv_bias=True,
               mamba_proj_bias=False, mamba_expand=2, mamba_d_conv=4, mamba_chunk_size=16, num_experts_per_tok=2, rope_theta=1e4,
               embedding_multiplier=6.0, residual_multiplier=0.22, attention_multiplier=0.2, logits_scaling=3.0)
NEMOTRON = dict(model_type="nemotron_h", architectures=["NemotronHForCausalLM"], mlp_hidden_act="relu2", mamba_hidden_act="silu",
                layer_norm_epsilon=1e-4, attention_bias=False, mlp_bias=False, use_bias=False, use_conv_bias=True, mamba_proj_bias=False,
                conv_kernel=4, chunk_size=16, time_step_limit=[0.0, float("inf")], use_mamba_kernels=False, tie_word_embeddings=False,
                residual_in_fp32=False, num_logits_to_keep=1)
VARIANTS = {
    # config.json has the feed-forward block's length before two thirds of it are taken, as in the published models
    "lfm2": dict(arch="lfm2", n=75, ffn=42, config=dict(
        LFM2, model_type="lfm2", architectures=["Lfm2ForCausalLM"], hidden_size=36, num_attention_heads=3, num_key_value_heads=1,
        conv_L_cache=3, block_auto_adjust_ff_dim=True, block_ff_dim=63, intermediate_size=63, block_ffn_dim_multiplier=1.0,
        block_multiple_of=2)),
    "lfm2moe": dict(arch="lfm2moe", n=41, ffn=42, config=dict(
        LFM2, model_type="lfm2_moe", architectures=["Lfm2MoeForCausalLM"], hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
        conv_L_cache=4, intermediate_size=42, moe_intermediate_size=14, num_experts=5, num_experts_per_tok=2, num_dense_layers=1,
        norm_topk_prob=True, routed_scaling_factor=1.0, use_expert_bias=True)),
    "qwen35": dict(arch="qwen35", n=71, config=dict(
        QWEN35, model_type="qwen3_5_text", hidden_size=36, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        linear_num_key_heads=3, linear_num_value_heads=6, linear_key_head_dim=8, linear_value_head_dim=8, intermediate_size=32)),
    "qwen35moe": dict(arch="qwen35moe", n=43, config=dict(
        QWEN35, model_type="qwen3_5_moe_text", hidden_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=24,
        linear_num_key_heads=1, linear_num_value_heads=3, linear_key_head_dim=12, linear_value_head_dim=12, moe_intermediate_size=10,
        shared_expert_intermediate_size=14, num_experts=5, num_experts_per_tok=2)),
    "granitehybrid": dict(arch="granitehybrid", n=70, config=dict(
        GRANITE, architectures=["GraniteMoeHybridForCausalLM"], hidden_size=36, num_attention_heads=3, num_key_value_heads=1,
        intermediate_size=44, shared_intermediate_size=44, num_local_experts=0, mamba_n_heads=6, mamba_d_head=12, mamba_d_state=14,
        mamba_n_groups=1)),
    "granitehybrid-moe": dict(arch="granitehybrid", n=39, config=dict(
        GRANITE, architectures=["GraniteMoeHybridForCausalLM"], hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=12, shared_intermediate_size=18, num_local_experts=5, mamba_n_heads=8, mamba_d_head=8, mamba_d_state=10,
        mamba_n_groups=1)),
    # heads are no part of the width; the letters of NVIDIA's files
    "nemotronh": dict(arch="nemotron_h", n=67, config=dict(
        NEMOTRON, hidden_size=36, num_attention_heads=3, num_key_value_heads=1, head_dim=10, intermediate_size=44, mamba_num_heads=6,
        mamba_head_dim=10, ssm_state_size=14, n_groups=2, num_hidden_layers=5, hybrid_override_pattern="M-*M-")),
    # with experts, and the words of transformers
    "nemotronh-moe": dict(arch="nemotron_h_moe", n=41, config=dict(
        NEMOTRON, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=44, mamba_num_heads=4,
        mamba_head_dim=12, ssm_state_size=10, n_groups=2, num_hidden_layers=4, n_routed_experts=5, num_experts_per_tok=2,
        n_shared_experts=1, moe_intermediate_size=14, moe_shared_expert_intermediate_size=18, routed_scaling_factor=2.5, n_group=1,
        topk_group=1, norm_topk_prob=True, layers_block_type=["mamba", "moe", "attention", "moe"])),
}


def silu(x):
    return x / (1 + np.exp(-x))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Draw:
    """Weights by the checkpoint's names, as float32 arrays."""

    def __init__(self, v, generator):
        self.v, self.c, self.generator, self.w = v, {**BASE, **v["config"]}, generator, {}

    def matrix(self, name, rows, cols, wide=1.0):
        self.w[name + ".weight"] = (self.generator.standard_normal((rows, cols)) * wide / cols ** 0.5).astype(np.float32)

    def vector(self, name, n, low=0.5, high=1.5):
        self.w[name] = (low + (high - low) * self.generator.random(n)).astype(np.float32)

    def convolution(self, name, channels, kernel):
        self.w[name + ".weight"] = (self.generator.standard_normal((channels, 1, kernel)) * 0.6).astype(np.float32)

    def lfm2(self):
        c, hidden = self.c, self.c["hidden_size"]
        dim = hidden // c["num_attention_heads"]
        self.matrix("model.embed_tokens", c["vocab_size"], hidden, hidden ** 0.5)
        self.vector("model.embedding_norm.weight", hidden)
        for layer, kind in enumerate(c["layer_types"]):
            at = f"model.layers.{layer}."
            self.vector(at + "operator_norm.weight", hidden)
            self.vector(at + "ffn_norm.weight", hidden)
            if kind == "conv":
                self.matrix(at + "conv.in_proj", 3 * hidden, hidden)
                self.convolution(at + "conv.conv", hidden, c["conv_L_cache"])
                self.matrix(at + "conv.out_proj", hidden, hidden)
            else:
                n_kv = c["num_key_value_heads"] * dim
                for part, rows, wide in (("q_proj", hidden, 1.5), ("k_proj", n_kv, 1.5), ("v_proj", n_kv, 1), ("out_proj", hidden, 1)):
                    self.matrix(f"{at}self_attn.{part}", rows, hidden, wide)
                self.vector(at + "self_attn.q_layernorm.weight", dim)
                self.vector(at + "self_attn.k_layernorm.weight", dim)
            at += "feed_forward."
            if layer >= c.get("num_dense_layers", c["num_hidden_layers"]):
                self.matrix(at + "gate", c["num_experts"], hidden, 2.0)
                self.w[at + "expert_bias"] = (self.generator.standard_normal(c["num_experts"]) * 0.3).astype(np.float32)
                for e in range(c["num_experts"]):
                    self.ffn(f"{at}experts.{e}.", c["moe_intermediate_size"], ("w1", "w3", "w2"))
            else:
                self.ffn(at, self.v["ffn"], ("w1", "w3", "w2"))
        return self.w

    def delta_net(self, at):
        c, hidden = self.c, self.c["hidden_size"]
        heads, n_values = c["linear_num_value_heads"], c["linear_num_value_heads"] * c["linear_value_head_dim"]
        mixed = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"] + n_values
        for part, rows, wide in (("qkv", mixed, 1), ("z", n_values, 1), ("b", heads, 2), ("a", heads, 2)):
            self.matrix(f"{at}in_proj_{part}", rows, hidden, wide)
        self.w[at + "in_proj_qkv.weight"][:mixed - n_values] *= 0.02  # keys so short that their eps counts
        self.convolution(at + "conv1d", mixed, c["linear_conv_kernel_dim"])
        self.vector(at + "A_log", heads, -5, 4)  # some decay to nothing in a row, others hardly
        self.vector(at + "dt_bias", heads, -2, 2)
        self.vector(at + "norm.weight", c["linear_value_head_dim"])
        self.matrix(at + "out_proj", hidden, n_values)

    def gated_attention(self, at):
        c, hidden, dim = self.c, self.c["hidden_size"], self.c["head_dim"]
        n_q, n_kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
        for part, rows, cols, wide in (("q", 2 * n_q, hidden, 1.5), ("k", n_kv, hidden, 1.5), ("v", n_kv, hidden, 1), ("o", hidden, n_q, 1)):
            self.matrix(f"{at}{part}_proj", rows, cols, wide)
        self.vector(at + "q_norm.weight", dim, -0.5, 0.5)
        self.vector(at + "k_norm.weight", dim, -0.5, 0.5)

    def qwen35(self):
        c, hidden = self.c, self.c["hidden_size"]
        self.matrix("model.embed_tokens", c["vocab_size"], hidden, 0.2 * hidden ** 0.5)
        self.matrix("lm_head", c["vocab_size"], hidden, 2.0)
        self.vector("model.norm.weight", hidden, -0.5, 0.5)
        for layer, kind in enumerate(c["layer_types"]):
            at = f"model.layers.{layer}."
            self.vector(at + "input_layernorm.weight", hidden, -0.5, 0.5)
            self.vector(at + "post_attention_layernorm.weight", hidden, -0.5, 0.5)
            (self.delta_net if kind == "linear_attention" else self.gated_attention)(
                at + ("linear_attn." if kind == "linear_attention" else "self_attn."))
            at += "mlp."
            names = ("gate_proj", "up_proj", "down_proj")
            if "num_experts" not in c:
                self.ffn(at, c["intermediate_size"], names)
                continue
            n, wide = c["num_experts"], c["moe_intermediate_size"]
            self.matrix(at + "gate", n, hidden, 2.0)
            for part, rows, cols in (("gate_up_proj", 2 * wide, hidden), ("down_proj", hidden, wide)):
                self.w[f"{at}experts.{part}"] = (self.generator.standard_normal((n, rows, cols)) / cols ** 0.5).astype(np.float32)
            self.ffn(at + "shared_expert.", c["shared_expert_intermediate_size"], names)
            self.matrix(at + "shared_expert_gate", 1, hidden, 2.0)
        return self.w

    def mamba(self, at):
        c, hidden = self.c, self.c["hidden_size"]
        inner, heads = c["mamba_expand"] * hidden, c["mamba_n_heads"]
        mixed = inner + 2 * c["mamba_n_groups"] * c["mamba_d_state"]
        self.matrix(at + "in_proj", inner + mixed + heads, hidden)
        self.convolution(at + "conv1d", mixed, c["mamba_d_conv"])
        self.vector(at + "conv1d.bias", mixed, -0.5, 0.5)
        self.vector(at + "A_log", heads, -5, 4)
        self.vector(at + "dt_bias", heads, -3, 1)
        self.vector(at + "D", heads, -1, 1)
        self.vector(at + "norm.weight", inner)
        self.matrix(at + "out_proj", hidden, inner)

    def granite(self):
        c, hidden = self.c, self.c["hidden_size"]
        dim, shared = hidden // c["num_attention_heads"], c["shared_intermediate_size"]
        self.matrix("model.embed_tokens", c["vocab_size"], hidden, 1.0)
        self.vector("model.norm.weight", hidden)
        for layer, kind in enumerate(c["layer_types"]):
            at = f"model.layers.{layer}."
            self.vector(at + "input_layernorm.weight", hidden)
            self.vector(at + "post_attention_layernorm.weight", hidden)
            if kind == "mamba":
                self.mamba(at + "mamba.")
            else:
                n_kv = c["num_key_value_heads"] * dim
                for part, rows, wide in (("q", hidden, 1.5), ("k", n_kv, 1.5), ("v", n_kv, 1), ("o", hidden, 1)):
                    self.matrix(f"{at}self_attn.{part}_proj", rows, hidden, wide)
            self.matrix(at + "shared_mlp.input_linear", 2 * shared, hidden)
            self.matrix(at + "shared_mlp.output_linear", hidden, shared)
            n, wide = c["num_local_experts"], c["intermediate_size"]
            if n:
                self.matrix(at + "block_sparse_moe.router.layer", n, hidden, 2.0)
                for part, rows, cols in (("input_linear", 2 * wide, hidden), ("output_linear", hidden, wide)):
                    name = f"{at}block_sparse_moe.{part}.weight"
                    self.w[name] = (self.generator.standard_normal((n, rows, cols)) / cols ** 0.5).astype(np.float32)
        return self.w

    def nemotron(self):
        c, hidden, dim = self.c, self.c["hidden_size"], self.c["head_dim"]
        inner, heads = c["mamba_num_heads"] * c["mamba_head_dim"], c["mamba_num_heads"]
        mixed, n_q, n_kv = inner + 2 * c["n_groups"] * c["ssm_state_size"], c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
        self.matrix("backbone.embeddings", c["vocab_size"], hidden, 0.3 * hidden ** 0.5)
        self.matrix("lm_head", c["vocab_size"], hidden, 2.0)
        self.vector("backbone.norm_f.weight", hidden)
        for layer, kind in enumerate(nemotron_kinds(c)):
            at = f"backbone.layers.{layer}."
            self.vector(at + "norm.weight", hidden)
            at += "mixer."
            if kind == "mamba":
                self.matrix(at + "in_proj", inner + mixed + heads, hidden)
                self.convolution(at + "conv1d", mixed, c["conv_kernel"])
                self.vector(at + "conv1d.bias", mixed, -0.5, 0.5)
                self.vector(at + "A_log", heads, -5, 4)
                self.vector(at + "dt_bias", heads, -3, 1)
                self.vector(at + "D", heads, -1, 1)
                self.vector(at + "norm.weight", inner)
                self.matrix(at + "out_proj", hidden, inner)
            elif kind == "attention":
                for part, rows, cols, wide in (("q", n_q, hidden, 1.5), ("k", n_kv, hidden, 1.5), ("v", n_kv, hidden, 1), ("o", hidden, n_q, 1)):
                    self.matrix(f"{at}{part}_proj", rows, cols, wide)
            elif kind == "mlp":
                self.two(at, c["intermediate_size"])
            else:
                self.matrix(at + "gate", c["n_routed_experts"], hidden, 2.0)
                self.w[at + "gate.e_score_correction_bias"] = (self.generator.standard_normal(c["n_routed_experts"]) * 0.3).astype(np.float32)
                for e in range(c["n_routed_experts"]):
                    self.two(f"{at}experts.{e}.", c["moe_intermediate_size"])
                self.two(at + "shared_experts.", c["moe_shared_expert_intermediate_size"])
        return self.w

    def two(self, at, wide):
        self.matrix(at + "up_proj", wide, self.c["hidden_size"])
        self.matrix(at + "down_proj", self.c["hidden_size"], wide)

    def ffn(self, at, wide, names):
        hidden = self.c["hidden_size"]
        for part, rows, cols in zip(names, (wide, wide, hidden), (hidden, hidden, wide)):
            self.matrix(at + part, rows, cols)


class Reference:
    """The forward pass in double."""

    def __init__(self, v, weights):
        self.v, self.c, self.gap = v, {**BASE, **v["config"]}, np.inf
        self.w = {name: x.astype(np.float64) for name, x in weights.items()}

    def norm(self, x, name, eps):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * self.w[name]

    def linear(self, x, name):
        return x @ self.w[name + ".weight"].T

    def convolve(self, u, name):
        """u [n, channels]: each channel's filter over the sequence, padded with zeros before its beginning."""
        taps = self.w[name + ".weight"][:, 0]
        padded = np.concatenate([np.zeros((taps.shape[1] - 1, u.shape[1])), u])
        return np.stack([(padded[t:t + taps.shape[1]].T * taps).sum(1) for t in range(u.shape[0])])

    @staticmethod
    def rotate(x, base, n):
        """x [rows, heads, dim]: halves of the first n of a head."""
        angle = np.outer(np.arange(x.shape[0]), base ** (-np.arange(0, n, 2) / n))[:, None, :]
        a, b, rest = x[..., :n // 2], x[..., n // 2:n], x[..., n:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle), rest], -1)

    @staticmethod
    def attend(q, k, value):
        """[n, heads, dim], fewer heads in k and value."""
        n, group = q.shape[0], q.shape[1] // k.shape[1]
        scores = np.einsum("ihd,jhd->hij", q, k.repeat(group, 1)) * q.shape[2] ** -0.5
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("hij,jhd->ihd", p / p.sum(-1, keepdims=True), value.repeat(group, 1)).reshape(n, -1)

    def ffn(self, x, at, names):
        return self.linear(silu(self.linear(x, at + names[0])) * self.linear(x, at + names[1]), at + names[2])


class Lfm2(Reference):
    def attention(self, x, at):
        dim, eps = x.shape[1] // self.c["num_attention_heads"], self.c["norm_eps"]
        q, k, value = (self.linear(x, f"{at}{p}_proj").reshape(x.shape[0], -1, dim) for p in "qkv")
        q, k = self.norm(q, at + "q_layernorm.weight", eps), self.norm(k, at + "k_layernorm.weight", eps)
        q, k = (self.rotate(t, self.c["rope_theta"], dim) for t in (q, k))
        return self.linear(self.attend(q, k, value), at + "out_proj")

    def short_conv(self, x, at):
        before, after, u = np.split(self.linear(x, at + "in_proj"), 3, axis=1)
        return self.linear(after * self.convolve(before * u, at + "conv"), at + "out_proj")

    def mixture(self, x, at):
        c, out = self.c, np.zeros_like(x)
        scores = sigmoid(self.linear(x, at + "gate"))
        for row, score in enumerate(scores):
            biased = score + self.w[at + "expert_bias"]
            order, k = np.argsort(-biased, kind="stable"), c["num_experts_per_tok"]
            self.gap = min(self.gap, biased[order[k - 1]] - biased[order[k]])
            weights = score[order[:k]] / (score[order[:k]].sum() + 1e-6) * c["routed_scaling_factor"]
            for e, weight in zip(order[:k], weights):
                out[row] += weight * self.ffn(x[row], f"{at}experts.{e}.", ("w1", "w3", "w2"))
        return out

    def logits(self, tokens):
        c, eps = self.c, self.c["norm_eps"]
        x = self.w["model.embed_tokens.weight"][tokens]
        for layer, kind in enumerate(c["layer_types"]):
            at = f"model.layers.{layer}."
            y = self.norm(x, at + "operator_norm.weight", eps)
            x = x + (self.short_conv(y, at + "conv.") if kind == "conv" else self.attention(y, at + "self_attn."))
            y, at = self.norm(x, at + "ffn_norm.weight", eps), at + "feed_forward."
            dense = layer < c.get("num_dense_layers", c["num_hidden_layers"])
            x = x + (self.ffn(y, at, ("w1", "w3", "w2")) if dense else self.mixture(y, at))
        return self.linear(self.norm(x, "model.embedding_norm.weight", eps), "model.embed_tokens")


class Qwen35(Reference):
    def plus_one(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.c["rms_norm_eps"]) * (1 + self.w[name])

    def attention(self, x, at):
        c, n, dim = self.c, x.shape[0], self.c["head_dim"]
        q, gate = np.split(self.linear(x, at + "q_proj").reshape(n, -1, 2 * dim), 2, axis=-1)
        k, value = (self.linear(x, f"{at}{p}_proj").reshape(n, -1, dim) for p in "kv")
        rope = c["rope_parameters"]
        q, k = (self.rotate(self.plus_one(t, f"{at}{p}_norm.weight"), rope["rope_theta"], int(dim * rope["partial_rotary_factor"]))
                for p, t in (("q", q), ("k", k)))
        return self.linear(self.attend(q, k, value) * sigmoid(gate.reshape(n, -1)), at + "o_proj")

    def delta_net(self, x, at):
        """The state as a matrix for each value head, updated by whole matrices: S = S (I - b k k^T) decay + b v k^T, transposed."""
        c, n = self.c, x.shape[0]
        hk, hv, dk, dv = (c[f"linear_{p}"] for p in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim"))
        mixed = silu(self.convolve(self.linear(x, at + "in_proj_qkv"), at + "conv1d"))
        q, k, value = np.split(mixed, [hk * dk, 2 * hk * dk], axis=1)
        q, k = (t.reshape(n, hk, dk).repeat(hv // hk, 1) for t in (q, k))
        q, k = (t / np.sqrt((t * t).sum(-1, keepdims=True) + 1e-6) for t in (q, k))
        value, beta = value.reshape(n, hv, dv), sigmoid(self.linear(x, at + "in_proj_b"))
        steps = np.log1p(np.exp(self.linear(x, at + "in_proj_a") + self.w[at + "dt_bias"]))
        decay = np.exp(-np.exp(self.w[at + "A_log"]) * steps)
        out = np.zeros((n, hv, dv))
        for h in range(hv):
            state = np.zeros((dv, dk))
            for t in range(n):
                key = k[t, h][None, :]
                state = decay[t, h] * state @ (np.eye(dk) - beta[t, h] * key.T @ key) + beta[t, h] * value[t, h][:, None] @ key
                out[t, h] = state @ q[t, h] * dk ** -0.5
        z = self.linear(x, at + "in_proj_z").reshape(n, hv, dv)
        return self.linear((self.norm(out, at + "norm.weight", c["rms_norm_eps"]) * silu(z)).reshape(n, -1), at + "out_proj")

    def mixture(self, x, at):
        c, names = self.c, ("gate_proj", "up_proj", "down_proj")
        out = sigmoid(self.linear(x, at + "shared_expert_gate")) * self.ffn(x, at + "shared_expert.", names)
        for row, logits in enumerate(self.linear(x, at + "gate")):
            order, n = np.argsort(-logits, kind="stable"), c["num_experts_per_tok"]
            self.gap = min(self.gap, logits[order[n - 1]] - logits[order[n]])
            p = np.exp(logits[order[:n]] - logits.max())
            for e, weight in zip(order[:n], p / p.sum()):
                gate, up = np.split(self.w[at + "experts.gate_up_proj"][e] @ x[row], 2)
                out[row] += weight * (self.w[at + "experts.down_proj"][e] @ (silu(gate) * up))
        return out

    def logits(self, tokens):
        x = self.w["model.embed_tokens.weight"][tokens]
        for layer, kind in enumerate(self.c["layer_types"]):
            at = f"model.layers.{layer}."
            y = self.plus_one(x, at + "input_layernorm.weight")
            x = x + (self.delta_net(y, at + "linear_attn.") if kind == "linear_attention" else self.attention(y, at + "self_attn."))
            y, at = self.plus_one(x, at + "post_attention_layernorm.weight"), at + "mlp."
            x = x + (self.mixture(y, at) if "num_experts" in self.c else self.ffn(y, at, ("gate_proj", "up_proj", "down_proj")))
        return self.linear(self.plus_one(x, "model.norm.weight"), "lm_head")


QWEN35_NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm", "self_attn.q_proj": "attn_q",
                "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
                "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
                "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
                "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
                "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
                "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta",
                "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm",
                "linear_attn.out_proj": "ssm_out"}


def tiled(x, axis, c, per_head):
    """Value heads from the order of their key heads to that of turns: 0, r, 2r .., 1, r + 1, .."""
    x = np.moveaxis(x, axis, 0)
    heads = x.reshape(c["linear_num_key_heads"], -1, per_head, *x.shape[1:]).swapaxes(0, 1)
    return np.moveaxis(heads.reshape(x.shape), 0, axis)


def qwen35_values(part, x, c):
    """A tensor of a delta net as GGUF files have it."""
    dv, keys = c["linear_value_head_dim"], 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"]
    if part in ("in_proj_qkv", "conv1d"):
        x = x[:, 0] if part == "conv1d" else x
        return np.concatenate([x[:keys], tiled(x[keys:], 0, c, dv)])
    if part == "in_proj_z":
        return tiled(x, 0, c, dv)
    if part == "out_proj":
        return tiled(x, 1, c, dv)
    if part == "A_log":
        return tiled(-np.exp(x), 0, c, 1)
    return x if part == "norm" else tiled(x, 0, c, 1)


def qwen35_tensors(weights, c):
    out = {"token_embd.weight": weights["model.embed_tokens.weight"], "output.weight": weights["lm_head.weight"],
           "output_norm.weight": weights["model.norm.weight"] + np.float32(1)}
    for name, x in weights.items():
        if not name.startswith("model.layers."):
            continue
        _, _, layer, rest = name.split(".", 3)
        part, at = rest.removesuffix(".weight"), f"blk.{layer}."
        if part.startswith("linear_attn."):
            x = qwen35_values(part.removeprefix("linear_attn."), x, c)
        if part.endswith("A_log"):
            out[at + "ssm_a"] = x
        elif part.endswith("dt_bias"):
            out[at + "ssm_dt.bias"] = x
        elif part.endswith("experts.gate_up_proj"):
            out[at + "ffn_gate_exps.weight"], out[at + "ffn_up_exps.weight"] = np.split(x, 2, axis=1)
        elif part.endswith("experts.down_proj"):
            out[at + "ffn_down_exps.weight"] = x
        else:
            plus = part.endswith("norm") and part != "linear_attn.norm"
            x = x[0] if part.endswith("shared_expert_gate") else x
            out[at + QWEN35_NAMES[part] + ".weight"] = x + np.float32(1) if plus else x
    return out


def qwen35_keys(w, v, c):
    arch = v["arch"]
    sizes = {"embedding_length": c["hidden_size"], "block_count": c["num_hidden_layers"], "attention.head_count": c["num_attention_heads"],
             "attention.head_count_kv": c["num_key_value_heads"], "attention.key_length": c["head_dim"],
             "attention.value_length": c["head_dim"],
             "rope.dimension_count": int(c["head_dim"] * c["rope_parameters"]["partial_rotary_factor"]),
             "ssm.conv_kernel": c["linear_conv_kernel_dim"], "ssm.state_size": c["linear_key_head_dim"],
             "ssm.group_count": c["linear_num_key_heads"], "ssm.time_step_rank": c["linear_num_value_heads"],
             "ssm.inner_size": c["linear_num_value_heads"] * c["linear_value_head_dim"],
             "full_attention_interval": c["full_attention_interval"]}
    if "num_experts" in c:
        sizes.update({"expert_count": c["num_experts"], "expert_used_count": c["num_experts_per_tok"],
                      "expert_feed_forward_length": c["moe_intermediate_size"],
                      "expert_shared_feed_forward_length": c["shared_expert_intermediate_size"]})
    else:
        sizes["feed_forward_length"] = c["intermediate_size"]
    for key, value in sizes.items():
        w.add(f"{arch}.{key}", gguf.U32, value)
    w.add_array(f"{arch}.rope.dimension_sections", gguf.I32, [*c["rope_parameters"]["mrope_section"], 0])
    w.add(f"{arch}.attention.layer_norm_rms_epsilon", gguf.F32, c["rms_norm_eps"])
    w.add(f"{arch}.rope.freq_base", gguf.F32, c["rope_parameters"]["rope_theta"])


def nemotron_kinds(c):
    """A word for each layer, from letters or from words."""
    pattern = c.get("hybrid_override_pattern")
    return [{"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}[letter] for letter in pattern] if pattern else c["layers_block_type"]


class Nemotron(Reference):
    def attention(self, x, at):
        q, k, value = (self.linear(x, f"{at}{p}_proj").reshape(x.shape[0], -1, self.c["head_dim"]) for p in "qkv")
        return self.linear(self.attend(q, k, value), at + "o_proj")

    def mamba(self, x, at):
        """The recurrence written out: y_t = sum over s <= t of exp(sum of A dt in (s, t]) dt_s (C_t . B_s) x_s, + D x_t."""
        c, n = self.c, x.shape[0]
        heads, groups, size, dim = c["mamba_num_heads"], c["n_groups"], c["ssm_state_size"], c["mamba_head_dim"]
        inner = heads * dim
        z, mixed, steps = np.split(self.linear(x, at + "in_proj"), [inner, 2 * inner + 2 * groups * size], axis=1)
        mixed = silu(self.convolve(mixed, at + "conv1d") + self.w[at + "conv1d.bias"])
        u, b, q = np.split(mixed, [inner, inner + groups * size], axis=1)
        u = u.reshape(n, heads, dim)
        b, q = (t.reshape(n, groups, size).repeat(heads // groups, 1) for t in (b, q))
        steps = np.log1p(np.exp(steps + self.w[at + "dt_bias"]))
        total = np.cumsum(-np.exp(self.w[at + "A_log"]) * steps, axis=0)
        past = np.tri(n, dtype=bool)[:, :, None]
        decay = np.exp(np.where(past, total[:, None] - total[None, :], -np.inf))
        seen = decay * np.einsum("thd,shd->tsh", q, b) * steps[None, :]
        out = np.einsum("tsh,shd->thd", seen, u) + self.w[at + "D"][:, None] * u
        gated = (out.reshape(n, -1) * silu(z)).reshape(n, groups, -1)
        gated = gated / np.sqrt((gated * gated).mean(-1, keepdims=True) + c["layer_norm_epsilon"])
        return self.linear(gated.reshape(n, -1) * self.w[at + "norm.weight"], at + "out_proj")

    def two(self, x, at):
        return self.linear(np.maximum(self.linear(x, at + "up_proj"), 0) ** 2, at + "down_proj")

    def moe(self, x, at):
        c, out = self.c, self.two(x, at + "shared_experts.")
        for row, score in enumerate(sigmoid(self.linear(x, at + "gate"))):
            biased = score + self.w[at + "gate.e_score_correction_bias"]
            order, k = np.argsort(-biased, kind="stable"), c["num_experts_per_tok"]
            self.gap = min(self.gap, biased[order[k - 1]] - biased[order[k]])
            weights = score[order[:k]] / (score[order[:k]].sum() + 1e-20) * c["routed_scaling_factor"]
            for e, weight in zip(order[:k], weights):
                out[row] += weight * self.two(x[row], f"{at}experts.{e}.")
        return out

    def logits(self, tokens):
        eps, x = self.c["layer_norm_epsilon"], self.w["backbone.embeddings.weight"][tokens]
        for layer, kind in enumerate(nemotron_kinds(self.c)):
            at = f"backbone.layers.{layer}."
            half = {"mamba": self.mamba, "attention": self.attention, "mlp": self.two, "moe": self.moe}[kind]
            x = x + half(self.norm(x, at + "norm.weight", eps), at + "mixer.")
        return self.linear(self.norm(x, "backbone.norm_f.weight", eps), "lm_head")


NEMOTRON_NAMES = {"norm": "attn_norm", "mixer.in_proj": "ssm_in", "mixer.conv1d": "ssm_conv1d", "mixer.norm": "ssm_norm",
                  "mixer.out_proj": "ssm_out", "mixer.q_proj": "attn_q", "mixer.k_proj": "attn_k", "mixer.v_proj": "attn_v",
                  "mixer.o_proj": "attn_output", "mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down", "mixer.gate": "ffn_gate_inp",
                  "mixer.shared_experts.up_proj": "ffn_up_shexp", "mixer.shared_experts.down_proj": "ffn_down_shexp"}
NEMOTRON_VECTORS = {"mixer.A_log": "ssm_a", "mixer.D": "ssm_d", "mixer.dt_bias": "ssm_dt.bias", "mixer.conv1d.bias": "ssm_conv1d.bias",
                    "mixer.gate.e_score_correction_bias": "exp_probs_b.bias"}


def nemotron_tensors(weights, c):
    out = {"token_embd.weight": weights["backbone.embeddings.weight"], "output.weight": weights["lm_head.weight"],
           "output_norm.weight": weights["backbone.norm_f.weight"]}
    for name, x in weights.items():
        if not name.startswith("backbone.layers."):
            continue
        _, _, layer, part = name.split(".", 3)
        at, plain = f"blk.{layer}.", part.removesuffix(".weight")
        if part in NEMOTRON_VECTORS:
            x = -np.exp(x) if part.endswith("A_log") else x
            out[at + NEMOTRON_VECTORS[part]] = x[:, None] if part in ("mixer.A_log", "mixer.D") else x
        elif plain.startswith("mixer.experts."):
            out.setdefault(f"{at}ffn_{plain.rsplit('.', 1)[1].split('_')[0]}_exps.weight", []).append(x)
        else:
            x = x[:, 0] if plain == "mixer.conv1d" else x.reshape(c["n_groups"], -1) if plain == "mixer.norm" else x
            out[at + NEMOTRON_NAMES[plain] + ".weight"] = x
    return {name: np.stack(x) if isinstance(x, list) else x for name, x in out.items()}


def nemotron_keys(w, v, c):
    arch, kinds = v["arch"], nemotron_kinds(c)
    sizes = {"embedding_length": c["hidden_size"], "block_count": len(kinds), "attention.head_count": c["num_attention_heads"],
             "attention.key_length": c["head_dim"], "attention.value_length": c["head_dim"], "rope.dimension_count": c["head_dim"],
             "ssm.conv_kernel": c["conv_kernel"], "ssm.state_size": c["ssm_state_size"], "ssm.group_count": c["n_groups"],
             "ssm.inner_size": c["mamba_num_heads"] * c["mamba_head_dim"], "ssm.time_step_rank": c["mamba_num_heads"]}
    wide = c["intermediate_size"]
    if arch == "nemotron_h_moe":
        wide = c["moe_intermediate_size"]
        sizes.update({"expert_count": c["n_routed_experts"], "expert_used_count": c["num_experts_per_tok"],
                      "expert_feed_forward_length": wide, "expert_shared_feed_forward_length": c["moe_shared_expert_intermediate_size"],
                      "expert_shared_count": c["n_shared_experts"], "expert_group_count": c["n_group"]})
        w.add(f"{arch}.expert_weights_norm", gguf.BOOL, c["norm_topk_prob"])
        w.add(f"{arch}.expert_weights_scale", gguf.F32, c["routed_scaling_factor"])
    for key, value in sizes.items():
        w.add(f"{arch}.{key}", gguf.U32, value)
    w.add_array(f"{arch}.attention.head_count_kv", gguf.I32, [c["num_key_value_heads"] if kind == "attention" else 0 for kind in kinds])
    w.add_array(f"{arch}.feed_forward_length", gguf.I32, [wide if kind in ("mlp", "moe") else 0 for kind in kinds])
    w.add(f"{arch}.attention.layer_norm_rms_epsilon", gguf.F32, c["layer_norm_epsilon"])


class Granite(Reference):
    def attention(self, x, at):
        n = x.shape[0]
        q, k, value = (self.linear(x, f"{at}{p}_proj").reshape(n, -1, x.shape[1] // self.c["num_attention_heads"]) for p in "qkv")
        q = q * (self.c["attention_multiplier"] * q.shape[2] ** 0.5)  # attend divides by the root
        return self.linear(self.attend(q, k, value), at + "o_proj")

    def mamba(self, x, at):
        c, n = self.c, x.shape[0]
        heads, groups, size = c["mamba_n_heads"], c["mamba_n_groups"], c["mamba_d_state"]
        inner = c["mamba_expand"] * x.shape[1]
        z, mixed, steps = np.split(self.linear(x, at + "in_proj"), [inner, 2 * inner + 2 * groups * size], axis=1)
        mixed = silu(self.convolve(mixed, at + "conv1d") + self.w[at + "conv1d.bias"])
        u, b, q = np.split(mixed, [inner, inner + groups * size], axis=1)
        u = u.reshape(n, heads, -1)
        b, q = (t.reshape(n, groups, size).repeat(heads // groups, 1) for t in (b, q))
        steps = np.log1p(np.exp(steps + self.w[at + "dt_bias"]))
        decay, out = np.exp(-np.exp(self.w[at + "A_log"]) * steps), np.zeros_like(u)
        for h in range(heads):
            state = np.zeros((u.shape[2], size))
            for t in range(n):
                state = decay[t, h] * state + steps[t, h] * np.outer(u[t, h], b[t, h])
                out[t, h] = state @ q[t, h] + self.w[at + "D"][h] * u[t, h]
        gated = (out.reshape(n, -1) * silu(z)).reshape(n, groups, -1)
        gated = gated / np.sqrt((gated * gated).mean(-1, keepdims=True) + c["rms_norm_eps"])
        return self.linear(gated.reshape(n, -1) * self.w[at + "norm.weight"], at + "out_proj")

    def glu(self, row, first, second):
        gate, up = np.split(first @ row, 2)
        return second @ (silu(gate) * up)

    def feed_forward(self, x, at):
        c, shared = self.c, [self.w[f"{at}shared_mlp.{p}_linear.weight"] for p in ("input", "output")]
        out = np.stack([self.glu(row, *shared) for row in x])
        if not c["num_local_experts"]:
            return out
        experts = [self.w[f"{at}block_sparse_moe.{p}_linear.weight"] for p in ("input", "output")]
        for row, logits in enumerate(self.linear(x, at + "block_sparse_moe.router.layer")):
            order, k = np.argsort(-logits, kind="stable"), c["num_experts_per_tok"]
            self.gap = min(self.gap, logits[order[k - 1]] - logits[order[k]])
            p = np.exp(logits[order[:k]] - logits.max())
            for e, weight in zip(order[:k], p / p.sum()):
                out[row] += weight * self.glu(x[row], experts[0][e], experts[1][e])
        return out

    def logits(self, tokens):
        c, eps, m = self.c, self.c["rms_norm_eps"], self.c["residual_multiplier"]
        x = self.w["model.embed_tokens.weight"][tokens] * c["embedding_multiplier"]
        for layer, kind in enumerate(c["layer_types"]):
            at = f"model.layers.{layer}."
            y = self.norm(x, at + "input_layernorm.weight", eps)
            x = x + m * (self.mamba(y, at + "mamba.") if kind == "mamba" else self.attention(y, at + "self_attn."))
            x = x + m * self.feed_forward(self.norm(x, at + "post_attention_layernorm.weight", eps), at)
        return self.linear(self.norm(x, "model.norm.weight", eps), "model.embed_tokens") / c["logits_scaling"]


GRANITE_NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.v_proj": "attn_v",
                 "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.o_proj": "attn_output",
                 "mamba.in_proj": "ssm_in", "mamba.conv1d": "ssm_conv1d", "mamba.norm": "ssm_norm", "mamba.out_proj": "ssm_out",
                 "block_sparse_moe.router.layer": "ffn_gate_inp", "block_sparse_moe.output_linear": "ffn_down_exps"}
GRANITE_VECTORS = {"mamba.A_log": "ssm_a", "mamba.D": "ssm_d", "mamba.dt_bias": "ssm_dt.bias", "mamba.conv1d.bias": "ssm_conv1d.bias"}


def granite_tensors(weights, c):
    """Gates and ups apart, A itself, and what GGUF files hold as matrices of one column or one row to a group."""
    out = {"token_embd.weight": weights["model.embed_tokens.weight"], "output_norm.weight": weights["model.norm.weight"]}
    shared = "_shexp" if c["num_local_experts"] else ""
    for name, x in weights.items():
        if not name.startswith("model.layers."):
            continue
        _, _, layer, part = name.split(".", 3)
        at, plain = f"blk.{layer}.", part.removesuffix(".weight")
        if part in GRANITE_VECTORS:
            x = -np.exp(x) if part.endswith("A_log") else x
            out[at + GRANITE_VECTORS[part]] = x[:, None] if part in ("mamba.A_log", "mamba.D") else x
        elif plain.endswith("input_linear"):
            kind = "_exps" if "sparse" in plain else shared
            out[f"{at}ffn_gate{kind}.weight"], out[f"{at}ffn_up{kind}.weight"] = np.split(x, 2, axis=-2)
        elif plain == "shared_mlp.output_linear":
            out[f"{at}ffn_down{shared}.weight"] = x
        else:
            x = x[:, 0] if plain == "mamba.conv1d" else x.reshape(c["mamba_n_groups"], -1) if plain == "mamba.norm" else x
            out[at + GRANITE_NAMES[plain] + ".weight"] = x
    return out


def granite_keys(w, v, c):
    arch = v["arch"]
    sizes = {"embedding_length": c["hidden_size"], "block_count": c["num_hidden_layers"], "attention.head_count": c["num_attention_heads"],
             "feed_forward_length": c["intermediate_size"], "expert_shared_feed_forward_length": c["shared_intermediate_size"],
             "rope.dimension_count": c["hidden_size"] // c["num_attention_heads"], "ssm.conv_kernel": c["mamba_d_conv"],
             "ssm.state_size": c["mamba_d_state"], "ssm.group_count": c["mamba_n_groups"],
             "ssm.inner_size": c["mamba_expand"] * c["hidden_size"], "ssm.time_step_rank": c["mamba_n_heads"]}
    if c["num_local_experts"]:
        sizes.update({"expert_count": c["num_local_experts"], "expert_used_count": c["num_experts_per_tok"]})
    for key, value in sizes.items():
        w.add(f"{arch}.{key}", gguf.U32, value)
    w.add_array(f"{arch}.attention.head_count_kv", gguf.I32,
                [c["num_key_value_heads"] if kind == "attention" else 0 for kind in c["layer_types"]])
    w.add(f"{arch}.rope.scaling.finetuned", gguf.BOOL, False)
    for key, value in (("attention.layer_norm_rms_epsilon", "rms_norm_eps"), ("embedding_scale", "embedding_multiplier"),
                       ("residual_scale", "residual_multiplier"), ("attention.scale", "attention_multiplier"),
                       ("logit_scale", "logits_scaling"), ("rope.freq_base", "rope_theta")):
        w.add(f"{arch}.{key}", gguf.F32, c[value])


LFM2_NAMES = {"operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "conv.in_proj": "shortconv.in_proj", "conv.conv": "shortconv.conv",
              "conv.out_proj": "shortconv.out_proj", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
              "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_output", "self_attn.q_layernorm": "attn_q_norm",
              "self_attn.k_layernorm": "attn_k_norm", "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up",
              "feed_forward.w2": "ffn_down", "feed_forward.gate": "ffn_gate_inp"}
EXPERTS = {"w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps"}


def lfm2_tensors(weights, _):
    out = {"token_embd.weight": weights["model.embed_tokens.weight"], "token_embd_norm.weight": weights["model.embedding_norm.weight"]}
    for name, x in weights.items():
        if not name.startswith("model.layers."):
            continue
        _, _, layer, rest = name.split(".", 3)
        part, at = rest.removesuffix(".weight"), f"blk.{layer}."
        if part.endswith("expert_bias"):
            out[at + "exp_probs_b.bias"] = x
        elif ".experts." in part:
            out.setdefault(at + EXPERTS[part.rsplit(".", 1)[1]] + ".weight", []).append(x)
        else:
            out[at + LFM2_NAMES[part] + ".weight"] = x[:, 0] if part == "conv.conv" else x
    return {name: np.stack(x) if isinstance(x, list) else x for name, x in out.items()}


def lfm2_keys(w, v, c):
    arch, heads = v["arch"], c["num_attention_heads"]
    sizes = {"embedding_length": c["hidden_size"], "block_count": c["num_hidden_layers"], "feed_forward_length": v["ffn"],
             "attention.head_count": heads, "rope.dimension_count": c["hidden_size"] // heads, "shortconv.l_cache": c["conv_L_cache"]}
    if arch == "lfm2moe":
        sizes.update({"expert_count": c["num_experts"], "expert_used_count": c["num_experts_per_tok"], "expert_gating_func": 2,
                      "expert_feed_forward_length": c["moe_intermediate_size"], "leading_dense_block_count": c["num_dense_layers"]})
    for key, value in sizes.items():
        w.add(f"{arch}.{key}", gguf.U32, value)
    w.add_array(f"{arch}.attention.head_count_kv", gguf.I32,
                [0 if kind == "conv" else c["num_key_value_heads"] for kind in c["layer_types"]])
    w.add(f"{arch}.attention.layer_norm_rms_epsilon", gguf.F32, c["norm_eps"])
    w.add(f"{arch}.rope.freq_base", gguf.F32, c["rope_theta"])


KINDS = {"lfm2": (Draw.lfm2, Lfm2, lfm2_tensors, lfm2_keys), "lfm2moe": (Draw.lfm2, Lfm2, lfm2_tensors, lfm2_keys),
         "qwen35": (Draw.qwen35, Qwen35, qwen35_tensors, qwen35_keys), "qwen35moe": (Draw.qwen35, Qwen35, qwen35_tensors, qwen35_keys),
         "granitehybrid": (Draw.granite, Granite, granite_tensors, granite_keys),
         "nemotron_h": (Draw.nemotron, Nemotron, nemotron_tensors, nemotron_keys),
         "nemotron_h_moe": (Draw.nemotron, Nemotron, nemotron_tensors, nemotron_keys)}


def write_gguf(path, name, v, weights):
    c, arch = {**BASE, **v["config"]}, v["arch"]
    w = gguf.Writer(arch)
    w.add("general.name", gguf.STR, f"golden {name}")
    w.add("general.file_type", gguf.U32, 0)
    w.add(f"{arch}.vocab_size", gguf.U32, BASE["vocab_size"])
    w.add(f"{arch}.context_length", gguf.U32, BASE["max_position_embeddings"])
    KINDS[arch][3](w, v, c)
    w.add("tokenizer.ggml.model", gguf.STR, "none")
    for tensor, x in KINDS[arch][2](weights, c).items():
        w.tensor(tensor, x)
    w.write(path)


def make(name, index, out):
    v, folder = VARIANTS[name], os.path.join(out, name)
    generator = np.random.Generator(np.random.PCG64(SEED + 100 * v.get("draw", 0) + index))
    os.makedirs(folder, exist_ok=True)
    draw, kind = KINDS[v["arch"]][:2]
    weights = draw(Draw(v, generator))
    tokens = generator.integers(0, BASE["vocab_size"], v["n"]).astype(np.int32)
    reference = kind(v, weights)
    logits = reference.logits(tokens)
    assert reference.gap > 2e-4, f"{name}: a near tie of experts, {reference.gap}; take another draw"
    write_config(folder, {**BASE, **v["config"]})
    write_safetensors(os.path.join(folder, "model.safetensors"), weights)
    write_gguf(os.path.join(folder, "model.gguf"), name, v, weights)
    write_golden(folder, tokens, logits)
    print(f"{name:10s} logits std {logits.std():.3f}, smallest gap between experts {reference.gap:.1e}")


if __name__ == "__main__":
    make_named(VARIANTS, make)
