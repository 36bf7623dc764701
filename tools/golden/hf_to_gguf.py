"""From the Hugging Face names and layout of a decoder to GGUF's, for the architectures llama, qwen2 and qwen3.

Shared by the golden makers and the export of the shipped model. The one thing that is more than renaming: GGUF's llama
rotates adjacent pairs where Hugging Face rotates halves, so the rows of q and k are permuted per head. Row 2r + a of a
head in the file is row a * head_dim / 2 + r of the head in the checkpoint. qwen2 and qwen3 keep the halves.
"""
import math

import numpy as np

import gguf_write as gguf

LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def gguf_name(name):
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    _, _, layer, rest = name.split(".", 3)  # model.layers.<n>.<rest>
    return f"blk.{layer}.{LAYER_NAMES[rest]}"


def permute(x, n_heads):
    """Checkpoint rows (halves) to GGUF rows (adjacent pairs); works for weights and for biases."""
    return x.reshape(n_heads, 2, x.shape[0] // n_heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def unpermute(x, n_heads):
    return x.reshape(n_heads, x.shape[0] // n_heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def heads_to_permute(name, arch, config):
    """0 where the rows stay as they are."""
    if arch not in ("llama", "granitemoe"):
        return 0
    if ".q_proj." in name:
        return config["num_attention_heads"]
    return config["num_key_value_heads"] if ".k_proj." in name else 0


def rope_freqs(head_dim, rope):
    """Llama 3's smoothing as divisors of the frequencies, in fp32: 1 for short waves, factor for long ones, a blend between."""
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    original, out = rope["original_max_position_embeddings"], []
    for i in range(head_dim // 2):
        wave = 2 * math.pi * rope["rope_theta"] ** (2 * i / head_dim)
        if wave < original / high:
            out.append(1.0)
        elif wave > original / low:
            out.append(float(rope["factor"]))
        else:
            smooth = (original / wave - low) / (high - low)
            out.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(out, dtype=np.float32)


def add_model(writer, arch, config, rope):
    """The hyper-parameter keys. config: config.json's fields; rope: its rope_parameters, whichever way they were written."""
    head_dim = config["head_dim"]
    for key, value in (("context_length", config["max_position_embeddings"]), ("embedding_length", config["hidden_size"]),
                       ("block_count", config["num_hidden_layers"]), ("feed_forward_length", config["intermediate_size"]),
                       ("attention.head_count", config["num_attention_heads"]),
                       ("attention.head_count_kv", config["num_key_value_heads"]),
                       ("attention.key_length", head_dim), ("attention.value_length", head_dim),
                       ("rope.dimension_count", head_dim), ("vocab_size", config["vocab_size"])):
        writer.add(f"{arch}.{key}", gguf.U32, value)
    writer.add(f"{arch}.attention.layer_norm_rms_epsilon", gguf.F32, config["rms_norm_eps"])
    writer.add(f"{arch}.rope.freq_base", gguf.F32, rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add(f"{arch}.rope.scaling.type", gguf.STR, rope["rope_type"])
        writer.add(f"{arch}.rope.scaling.factor", gguf.F32, rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add(f"{arch}.rope.scaling.original_context_length", gguf.U32, rope["original_max_position_embeddings"])


def add_tensors(writer, arch, config, rope, weights, matrix_kind=gguf.GGML_F32):
    """weights: checkpoint name -> float32 array. Vectors stay F32 whatever matrix_kind is."""
    if rope["rope_type"] == "llama3":
        writer.tensor("rope_freqs.weight", rope_freqs(config["head_dim"], rope))
    for name, x in weights.items():
        n_heads = heads_to_permute(name, arch, config)
        y = permute(x, n_heads) if n_heads else x
        writer.tensor(gguf_name(name), y, matrix_kind if y.ndim == 2 else gguf.GGML_F32)
