"""Golden embedding models and rerankers: tiny, re-randomised, with vectors and scores from a numpy reference in double.

Usage: python3 make_embedder_golden.py OUT [name ...]     (needs numpy alone)

As make_dense_golden.py this is not transformers but a second implementation, written from the published descriptions: BERT
(Devlin et al., 2018) and XLM-R with learned positions, Nomic Embed (Nussbaum et al., 2024), the model cards of Qwen3-Embedding,
Qwen3-Reranker, EmbeddingGemma, bge-m3 and bge-reranker-v2-m3. check_transformers.py compares the vectors with that library.
A folder has model.gguf, the same as a sentence-transformers folder, and golden.safetensors: tokens of some texts one behind the
other, their lengths, and a vector (or one score) for each. Sizes are odd on purpose.
"""
import json
import os
import sys
from math import erf

import numpy as np

import gguf_write as gguf
from golden_files import write_safetensors
from make_dense_golden import Family, Gemma3, inverse_frequencies, rotate, silu

SEED = 20264
LENGTHS = (1, 2, 17, 40)
POOLING = {"mean": 1, "cls": 2, "last": 3, "rank": 4}
WORDS = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "last": "pooling_mode_lasttoken"}


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)))


def unit(x):
    return x / np.sqrt((x * x).sum())


def pool(rows, kind):
    return rows.mean(0) if kind == "mean" else rows[0] if kind == "cls" else rows[-1]


def softmax(x):
    p = np.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


class Embedder:
    """What all models here share: how vectors come from rows, and what the folder says of it."""
    pooling = "mean"

    def vector(self, tokens):
        return unit(pool(self.hidden(tokens), self.pooling))

    def golden(self, generator):
        low, high = 5, self.c["vocab_size"]
        texts = [generator.integers(low, high, n) for n in LENGTHS]
        return {"tokens": np.concatenate(texts).astype(np.int32), "lengths": np.array(LENGTHS, np.int32),
                "vectors": np.stack([self.vector(t) for t in texts]).astype(np.float32)}

    def write_folder(self, path, weights):
        write_safetensors(os.path.join(path, "model.safetensors"), weights)
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
            json.dump(self.c, f, indent=1)
        if self.pooling in WORDS:
            os.makedirs(os.path.join(path, "1_Pooling"), exist_ok=True)
            with open(os.path.join(path, "1_Pooling", "config.json"), "w", encoding="utf-8") as f:
                json.dump({"word_embedding_dimension": self.c.get("hidden_size", self.c.get("n_embd")),
                           **{key: word == self.pooling for word, key in WORDS.items()}}, f, indent=1)


# --- decoders


class Qwen3(Embedder, Family):
    arch, head_norms, pooling = "qwen3", True, "last"

    def __init__(self, config):
        super().__init__({"model_type": "qwen3", "attention_bias": False, "use_sliding_window": False, "rope_theta": 1e6,
                          "max_window_layers": 2, "sliding_window": None, "architectures": ["Qwen3Model"], **config}, 0)

    def hidden(self, tokens):
        x = self.embed(tokens)
        for layer in range(self.c["num_hidden_layers"]):
            x = self.layer(x, layer)
        return self.norm(x, "model.norm")

    def gguf_keys(self, add):
        add("pooling_type", gguf.U32, POOLING[self.pooling])

    def write_folder(self, path, weights):
        super().write_folder(path, {name.removeprefix("model."): x for name, x in weights.items()})


class Qwen3Reranker(Qwen3):
    """The head's two rows, of yes and no, as converters write them."""
    pooling = "rank"

    def draw(self, generator):
        w = super().draw(generator)
        w["score.weight"] = generator.standard_normal((2, self.c["hidden_size"])).astype(np.float32) * np.float32(0.3)
        self.w["score.weight"] = w["score.weight"].astype(np.float64)
        return w

    def vector(self, tokens):
        return softmax(self.hidden(tokens)[-1] @ self.w["score.weight"].T)[:1]

    def gguf_name(self, name):
        return "cls.output.weight" if name == "score.weight" else super().gguf_name(name)


