"""From the Hugging Face names and layout of a decoder to GGUF's, for the architectures llama, qwen2 and qwen3; and of SmolVLM's tower.

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


def add_tokenizer(writer, tokenizer, template, ids):
    """tokenizer: tokenizer.json of a byte-level BPE with GPT-2's pattern; ids: bos, eos and padding."""
    words = dict(tokenizer["model"]["vocab"])
    special = {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
    words.update(special)
    in_order = sorted(words, key=words.get)
    assert [words[t] for t in in_order] == list(range(len(words)))
    writer.add("tokenizer.ggml.model", gguf.STR, "gpt2")
    writer.add("tokenizer.ggml.pre", gguf.STR, "gpt-2")
    writer.add_array("tokenizer.ggml.tokens", gguf.STR, in_order)
    writer.add_array("tokenizer.ggml.token_type", gguf.I32, [3 if t in special else 1 for t in in_order])
    writer.add_array("tokenizer.ggml.merges", gguf.STR, [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    for key, value in ids.items():
        writer.add(f"tokenizer.ggml.{key}_token_id", gguf.U32, value)
    writer.add("tokenizer.ggml.add_bos_token", gguf.BOOL, False)
    writer.add("tokenizer.ggml.add_space_prefix", gguf.BOOL, False)
    writer.add("tokenizer.chat_template", gguf.STR, template)


# ---- the tower of Idefics3 and SmolVLM, as an mmproj file

TOWER_LAYER_NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_out",
                     "layer_norm1": "ln1", "layer_norm2": "ln2", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
TOWER_NAMES = {"vision_model.embeddings.patch_embedding": "v.patch_embd", "vision_model.embeddings.position_embedding": "v.position_embd",
               "vision_model.post_layernorm": "v.post_ln", "connector.modality_projection.proj": "mm.model.fc"}


def add_tower(writer, config, longest_edge):
    """The keys of an mmproj file. config: config.json of the whole model."""
    vision = config["vision_config"]
    writer.add("clip.has_vision_encoder", gguf.BOOL, True)
    writer.add("clip.projector_type", gguf.STR, "idefics3")
    writer.add("clip.use_gelu", gguf.BOOL, True)  # the one with tanh
    for key, value in (("image_size", vision["image_size"]), ("patch_size", vision["patch_size"]), ("embedding_length", vision["hidden_size"]),
                       ("feed_forward_length", vision["intermediate_size"]), ("block_count", vision["num_hidden_layers"]),
                       ("projection_dim", config["text_config"]["hidden_size"]), ("attention.head_count", vision["num_attention_heads"]),
                       ("projector.scale_factor", config["scale_factor"]), ("preproc_image_size", longest_edge)):
        writer.add("clip.vision." + key, gguf.U32, value)
    writer.add("clip.vision.attention.layer_norm_epsilon", gguf.F32, vision["layer_norm_eps"])
    for key in ("image_mean", "image_std"):
        writer.add_array("clip.vision." + key, gguf.F32, [0.5] * 3)


def add_tower_tensors(writer, weights, matrix_kind):
    """weights: checkpoint name without "model." -> float32 array. The first product stays F16, which a convolution reads too."""
    for name, x in weights.items():
        part, _, kind = name.rpartition(".")
        if part in TOWER_NAMES:
            to = TOWER_NAMES[part]
        elif part.startswith("vision_model.encoder.layers."):
            _, _, _, layer, part = part.split(".", 4)
            to = f"v.blk.{layer}.{TOWER_LAYER_NAMES[part]}"
        else:
            continue
        matrix = gguf.GGML_F16 if x.ndim == 4 else matrix_kind if x.ndim == 2 and "embd" not in to else gguf.GGML_F32
        writer.tensor(f"{to}.{kind}", x, matrix)
