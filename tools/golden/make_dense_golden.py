"""Golden models of the dense families behind Llama and Qwen: tiny, re-randomised, with logits from a numpy reference in double.

Usage: python3 make_dense_golden.py OUT [name ...]     (needs numpy alone)

As make_mixture_golden.py this is not transformers but a second implementation, written from the published formulas: whole
matrices, no cache, dense masks. check_transformers.py compares it with that library. Sources: the Gemma 3 report (2025) and the
model cards of SmolLM3, OLMo 2 and 3, Granite, Phi-3 and Phi-4, GLM-4, Ministral 3; sizes are odd on purpose, and small: a folder
has less than 400 KB. Every family is a class with the few lines in which it differs.
"""
import json
import os

import numpy as np

import gguf_write as gguf
import hf_to_gguf
from golden_files import make_named, write_config, write_golden, write_safetensors

SEED = 20263
COMMON = dict(bos_token_id=1, eos_token_id=2, torch_dtype="float32", max_position_embeddings=256, vocab_size=131, rms_norm_eps=1e-5)


def inverse_frequencies(dim, base):
    return base ** (-np.arange(0, dim, 2) / dim)


def yarn_frequencies(dim, base, factor, original, fast=32.0, slow=1.0):
    """Peng et al., 2023: pairs that turn more than `fast` times over the original context stay, less than `slow` are stretched."""
    def pair(turns):
        return dim * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(base))
    low, high = max(np.floor(pair(fast)), 0), min(np.ceil(pair(slow)), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
    f = inverse_frequencies(dim, base)
    return f / factor * ramp + f * (1 - ramp)


def rotate(x, angle):
    """x [n, heads, dim]: halves of the first 2 * angle.shape[1] numbers turn."""
    half = angle.shape[1]
    a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    c, s = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    return np.concatenate([a * c - b * s, b * c + a * s, rest], -1)


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


class Family:
    """The forward pass in double, of a model as its checkpoint has it; a subclass says what differs."""
    arch = None
    norm_names = ("input_layernorm", "post_attention_layernorm")  # of the width, in a layer
    head_norms = whole_norms = False
    tied = True
    paired = False  # rows of q and k are permuted in GGUF
    renamed = {}    # checkpoint's part of a name -> GGUF's, where hf_to_gguf's is not right
    activation = staticmethod(silu)
    plus_one = 0.0

    def __init__(self, config, n, rope=None):
        self.c, self.n, self.rope = {**COMMON, "tie_word_embeddings": self.tied, "hidden_act": "silu", **config}, n, rope

    # --- weights

    def norm_value(self, generator, n):
        return (0.5 + generator.random(n) - self.plus_one).astype(np.float32)

    def draw_attention(self, w, at, matrix, generator):
        c, hidden, dim = self.c, self.c["hidden_size"], self.c["head_dim"]
        n_q, n_kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
        for part, rows, cols, wide in (("q", n_q, hidden, 1.5), ("k", n_kv, hidden, 1.5), ("v", n_kv, hidden, 1), ("o", hidden, n_q, 1)):
            matrix(f"{at}self_attn.{part}_proj", rows, cols, wide)
        for part, n in ((("q", dim), ("k", dim)) if self.head_norms else (("q", n_q), ("k", n_kv)) if self.whole_norms else ()):
            w[f"{at}self_attn.{part}_norm.weight"] = self.norm_value(generator, n)

    def draw_ffn(self, at, matrix):
        hidden, ffn = self.c["hidden_size"], self.c["intermediate_size"]
        for part, rows, cols in (("gate", ffn, hidden), ("up", ffn, hidden), ("down", hidden, ffn)):
            matrix(f"{at}mlp.{part}_proj", rows, cols)

    def draw(self, generator):
        c, w = self.c, {}

        def matrix(name, rows, cols, wide=1.0):
            w[name + ".weight"] = (generator.standard_normal((rows, cols)) * wide / cols ** 0.5).astype(np.float32)

        matrix("model.embed_tokens", c["vocab_size"], c["hidden_size"], 2.0)
        if not self.tied:
            matrix("lm_head", c["vocab_size"], c["hidden_size"], 2.0)
        w["model.norm.weight"] = self.norm_value(generator, c["hidden_size"])
        for layer in range(c["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            self.draw_attention(w, at, matrix, generator)
            self.draw_ffn(at, matrix)
            for name in self.norm_names:
                w[at + name + ".weight"] = self.norm_value(generator, c["hidden_size"])
        self.w = {name: x.astype(np.float64) for name, x in w.items()}
        return w

    # --- the forward pass

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.c["rms_norm_eps"]) * (self.plus_one + self.w[name + ".weight"])

    def linear(self, x, name):
        return x @ self.w[name + ".weight"].T + self.w.get(name + ".bias", 0.0)

    def frequencies(self, layer):
        """Radians a position of the pairs that rotate."""
        return inverse_frequencies(self.c["head_dim"], self.c["rope_theta"])

    def cosine_scale(self, layer):
        return 1.0

    def window(self, layer):
        return None

    def scale(self):
        return self.c["head_dim"] ** -0.5

    def temper(self, q):
        return q

    def projections(self, x, at):
        return [self.linear(x, f"{at}self_attn.{p}_proj") for p in "qkv"]

    def attention(self, x, layer):
        c, n, dim, at = self.c, x.shape[0], self.c["head_dim"], f"model.layers.{layer}."
        q, k, value = self.projections(x, at)
        if self.whole_norms:
            q, k = self.norm(q, at + "self_attn.q_norm"), self.norm(k, at + "self_attn.k_norm")
        q, k, value = (t.reshape(n, -1, dim) for t in (q, k, value))
        if self.head_norms:
            q, k = self.norm(q, at + "self_attn.q_norm"), self.norm(k, at + "self_attn.k_norm")
        angle, stretch = np.outer(np.arange(n), self.frequencies(layer)), self.cosine_scale(layer)
        rotated = 2 * angle.shape[1]
        q, k = (np.concatenate([t[..., :rotated] * stretch, t[..., rotated:]], -1) for t in (rotate(q, angle), rotate(k, angle)))
        group = c["num_attention_heads"] // c["num_key_value_heads"]
        k, value = k.repeat(group, 1), value.repeat(group, 1)
        scores = np.einsum("ihd,jhd->hij", self.temper(q), k) * self.scale()
        i, j = np.arange(n)[:, None], np.arange(n)[None, :]
        seen = (j <= i) & (True if self.window(layer) is None else j > i - self.window(layer))
        scores = np.where(seen, scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return self.linear(np.einsum("hij,jhd->ihd", p, value).reshape(n, -1), at + "self_attn.o_proj")

    def ffn(self, x, layer):
        at = f"model.layers.{layer}.mlp."
        return self.linear(self.activation(self.linear(x, at + "gate_proj")) * self.linear(x, at + "up_proj"), at + "down_proj")

    def layer(self, x, layer):
        at = f"model.layers.{layer}."
        x = x + self.attention(self.norm(x, at + "input_layernorm"), layer)
        return x + self.ffn(self.norm(x, at + "post_attention_layernorm"), layer)

    def embed(self, tokens):
        return self.w["model.embed_tokens.weight"][tokens]

    def head(self, x):
        return x @ self.w["model.embed_tokens.weight" if self.tied else "lm_head.weight"].T

    def logits(self, tokens):
        x = self.embed(tokens)
        for layer in range(self.c["num_hidden_layers"]):
            x = self.layer(x, layer)
        return self.head(self.norm(x, "model.norm"))

    # --- files

    def gguf_name(self, name):
        parts = name.split(".", 3)
        if len(parts) == 4 and parts[3].rsplit(".", 1)[0] in self.renamed:
            part, kind = parts[3].rsplit(".", 1)
            return f"blk.{parts[2]}.{self.renamed[part]}.{kind}"
        return hf_to_gguf.gguf_name(name)

    def gguf_tensors(self, weights):
        for name, x in weights.items():
            heads = 0
            if self.paired and (".q_proj." in name or ".k_proj." in name):
                heads = self.c["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
            if "norm" in name:
                x = x + np.float32(self.plus_one)
            yield self.gguf_name(name), hf_to_gguf.permute(x, heads) if heads else x

    def gguf_keys(self, add):
        """add(key without the architecture, kind, value): what the family has beside the usual keys."""

    def rotated(self):
        return self.c["head_dim"]

    def write_gguf(self, path, name, weights):
        c, writer = self.c, gguf.Writer(self.arch)

        def add(key, kind, value):
            (writer.add_array if isinstance(value, list) else writer.add)(f"{self.arch}.{key}", kind, value)

        writer.add("general.name", gguf.STR, f"golden {name}")
        writer.add("general.file_type", gguf.U32, 0)
        for key, value in self.sizes().items():
            add(key, gguf.U32, value)
        add("attention.layer_norm_rms_epsilon", gguf.F32, c["rms_norm_eps"])
        add("rope.freq_base", gguf.F32, self.base())
        self.gguf_keys(add)
        writer.add("tokenizer.ggml.model", gguf.STR, "none")
        for tensor, x in self.gguf_tensors(weights):
            writer.tensor(tensor, x)
        writer.write(path)

    def sizes(self):
        c = self.c
        return {"context_length": c["max_position_embeddings"], "embedding_length": c["hidden_size"],
                "block_count": c["num_hidden_layers"], "feed_forward_length": c["intermediate_size"],
                "attention.head_count": c["num_attention_heads"], "attention.head_count_kv": c["num_key_value_heads"],
                "attention.key_length": c["head_dim"], "attention.value_length": c["head_dim"],
                "rope.dimension_count": self.rotated(), "vocab_size": c["vocab_size"]}

    def base(self):
        return self.c["rope_theta"]


class Gemma3(Family):
    arch, head_norms, plus_one = "gemma3", True, 1.0
    norm_names = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    renamed = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}
    activation = staticmethod(gelu_tanh)

    def __init__(self, period, config, n, branch=1.0):
        """branch: how much the halves add to the residual stream, which keeps a deep model well conditioned."""
        layers = config["num_hidden_layers"]
        self.period, self.branch = period, branch
        super().__init__({"hidden_activation": "gelu_pytorch_tanh", "attn_logit_softcapping": None, "final_logit_softcapping": None,
                          "attention_bias": False, "model_type": "gemma3_text", "rms_norm_eps": 1e-6,
                          "layer_types": ["full_attention" if self.full(i) else "sliding_attention" for i in range(layers)],
                          **config}, n)
        del self.c["hidden_act"]

    def draw(self, generator):
        w = super().draw(generator)
        for name in w:
            if "post_" in name:
                w[name] = (self.branch * (1 + w[name]) - 1).astype(np.float32)
                self.w[name] = w[name].astype(np.float64)
        return w

    def full(self, layer):
        return (layer + 1) % self.period == 0

    def rope_of(self, layer):
        """base, linear factor: in either spelling of config.json."""
        new = self.c.get("rope_parameters")
        if new:
            r = new["full_attention" if self.full(layer) else "sliding_attention"]
            return r["rope_theta"], r.get("factor", 1.0)
        return (self.c["rope_theta"], (self.c["rope_scaling"] or {}).get("factor", 1.0)) if self.full(layer) else (self.c["rope_local_base_freq"], 1.0)

    def base(self):
        return self.rope_of(self.period - 1)[0]

    def frequencies(self, layer):
        base, factor = self.rope_of(layer)
        return inverse_frequencies(self.c["head_dim"], base) / factor

    def window(self, layer):
        return None if self.full(layer) else self.c["sliding_window"]

    def scale(self):
        return self.c["query_pre_attn_scalar"] ** -0.5

    def embed(self, tokens):
        return super().embed(tokens) * self.c["hidden_size"] ** 0.5

    def layer(self, x, layer):
        at = f"model.layers.{layer}."
        x = x + self.norm(self.attention(self.norm(x, at + "input_layernorm"), layer), at + "post_attention_layernorm")
        return x + self.norm(self.ffn(self.norm(x, at + "pre_feedforward_layernorm"), layer), at + "post_feedforward_layernorm")

    def gguf_keys(self, add):
        add("attention.sliding_window", gguf.U32, self.c["sliding_window"])
        add("attention.sliding_window_pattern", gguf.U32, self.period)
        add("rope.freq_base_swa", gguf.F32, self.rope_of(0)[0])
        factor = self.rope_of(self.period - 1)[1]
        if factor != 1:
            add("rope.scaling.type", gguf.STR, "linear")
            add("rope.scaling.factor", gguf.F32, factor)


class Gemma4(Gemma3):
    """Dense. config: head_dim of layers with the window, global_head_dim of the others."""
    arch, plus_one = "gemma4", 0.0
    renamed = {**Gemma3.renamed, "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm"}

    def __init__(self, period, config, n):
        super().__init__(period, {
            "model_type": "gemma4_text", "num_kv_shared_layers": 0, "use_double_wide_mlp": False, "attention_k_eq_v": False,
            "num_global_key_value_heads": None, "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": config.get("vocab_size", 131),
            "enable_moe_block": False, "rope_parameters": {
                "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}, **config}, n)
        self.first_shared = self.c["num_hidden_layers"] - self.c["num_kv_shared_layers"]

    # what differs from layer to layer

    def dim(self, layer):
        return self.c["global_head_dim" if self.full(layer) else "head_dim"]

    def kv_heads(self, layer):
        return self.c["num_global_key_value_heads" if self.full(layer) and self.c["attention_k_eq_v"] else "num_key_value_heads"]

    def ffn_size(self, layer):
        return self.c["intermediate_size"] * (2 if layer >= self.first_shared and self.c["use_double_wide_mlp"] else 1)

    def source(self, layer):
        """The layer whose K and V this one reads."""
        if layer < self.first_shared:
            return layer
        return max(i for i in range(self.first_shared) if self.full(i) == self.full(layer))

    def draw(self, generator):
        c, w = self.c, {}
        hidden, ple = c["hidden_size"], c["hidden_size_per_layer_input"]

        def matrix(name, rows, cols, wide=1.0):
            w[name + ".weight"] = (generator.standard_normal((rows, cols)) * wide / cols ** 0.5).astype(np.float32)

        def norm(name, n):
            w[name + ".weight"] = (0.5 + generator.random(n)).astype(np.float32)

        matrix("model.embed_tokens", c["vocab_size"], hidden, 2.0)
        norm("model.norm", hidden)
        if ple:
            matrix("model.embed_tokens_per_layer", c["vocab_size"], c["num_hidden_layers"] * ple)
            matrix("model.per_layer_model_projection", c["num_hidden_layers"] * ple, hidden)
            norm("model.per_layer_projection_norm", ple)
        for layer in range(c["num_hidden_layers"]):
            at, dim, heads, kv, ffn = f"model.layers.{layer}.", self.dim(layer), c["num_attention_heads"], self.kv_heads(layer), self.ffn_size(layer)
            matrix(at + "self_attn.q_proj", heads * dim, hidden)
            matrix(at + "self_attn.k_proj", kv * dim, hidden)  # also where nothing reads it
            if not (self.full(layer) and c["attention_k_eq_v"]):
                matrix(at + "self_attn.v_proj", kv * dim, hidden)
            matrix(at + "self_attn.o_proj", hidden, heads * dim)
            for part in "qk":
                norm(f"{at}self_attn.{part}_norm", dim)
            for part, rows, cols in (("gate", ffn, hidden), ("up", ffn, hidden), ("down", hidden, ffn)):
                matrix(f"{at}mlp.{part}_proj", rows, cols)
            for name in self.norm_names + (("post_per_layer_input_norm",) if ple else ()):
                norm(at + name, hidden)
            if ple:
                matrix(at + "per_layer_input_gate", ple, hidden)
                matrix(at + "per_layer_projection", hidden, ple)
            w[at + "layer_scalar"] = (0.6 + 0.6 * generator.random(1)).astype(np.float32)
        self.w = {name: x.astype(np.float64) for name, x in w.items()}
        return w

    def frequencies(self, layer):
        f = inverse_frequencies(self.dim(layer), self.rope_of(layer)[0])
        if self.full(layer):
            f[int(self.dim(layer) * self.c["rope_parameters"]["full_attention"]["partial_rotary_factor"]) // 2:] = 0
        return f

    def rms(self, x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.c["rms_norm_eps"])

    def keys_and_values(self, x, layer):
        at, n = f"model.layers.{layer}.self_attn.", x.shape[0]
        raw = self.linear(x, at + "k_proj").reshape(n, -1, self.dim(layer))
        value = raw if at + "v_proj.weight" not in self.w else self.linear(x, at + "v_proj").reshape(raw.shape)
        return rotate(self.norm(raw, at + "k_norm"), np.outer(np.arange(n), self.frequencies(layer))), self.rms(value)

    def attention(self, x, layer):
        n, at = x.shape[0], f"model.layers.{layer}.self_attn."
        if self.source(layer) == layer:
            self.kept[layer] = self.keys_and_values(x, layer)
        k, value = (t.repeat(self.c["num_attention_heads"] // t.shape[1], 1) for t in self.kept[self.source(layer)])
        q = self.norm(self.linear(x, at + "q_proj").reshape(n, -1, self.dim(layer)), at + "q_norm")
        scores = np.einsum("ihd,jhd->hij", rotate(q, np.outer(np.arange(n), self.frequencies(layer))), k)
        i, j = np.arange(n)[:, None], np.arange(n)[None, :]
        seen = (j <= i) & (True if self.full(layer) else j > i - self.c["sliding_window"])
        scores = np.where(seen, scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return self.linear(np.einsum("hij,jhd->ihd", p, value).reshape(n, -1), at + "o_proj")

    def layer(self, x, layer):
        at = f"model.layers.{layer}."
        x = super().layer(x, layer)
        if self.inputs is not None:
            gate = gelu_tanh(self.linear(x, at + "per_layer_input_gate")) * self.inputs[:, layer]
            x = x + self.norm(self.linear(gate, at + "per_layer_projection"), at + "post_per_layer_input_norm")
        return x * self.w[at + "layer_scalar"]

    def logits(self, tokens):
        c, self.kept, self.inputs = self.c, {}, None
        ple, layers = c["hidden_size_per_layer_input"], c["num_hidden_layers"]
        if ple:
            own = self.w["model.embed_tokens_per_layer.weight"][tokens].reshape(-1, layers, ple) * ple ** 0.5
            projected = self.linear(self.embed(tokens), "model.per_layer_model_projection").reshape(own.shape) * c["hidden_size"] ** -0.5
            self.inputs = (own + self.norm(projected, "model.per_layer_projection_norm")) / 2 ** 0.5
        logits = super().logits(tokens)
        cap = c.get("final_logit_softcapping")
        return cap * np.tanh(logits / cap) if cap else logits

    # files

    TOP = {"embed_tokens_per_layer": "per_layer_token_embd", "per_layer_model_projection": "per_layer_model_proj",
           "per_layer_projection_norm": "per_layer_proj_norm"}

    def gguf_name(self, name):
        if name.endswith("layer_scalar"):
            return f"blk.{name.split('.')[2]}.layer_output_scale.weight"
        part = name.split(".")[1]
        return self.TOP[part] + ".weight" if part in self.TOP else super().gguf_name(name)

    def gguf_tensors(self, weights):
        full, turning = self.c["global_head_dim"], self.c["rope_parameters"]["full_attention"]["partial_rotary_factor"]
        yield "rope_freqs.weight", np.array([1.0 if 2 * i < full * turning else 1e30 for i in range(full // 2)], np.float32)
        dead = [f"model.layers.{i}.self_attn.{part}" for i in range(self.first_shared, self.c["num_hidden_layers"])
                for part in ("k_proj.weight", "v_proj.weight", "k_norm.weight")]
        yield from super().gguf_tensors({name: x for name, x in weights.items() if name not in dead})

    def gguf_keys(self, add):
        c, layers = self.c, range(self.c["num_hidden_layers"])
        add("attention.sliding_window", gguf.U32, c["sliding_window"])
        add("attention.sliding_window_pattern", gguf.BOOL, [not self.full(i) for i in layers])
        add("attention.shared_kv_layers", gguf.U32, c["num_kv_shared_layers"])
        add("attention.key_length_swa", gguf.U32, c["head_dim"])
        add("attention.value_length_swa", gguf.U32, c["head_dim"])
        add("rope.dimension_count_swa", gguf.U32, c["head_dim"])
        add("rope.freq_base_swa", gguf.F32, self.rope_of(0)[0])
        add("embedding_length_per_layer_input", gguf.U32, c["hidden_size_per_layer_input"])
        if c.get("final_logit_softcapping"):
            add("final_logit_softcapping", gguf.F32, c["final_logit_softcapping"])

    def sizes(self):
        c, layers = self.c, range(self.c["num_hidden_layers"])
        kv, ffn = [self.kv_heads(i) for i in layers], [self.ffn_size(i) for i in layers]
        return {**super().sizes(), "attention.key_length": c["global_head_dim"], "attention.value_length": c["global_head_dim"],
                "rope.dimension_count": c["global_head_dim"], "attention.head_count_kv": kv if len(set(kv)) > 1 else kv[0],
                "feed_forward_length": ffn if len(set(ffn)) > 1 else ffn[0]}


class Gemma4Experts(Gemma4):
    """Experts beside the dense block, whose router norms the stream by itself. fused: gate and up in one tensor of the GGUF file."""
    renamed = {**Gemma4.renamed, "pre_feedforward_layernorm_2": "pre_ffw_norm_2", "post_feedforward_layernorm_1": "post_ffw_norm_1",
               "post_feedforward_layernorm_2": "post_ffw_norm_2", "router.proj": "ffn_gate_inp"}
    PLAIN = {"router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale", "experts.down_proj": "ffn_down_exps.weight"}

    def __init__(self, period, config, n, fused):
        self.fused = fused
        super().__init__(period, {"enable_moe_block": True, **config}, n)

    def draw(self, generator):
        c, w = self.c, super().draw(generator)
        hidden, n, wide = c["hidden_size"], c["num_experts"], c["moe_intermediate_size"]
        for layer in range(c["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            w[at + "router.proj.weight"] = (generator.standard_normal((n, hidden)) * 2.0).astype(np.float32)  # a root of the width wider
            w[at + "router.scale"] = (0.5 + generator.random(hidden)).astype(np.float32)
            w[at + "router.per_expert_scale"] = (0.4 + 1.2 * generator.random(n)).astype(np.float32)
            for part, rows, cols in (("gate_up_proj", 2 * wide, hidden), ("down_proj", hidden, wide)):
                w[f"{at}experts.{part}"] = (generator.standard_normal((n, rows, cols)) / cols ** 0.5).astype(np.float32)
            for name in ("pre_feedforward_layernorm_2", "post_feedforward_layernorm_1", "post_feedforward_layernorm_2"):
                w[f"{at}{name}.weight"] = (0.5 + generator.random(hidden)).astype(np.float32)
        self.w = {name: x.astype(np.float64) for name, x in w.items()}
        return w

    def experts(self, x, normed, at):
        c, out = self.c, np.zeros_like(x)
        logits = self.linear(self.rms(x) * self.w[at + "router.scale"] * c["hidden_size"] ** -0.5, at + "router.proj")
        for row, score in enumerate(logits):
            order, k = np.argsort(-score, kind="stable"), c["top_k_experts"]
            assert score[order[k - 1]] - score[order[k]] > 2e-4, "a near tie of experts; take another number of tokens"
            p = np.exp(score - score.max())
            p /= p.sum()
            for e in order[:k]:
                gate, up = np.split(self.w[at + "experts.gate_up_proj"][e] @ normed[row], 2)
                weight = p[e] / p[order[:k]].sum() * self.w[at + "router.per_expert_scale"][e]
                out[row] += weight * (self.w[at + "experts.down_proj"][e] @ (gelu_tanh(gate) * up))
        return out

    def ffn(self, x, layer):
        """x is the dense block's input; the others read the stream, which layer() keeps."""
        at = f"model.layers.{layer}."
        dense = self.norm(super().ffn(x, layer), at + "post_feedforward_layernorm_1")
        experts = self.experts(self.stream, self.norm(self.stream, at + "pre_feedforward_layernorm_2"), at)
        return dense + self.norm(experts, at + "post_feedforward_layernorm_2")

    def norm(self, x, name):
        if name.endswith(".pre_feedforward_layernorm"):
            self.stream = x
        return super().norm(x, name)

    def gguf_keys(self, add):
        super().gguf_keys(add)
        add("expert_count", gguf.U32, self.c["num_experts"])
        add("expert_used_count", gguf.U32, self.c["top_k_experts"])
        add("expert_feed_forward_length", gguf.U32, self.c["moe_intermediate_size"])

    def gguf_tensors(self, weights):
        experts = {}
        for name in [n for n in weights if n.split(".", 3)[-1] in self.PLAIN or n.endswith("gate_up_proj")]:
            experts[name] = weights[name]
        yield from super().gguf_tensors({name: x for name, x in weights.items() if name not in experts})
        for name, x in experts.items():
            at, part = f"blk.{name.split('.')[2]}.", name.split(".", 3)[3]
            if part in self.PLAIN:
                yield at + self.PLAIN[part], x
            elif self.fused:
                yield at + "ffn_gate_up_exps.weight", x
            else:
                yield from zip((at + "ffn_gate_exps.weight", at + "ffn_up_exps.weight"), np.split(x, 2, axis=1))


class SmolLM3(Family):
    arch, paired = "smollm3", True

    def __init__(self, config, n):
        layers = config["num_hidden_layers"]
        super().__init__({"model_type": "smollm3", "attention_bias": False, "mlp_bias": False, "use_sliding_window": False,
                          "no_rope_layer_interval": 4, "no_rope_layers": [int((i + 1) % 4 != 0) for i in range(layers)],
                          "pad_token_id": 0, **config}, n)

    def frequencies(self, layer):
        return super().frequencies(layer) * self.c["no_rope_layers"][layer]


class Olmo2(Family):
    """Olmo 3 where there is a window."""
    arch, whole_norms, tied = "olmo2", True, False
    norm_names = ("post_attention_layernorm", "post_feedforward_layernorm")
    renamed = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}

    def __init__(self, config, n):
        layers = config["num_hidden_layers"]
        more = {"model_type": "olmo2"} if "sliding_window" not in config else {
            "model_type": "olmo3", "layer_types": ["sliding_attention" if (i + 1) % 4 else "full_attention" for i in range(layers)]}
        super().__init__({"attention_bias": False, "pad_token_id": 0, **more, **config}, n)

    def window(self, layer):
        return self.c["sliding_window"] if (layer + 1) % 4 and "sliding_window" in self.c else None

    def stretched(self, layer):
        return "rope_scaling" in self.c and self.window(layer) is None

    def frequencies(self, layer):
        if not self.stretched(layer):
            return super().frequencies(layer)
        s = self.c["rope_scaling"]
        return yarn_frequencies(self.c["head_dim"], self.c["rope_theta"], s["factor"], s["original_max_position_embeddings"])

    def cosine_scale(self, layer):
        return 0.1 * np.log(self.c["rope_scaling"]["factor"]) + 1 if self.stretched(layer) else 1.0

    def layer(self, x, layer):
        at = f"model.layers.{layer}."
        x = x + self.norm(self.attention(x, layer), at + "post_attention_layernorm")
        return x + self.norm(self.ffn(x, layer), at + "post_feedforward_layernorm")

    def gguf_keys(self, add):
        if "sliding_window" in self.c:
            add("attention.sliding_window", gguf.U32, self.c["sliding_window"])
            add("attention.sliding_window_pattern", gguf.BOOL, [t == "sliding_attention" for t in self.c["layer_types"]])
        if "rope_scaling" in self.c:
            s = self.c["rope_scaling"]
            add("rope.scaling.type", gguf.STR, "yarn")
            add("rope.scaling.factor", gguf.F32, s["factor"])
            add("rope.scaling.original_context_length", gguf.U32, s["original_max_position_embeddings"])


class Granite(Family):
    arch, paired = "granite", True

    def __init__(self, config, n):
        super().__init__({"model_type": "granite", "attention_bias": False, "mlp_bias": False, **config}, n)

    def embed(self, tokens):
        return super().embed(tokens) * self.c["embedding_multiplier"]

    def scale(self):
        return self.c["attention_multiplier"]

    def layer(self, x, layer):
        at, r = f"model.layers.{layer}.", self.c["residual_multiplier"]
        x = x + r * self.attention(self.norm(x, at + "input_layernorm"), layer)
        return x + r * self.ffn(self.norm(x, at + "post_attention_layernorm"), layer)

    def head(self, x):
        return super().head(x) / self.c["logits_scaling"]

    def gguf_keys(self, add):
        for key, field in (("embedding_scale", "embedding_multiplier"), ("residual_scale", "residual_multiplier"),
                           ("attention.scale", "attention_multiplier"), ("logit_scale", "logits_scaling")):
            add(key, gguf.F32, self.c[field])


class FusedFfn(Family):
    """Gate over up in one matrix."""

    def draw_ffn(self, at, matrix):
        hidden, ffn = self.c["hidden_size"], self.c["intermediate_size"]
        matrix(at + "mlp.gate_up_proj", 2 * ffn, hidden)
        matrix(at + "mlp.down_proj", hidden, ffn)

    def ffn(self, x, layer):
        at = f"model.layers.{layer}.mlp."
        gate, up = np.split(self.linear(x, at + "gate_up_proj"), 2, -1)
        return self.linear(silu(gate) * up, at + "down_proj")


class Phi3(FusedFfn):
    arch = "phi3"
    renamed = {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}

    def __init__(self, config, n, tied=False):
        self.tied = tied
        super().__init__({"model_type": "phi3", "attention_bias": False, "pad_token_id": 0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
                          **config}, n)

    def draw_attention(self, w, at, matrix, generator):
        c, dim = self.c, self.c["head_dim"]
        n_q, n_kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
        matrix(at + "self_attn.qkv_proj", n_q + 2 * n_kv, c["hidden_size"], 1.4)
        matrix(at + "self_attn.o_proj", c["hidden_size"], n_q)

    def projections(self, x, at):
        dim = self.c["head_dim"]
        n_q, n_kv = self.c["num_attention_heads"] * dim, self.c["num_key_value_heads"] * dim
        return np.split(self.linear(x, at + "self_attn.qkv_proj"), [n_q, n_q + n_kv], -1)

    def rotated(self):
        return int(self.c["head_dim"] * self.c.get("partial_rotary_factor", 1.0))

    def window(self, layer):
        return self.c.get("sliding_window")

    def frequencies(self, layer):
        f, s = inverse_frequencies(self.rotated(), self.c["rope_theta"]), self.c.get("rope_scaling")
        if not s:
            return f
        return f / np.array(s["long_factor" if self.n > self.c["original_max_position_embeddings"] else "short_factor"])

    def cosine_scale(self, layer):
        original = self.c.get("original_max_position_embeddings", self.c["max_position_embeddings"])
        stretch = self.c["max_position_embeddings"] / original
        return np.sqrt(1 + np.log(stretch) / np.log(original)) if self.c.get("rope_scaling") and stretch > 1 else 1.0

    def gguf_keys(self, add):
        add("attention.sliding_window", gguf.U32, self.c.get("sliding_window") or 0)
        if self.c.get("rope_scaling"):
            add("rope.scaling.original_context_length", gguf.U32, self.c["original_max_position_embeddings"])
            add("rope.scaling.attn_factor", gguf.F32, self.cosine_scale(0))

    def gguf_tensors(self, weights):
        for which in ("long", "short") if self.c.get("rope_scaling") else ():
            yield f"rope_factors_{which}.weight", np.array(self.c["rope_scaling"][f"{which}_factor"], np.float32)
        yield from super().gguf_tensors(weights)


class Glm4(FusedFfn):
    """Rotates neighbours; here the numbers of a head are brought into halves first."""
    arch, tied = "glm4", False
    norm_names = ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")
    renamed = {"post_self_attn_layernorm": "post_attention_norm", "post_attention_layernorm": "ffn_norm",
               "post_mlp_layernorm": "post_ffw_norm", "mlp.gate_up_proj": "ffn_up"}

    def __init__(self, config, n):
        super().__init__({"model_type": "glm4", "attention_bias": True, "pad_token_id": 0, "partial_rotary_factor": 0.5, **config}, n)

    def draw_attention(self, w, at, matrix, generator):
        super().draw_attention(w, at, matrix, generator)
        for part, heads in (("q", "num_attention_heads"), ("k", "num_key_value_heads"), ("v", "num_key_value_heads")):
            w[f"{at}self_attn.{part}_proj.bias"] = (generator.standard_normal(self.c[heads] * self.c["head_dim"]) * 0.2).astype(np.float32)

    def rotated(self):
        return self.c["head_dim"] // 2

    def frequencies(self, layer):
        return inverse_frequencies(self.rotated(), self.c["rope_theta"])

    def projections(self, x, at):
        """A dot product does not mind the order of a head's numbers, as long as q's and k's is the same."""
        q, k, value = super().projections(x, at)
        dim, turned = self.c["head_dim"], self.rotated()
        order = np.concatenate([np.arange(0, turned, 2), np.arange(1, turned, 2), np.arange(turned, dim)])
        return [t.reshape(t.shape[0], -1, dim)[..., order].reshape(t.shape) for t in (q, k)] + [value]

    def layer(self, x, layer):
        at = f"model.layers.{layer}."
        x = x + self.norm(self.attention(self.norm(x, at + "input_layernorm"), layer), at + "post_self_attn_layernorm")
        return x + self.norm(self.ffn(self.norm(x, at + "post_attention_layernorm"), layer), at + "post_mlp_layernorm")


class Ministral3(Family):
    arch, paired, tied = "mistral3", True, False

    def __init__(self, config, n):
        super().__init__({"model_type": "ministral3", "attention_bias": False, "sliding_window": None, **config}, n)

    def frequencies(self, layer):
        r = self.c["rope_parameters"]
        return yarn_frequencies(self.c["head_dim"], r["rope_theta"], r["factor"], r["original_max_position_embeddings"])

    def temper(self, q):
        r = self.c["rope_parameters"]
        periods = np.floor(np.arange(q.shape[0]) / r["original_max_position_embeddings"])
        return q * (1 + r["llama_4_scaling_beta"] * np.log(1 + periods))[:, None, None]

    def base(self):
        return self.c["rope_parameters"]["rope_theta"]

    def gguf_keys(self, add):
        r = self.c["rope_parameters"]
        add("rope.scaling.type", gguf.STR, "yarn")
        add("rope.scaling.factor", gguf.F32, r["factor"])
        add("rope.scaling.original_context_length", gguf.U32, r["original_max_position_embeddings"])
        add("rope.scaling.yarn_beta_fast", gguf.F32, r["beta_fast"])
        add("rope.scaling.yarn_beta_slow", gguf.F32, r["beta_slow"])
        add("rope.scaling.yarn_log_multiplier", gguf.F32, r["mscale_all_dim"])
        add("attention.temperature_scale", gguf.F32, r["llama_4_scaling_beta"])


VARIANTS = {
    "gemma3": Gemma3(3, dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=42,
                             num_hidden_layers=4, sliding_window=5, query_pre_attn_scalar=16, rope_theta=1e6, rope_local_base_freq=1e4,
                             rope_scaling={"rope_type": "linear", "factor": 8.0}), 29),
    # as the 27B: 62 layers, scores scaled by width / heads; config.json as transformers 5 writes it
    "gemma3-27b": Gemma3(6, dict(hidden_size=8, num_attention_heads=2, num_key_value_heads=1, head_dim=6, intermediate_size=6, vocab_size=67,
                                 num_hidden_layers=62, sliding_window=7, query_pre_attn_scalar=4, rope_parameters={
                                     "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                     "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}), 23, branch=0.2),
    "smollm3": SmolLM3(dict(hidden_size=30, num_attention_heads=3, num_key_value_heads=1, head_dim=14, intermediate_size=44,
                            num_hidden_layers=5, rope_theta=5e6), 31),
    "olmo2": Olmo2(dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=4, head_dim=10, intermediate_size=46,
                        num_hidden_layers=3, rope_theta=5e5), 29),
    "olmo3": Olmo2(dict(hidden_size=30, num_attention_heads=3, num_key_value_heads=3, head_dim=10, intermediate_size=36,
                        num_hidden_layers=5, rope_theta=5e5, sliding_window=6, rope_scaling={
                            "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32}), 45),
    "granite": Granite(dict(hidden_size=36, num_attention_heads=6, num_key_value_heads=2, head_dim=6, intermediate_size=50,
                            num_hidden_layers=3, rope_theta=1e4, embedding_multiplier=12.0, residual_multiplier=0.22,
                            attention_multiplier=0.125, logits_scaling=3.0), 29),
    "phi4": Phi3(dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=10, intermediate_size=52,
                      num_hidden_layers=3, rope_theta=2.5e5, original_max_position_embeddings=256, rope_scaling=None,
                      sliding_window=None), 29),
    # the long list: more tokens than the original context; three quarters of a head turn
    "phi4-mini": Phi3(dict(hidden_size=48, num_attention_heads=3, num_key_value_heads=1, head_dim=16, intermediate_size=40,
                           num_hidden_layers=3, rope_theta=1e4, partial_rotary_factor=0.75, original_max_position_embeddings=24,
                           sliding_window=200, rope_scaling={"type": "longrope", "long_factor": [1.0, 1.5, 2.25, 4.0, 7.5, 11.0],
                                                             "short_factor": [1.0, 1.02, 1.05, 1.1, 1.2, 1.4]}), 53, tied=True),
    "glm4": Glm4(dict(hidden_size=40, num_attention_heads=5, num_key_value_heads=1, head_dim=12, intermediate_size=44,
                      num_hidden_layers=3, rope_theta=1e4), 27),
    "ministral3": Ministral3(dict(hidden_size=40, num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=48,
                                  num_hidden_layers=3, rope_parameters={
                                      "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 8,
                                      "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                                      "llama_4_scaling_beta": 0.1}), 41),
    # as 12B and 31B: values are keys where all is seen
    "gemma4": Gemma4(2, dict(hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=12, global_head_dim=16,
                             attention_k_eq_v=True, num_global_key_value_heads=1, intermediate_size=36, num_hidden_layers=4,
                             sliding_window=5, final_logit_softcapping=2.0), 29),
    # as E2B and E4B: vectors for each layer, shared K and V with sources apart
    "gemma4-e2b": Gemma4(3, dict(hidden_size=24, num_attention_heads=4, num_key_value_heads=1, head_dim=8, global_head_dim=16,
                                 intermediate_size=20, use_double_wide_mlp=True, num_kv_shared_layers=2, num_hidden_layers=6,
                                 hidden_size_per_layer_input=8, sliding_window=5, final_logit_softcapping=3.0, vocab_size=101), 29),
    # as 26B-A4B: 2 of 5 experts in each layer
    "gemma4-moe": Gemma4Experts(2, dict(hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=12, global_head_dim=16,
                                        attention_k_eq_v=True, num_global_key_value_heads=1, intermediate_size=20, num_hidden_layers=4,
                                        sliding_window=5, final_logit_softcapping=2.0, num_experts=5, top_k_experts=2,
                                        moe_intermediate_size=14, vocab_size=101), 31, True),
}


def make(name, index, out):
    family, folder = VARIANTS[name], os.path.join(out, name)
    generator = np.random.Generator(np.random.PCG64(SEED + index))
    os.makedirs(folder, exist_ok=True)
    weights = family.draw(generator)
    tokens = generator.integers(0, family.c["vocab_size"], family.n).astype(np.int32)
    logits = family.logits(tokens)
    write_config(folder, family.c)
    write_safetensors(os.path.join(folder, "model.safetensors"), weights)
    family.write_gguf(os.path.join(folder, "model.gguf"), name, weights)
    write_golden(folder, tokens, logits)
    size = sum(os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder))
    print(f"{name:12s} logits std {logits.std():.3f}, {size / 1024:.0f} KB")


if __name__ == "__main__":
    make_named(VARIANTS, make)