class EmbeddingGemma(Embedder, Gemma3):
    """Every row sees all others, or those at most half the window away; two products behind the mean."""
    arch = "gemma-embedding"

    def __init__(self, period, config):
        super().__init__(period, {"use_bidirectional_attention": True, "architectures": ["Gemma3TextModel"], **config}, 0)

    def draw(self, generator):
        w, c = super().draw(generator), self.c
        for name, rows, cols in (("2_Dense", 2 * c["hidden_size"] + 1, c["hidden_size"]),
                                 ("3_Dense", c["hidden_size"], 2 * c["hidden_size"] + 1)):
            w[name] = (generator.standard_normal((rows, cols)) / cols ** 0.5).astype(np.float32)
            self.w[name] = w[name].astype(np.float64)
        return w

    def attention(self, x, layer):
        c, n, dim, at = self.c, x.shape[0], self.c["head_dim"], f"model.layers.{layer}.self_attn."
        q, k, v = (self.linear(x, f"{at}{p}_proj").reshape(n, -1, dim) for p in "qkv")
        angle = np.outer(np.arange(n), self.frequencies(layer))
        q, k = rotate(self.norm(q, at + "q_norm"), angle), rotate(self.norm(k, at + "k_norm"), angle)
        group = c["num_attention_heads"] // c["num_key_value_heads"]
        scores = np.einsum("ihd,jhd->hij", q, k.repeat(group, 1)) * self.scale()
        i, j = np.arange(n)[:, None], np.arange(n)[None, :]
        if self.window(layer) is not None:
            scores = np.where(abs(i - j) <= self.window(layer) // 2, scores, -np.inf)
        return self.linear(np.einsum("hij,jhd->ihd", softmax(scores), v.repeat(group, 1)).reshape(n, -1), at + "o_proj")

    def hidden(self, tokens):
        x = self.embed(tokens)
        for layer in range(self.c["num_hidden_layers"]):
            x = self.layer(x, layer)
        return self.norm(x, "model.norm")

    def vector(self, tokens):
        return unit(self.w["3_Dense"] @ (self.w["2_Dense"] @ self.hidden(tokens).mean(0)))

    def gguf_name(self, name):
        return {"2_Dense": "dense_2.weight", "3_Dense": "dense_3.weight"}.get(name) or super().gguf_name(name)

    def gguf_keys(self, add):
        super().gguf_keys(add)
        add("pooling_type", gguf.U32, POOLING["mean"])
        wide = self.w["2_Dense"].shape
        for key, n in (("dense_2_feat_in", wide[1]), ("dense_2_feat_out", wide[0]), ("dense_3_feat_in", wide[0]),
                       ("dense_3_feat_out", wide[1])):
            add(key, gguf.U32, n)

    def write_folder(self, path, weights):
        for name in ("2_Dense", "3_Dense"):
            os.makedirs(os.path.join(path, name), exist_ok=True)
            write_safetensors(os.path.join(path, name, "model.safetensors"), {"linear.weight": weights[name]})
            with open(os.path.join(path, name, "config.json"), "w", encoding="utf-8") as f:
                json.dump({"in_features": weights[name].shape[1], "out_features": weights[name].shape[0], "bias": False,
                           "activation_function": "torch.nn.modules.linear.Identity"}, f, indent=1)
        super().write_folder(path, {name.removeprefix("model."): x for name, x in weights.items() if "Dense" not in name})


# --- encoders


class Bert(Embedder):
    """Learned positions, norms behind the halves. first: the position of a text's first token in the table (XLM-R: 2)."""
    arch, first, prefix = "bert", 0, ""
    top = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
           "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
           "classifier.dense": "cls", "classifier.out_proj": "cls.output"}
    parts = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
             "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
             "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}
    at = "encoder.layer.%u."

    def __init__(self, pooling, config):
        self.pooling = pooling
        self.c = {"architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu", "layer_norm_eps": 1e-12,
                  "position_embedding_type": "absolute", "type_vocab_size": 2, "pad_token_id": 0, "vocab_size": 131,
                  "max_position_embeddings": 48, "torch_dtype": "float32", **config}

    def draw(self, generator):
        c, w = self.c, {}
        hidden, ffn = c["hidden_size"], c["intermediate_size"]

        def matrix(name, rows, cols, wide=1.0, bias=True):
            w[name + ".weight"] = (generator.standard_normal((rows, cols)) * wide / cols ** 0.5).astype(np.float32)
            if bias:
                w[name + ".bias"] = (generator.standard_normal(rows) * 0.3).astype(np.float32)

        def norm(name):
            w[name + ".weight"] = (0.5 + generator.random(hidden)).astype(np.float32)
            w[name + ".bias"] = (generator.standard_normal(hidden) * 0.3).astype(np.float32)

        self.draw_all(matrix, norm, hidden, ffn)
        self.w = {name: x.astype(np.float64) for name, x in w.items()}
        return w

    def draw_all(self, matrix, norm, hidden, ffn):
        c = self.c
        for name, rows in (("word", c["vocab_size"]), ("position", c["max_position_embeddings"]), ("token_type", c["type_vocab_size"])):
            matrix(f"embeddings.{name}_embeddings", rows, hidden, 3.0, False)
        norm("embeddings.LayerNorm")
        for layer in range(c["num_hidden_layers"]):
            at = self.at % layer
            for part in ("query", "key", "value"):
                matrix(f"{at}attention.self.{part}", hidden, hidden, 1.5)
            matrix(at + "attention.output.dense", hidden, hidden)
            norm(at + "attention.output.LayerNorm")
            matrix(at + "intermediate.dense", ffn, hidden, 1.5)
            matrix(at + "output.dense", hidden, ffn)
            norm(at + "output.LayerNorm")
        if self.pooling == "rank":
            matrix("classifier.dense", hidden, hidden)
            matrix("classifier.out_proj", 1, hidden, 2.0)
        else:
            matrix("pooler.dense", hidden, hidden)  # that nothing reads

    def linear(self, x, name):
        return x @ self.w[name + ".weight"].T + self.w.get(name + ".bias", 0.0)

    def norm(self, x, name):
        centred = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((centred ** 2).mean(-1, keepdims=True) + self.c.get("layer_norm_eps", self.c.get("layer_norm_epsilon")))
        return centred / scale * self.w[name + ".weight"] + self.w[name + ".bias"]

    def attend(self, q, k, v):
        n, hidden = q.shape
        heads = self.c.get("num_attention_heads", self.c.get("n_head"))
        q, k, v = (t.reshape(n, heads, -1) for t in (q, k, v))
        q, k = self.turn(q), self.turn(k)
        p = softmax(np.einsum("ihd,jhd->hij", q, k) / (hidden // heads) ** 0.5)
        return np.einsum("hij,jhd->ihd", p, v).reshape(n, hidden)

    def turn(self, x):
        return x

    def hidden(self, tokens):
        w, n = self.w, len(tokens)
        x = (w["embeddings.word_embeddings.weight"][tokens] + w["embeddings.token_type_embeddings.weight"][0]
             + w["embeddings.position_embeddings.weight"][self.first:self.first + n])
        x = self.norm(x, "embeddings.LayerNorm")
        for layer in range(self.c["num_hidden_layers"]):
            at = self.at % layer
            q, k, v = (self.linear(x, f"{at}attention.self.{part}") for part in ("query", "key", "value"))
            x = self.norm(x + self.linear(self.attend(q, k, v), at + "attention.output.dense"), at + "attention.output.LayerNorm")
            y = self.linear(gelu(self.linear(x, at + "intermediate.dense")), at + "output.dense")
            x = self.norm(x + y, at + "output.LayerNorm")
        return x

    def vector(self, tokens):
        if self.pooling != "rank":
            return super().vector(tokens)
        x = np.tanh(self.linear(self.hidden(tokens)[0], "classifier.dense"))
        return 1 / (1 + np.exp(-self.linear(x, "classifier.out_proj")))

    # files

    def gguf_name(self, name):
        base, kind = name.rsplit(".", 1)
        if base in self.top:
            return f"{self.top[base]}.{kind}"
        words = base.split(".", 3)
        return f"blk.{words[2]}.{self.parts[words[3]]}.{kind}"

    def gguf_tensors(self, weights):
        for name, x in weights.items():
            if not name.startswith("pooler."):
                yield self.gguf_name(name), x[self.first:] if "position" in name else x

    def gguf_sizes(self):
        c = self.c
        return {"context_length": c["max_position_embeddings"] - self.first, "embedding_length": c["hidden_size"],
                "block_count": c["num_hidden_layers"], "feed_forward_length": c["intermediate_size"],
                "attention.head_count": c["num_attention_heads"]}

    def write_gguf(self, path, name, weights):
        writer = gguf.Writer(self.arch)
        writer.add("general.name", gguf.STR, f"golden {name}")
        for key, value in {**self.gguf_sizes(), "pooling_type": POOLING[self.pooling]}.items():
            writer.add(f"{self.arch}.{key}", gguf.U32, value)
        writer.add(f"{self.arch}.attention.layer_norm_epsilon", gguf.F32, self.c.get("layer_norm_eps", self.c.get("layer_norm_epsilon")))
        writer.add(f"{self.arch}.attention.causal", gguf.BOOL, False)
        self.gguf_keys(writer)
        writer.add("tokenizer.ggml.model", gguf.STR, "none")
        for tensor, x in self.gguf_tensors(weights):
            writer.tensor(tensor, x)
        writer.write(path)

    def gguf_keys(self, writer):
        """What the model has beside the usual keys."""

    def write_folder(self, path, weights):
        classifies = self.pooling == "rank"
        super().write_folder(path, {(n if n.startswith("classifier.") else self.prefix + n) if classifies else n: x
                                    for n, x in weights.items()})


class XlmRoberta(Bert):
    first, prefix = 2, "roberta."

    def __init__(self, pooling, config):
        kind = "ForSequenceClassification" if pooling == "rank" else "Model"
        super().__init__(pooling, {"architectures": ["XLMRoberta" + kind], "model_type": "xlm-roberta", "layer_norm_eps": 1e-5,
                                   "type_vocab_size": 1, "pad_token_id": 1, "max_position_embeddings": 50,
                                   **({"num_labels": 1} if pooling == "rank" else {}), **config})


class Nomic(Bert):
    """RoPE in halves instead of positions, SwiGLU, no biases but those of the norms; q, k and v in one matrix."""
    arch, at = "nomic-bert", "encoder.layers.%u."
    top = {"embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types", "emb_ln": "token_embd_norm"}
    parts = {"attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output", "norm1": "attn_output_norm", "mlp.fc11": "ffn_up",
             "mlp.fc12": "ffn_gate", "mlp.fc2": "ffn_down", "norm2": "layer_output_norm"}

    def __init__(self, config):
        self.pooling = "mean"
        self.c = {"architectures": ["NomicBertModel"], "model_type": "nomic_bert", "activation_function": "swiglu", "layer_norm_epsilon": 1e-12,
                  "type_vocab_size": 2, "pad_token_id": 0, "vocab_size": 131, "n_positions": 48, "torch_dtype": "float32", "prenorm": False,
                  "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "rotary_emb_fraction": 1.0,
                  "rotary_emb_base": 1000, "rotary_emb_interleaved": False, "rotary_scaling_factor": None, **config}

    def draw(self, generator):
        self.c["hidden_size"], self.c["intermediate_size"] = self.c["n_embd"], self.c["n_inner"]
        weights = super().draw(generator)
        del self.c["hidden_size"], self.c["intermediate_size"]
        return weights

    def draw_all(self, matrix, norm, hidden, ffn):
        for name, rows in (("word", self.c["vocab_size"]), ("token_type", self.c["type_vocab_size"])):
            matrix(f"embeddings.{name}_embeddings", rows, hidden, 3.0, False)
        norm("emb_ln")
        for layer in range(self.c["n_layer"]):
            at = self.at % layer
            matrix(at + "attn.Wqkv", 3 * hidden, hidden, 1.5, False)
            matrix(at + "attn.out_proj", hidden, hidden, 1, False)
            norm(at + "norm1")
            for name, rows, cols in (("fc11", ffn, hidden), ("fc12", ffn, hidden), ("fc2", hidden, ffn)):
                matrix(f"{at}mlp.{name}", rows, cols, 1.5, False)
            norm(at + "norm2")

    def turn(self, x):
        return rotate(x, np.outer(np.arange(x.shape[0]), inverse_frequencies(x.shape[2], self.c["rotary_emb_base"])))

    def hidden(self, tokens):
        x = self.norm(self.w["embeddings.word_embeddings.weight"][tokens] + self.w["embeddings.token_type_embeddings.weight"][0], "emb_ln")
        for layer in range(self.c["n_layer"]):
            at = self.at % layer
            q, k, v = np.split(self.linear(x, at + "attn.Wqkv"), 3, axis=1)
            x = self.norm(x + self.linear(self.attend(q, k, v), at + "attn.out_proj"), at + "norm1")
            y = self.linear(self.linear(x, at + "mlp.fc11") * silu(self.linear(x, at + "mlp.fc12")), at + "mlp.fc2")
            x = self.norm(x + y, at + "norm2")
        return x

    def gguf_sizes(self):
        c = self.c
        return {"context_length": c["n_positions"], "embedding_length": c["n_embd"], "block_count": c["n_layer"],
                "feed_forward_length": c["n_inner"], "attention.head_count": c["n_head"]}

    def gguf_keys(self, writer):
        writer.add("nomic-bert.rope.freq_base", gguf.F32, self.c["rotary_emb_base"])


DECODER = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
ENCODER = dict(hidden_size=30, intermediate_size=46, num_hidden_layers=2, num_attention_heads=3)
MODELS = {
    "embed-qwen3": lambda: Qwen3(DECODER),
    "rerank-qwen3": lambda: Qwen3Reranker(DECODER),
    "embed-gemma": lambda: EmbeddingGemma(3, dict(
        hidden_size=20, intermediate_size=36, num_hidden_layers=4, num_attention_heads=3, num_key_value_heads=1, head_dim=16,
        query_pre_attn_scalar=16, sliding_window=10, rope_theta=1e6, rope_local_base_freq=1e4, rope_scaling=None)),
    "embed-bert": lambda: Bert("cls", ENCODER),
    "embed-bge": lambda: XlmRoberta("cls", ENCODER),
    "embed-e5": lambda: XlmRoberta("mean", dict(ENCODER, num_hidden_layers=1)),
    "rerank-bge": lambda: XlmRoberta("rank", ENCODER),
    "embed-nomic": lambda: Nomic(dict(n_embd=36, n_inner=44, n_layer=2, n_head=3)),
}


def make(out, name):
    model, folder = MODELS[name](), os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    generator = np.random.default_rng(SEED + sum(name.encode()))
    weights = model.draw(generator)
    write_safetensors(os.path.join(folder, "golden.safetensors"), model.golden(generator))
    model.write_gguf(os.path.join(folder, "model.gguf"), name, weights)
    model.write_folder(folder, weights)
    print(name, sum(x.nbytes for x in weights.values()), "bytes of weights")


if __name__ == "__main__":
    for name in sys.argv[2:] or MODELS:
        make(sys.argv[1], name)
