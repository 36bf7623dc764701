"""Golden model and vectors of InternVL3's architecture, by numpy in fp64 from the published formulas.

Usage: python3 make_internvl_golden.py OUT     (numpy alone, seconds)

OUT/internvl/ gets a re-randomised model of odd sizes as a checkpoint and as text.gguf with mmproj.gguf, and golden.safetensors
with tokens, the pixels of tiles, the encoder's output (behind the last layer, the class token last), the connector's, and the
logits at every position. check_transformers.py compares the logits with the library's.
"""
import json
import math
import os
import sys

import numpy as np

from vision_models import BF16, F16, F32, IMAGE, Draw, flat, packed, shape_of, write_gguf, write_safetensors

COLS, HEADS, FFN, LAYERS, IMAGE_SIDE, PATCH, SCALE = 48, 3, 112, 2, 30, 5, 2
TEXT, TEXT_HEADS, KV, TEXT_FFN, TEXT_LAYERS, VOCAB = 56, 4, 2, 100, 2, 331
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
PICTURES = [4, 1, 3]  # tiles of each
ACROSS = IMAGE_SIDE // PATCH


# ---- the model

def make_weights(draw):
    tower, text = "model.vision_tower.", "model.language_model."
    w = {tower + "embeddings.cls_token": [draw.bias(COLS)], tower + "embeddings.patch_embeddings.projection.weight": draw.matrix(COLS, 3 * PATCH ** 2),
         tower + "embeddings.patch_embeddings.projection.bias": draw.bias(COLS),
         tower + "embeddings.position_embeddings": draw.matrix(ACROSS ** 2 + 1, COLS, 0.5 * COLS ** 0.5)}
    for i in range(LAYERS):
        at = f"{tower}encoder.layer.{i}."
        for p in "qkv":
            w[f"{at}attention.{p}_proj.weight"], w[f"{at}attention.{p}_proj.bias"] = draw.matrix(COLS, COLS, 1.0 if p == "v" else 2.0), draw.bias(COLS)
        w[at + "attention.projection_layer.weight"], w[at + "attention.projection_layer.bias"] = draw.matrix(COLS, COLS), draw.bias(COLS)
        for norm in ("layernorm_before", "layernorm_after"):
            w[f"{at}{norm}.weight"], w[f"{at}{norm}.bias"] = draw.norm(COLS), draw.bias(COLS)
        w[at + "lambda_1"], w[at + "lambda_2"] = draw.norm(COLS), draw.norm(COLS)
        w[at + "mlp.fc1.weight"], w[at + "mlp.fc1.bias"] = draw.matrix(FFN, COLS), draw.bias(FFN)
        w[at + "mlp.fc2.weight"], w[at + "mlp.fc2.bias"] = draw.matrix(COLS, FFN), draw.bias(COLS)
    at, wide = "model.multi_modal_projector.", COLS * SCALE ** 2
    w[at + "layer_norm.weight"], w[at + "layer_norm.bias"] = draw.norm(wide), draw.bias(wide)
    w[at + "linear_1.weight"], w[at + "linear_1.bias"] = draw.matrix(TEXT, wide), draw.bias(TEXT)
    w[at + "linear_2.weight"], w[at + "linear_2.bias"] = draw.matrix(TEXT, TEXT, 2.0), draw.bias(TEXT)
    w[text + "embed_tokens.weight"] = draw.matrix(VOCAB, TEXT, TEXT ** 0.5)
    dim = TEXT // TEXT_HEADS
    for i in range(TEXT_LAYERS):
        at = f"{text}layers.{i}."
        w[at + "input_layernorm.weight"], w[at + "post_attention_layernorm.weight"] = draw.norm(TEXT), draw.norm(TEXT)
        for p, n in (("q", TEXT_HEADS), ("k", KV), ("v", KV)):
            w[f"{at}self_attn.{p}_proj.weight"], w[f"{at}self_attn.{p}_proj.bias"] = draw.matrix(n * dim, TEXT, 1.0 if p == "v" else 1.5), draw.bias(n * dim)
        w[at + "self_attn.o_proj.weight"] = draw.matrix(TEXT, TEXT)
        for p in ("gate", "up"):
            w[f"{at}mlp.{p}_proj.weight"] = draw.matrix(TEXT_FFN, TEXT)
        w[at + "mlp.down_proj.weight"] = draw.matrix(TEXT, TEXT_FFN)
    w[text + "norm.weight"] = draw.norm(TEXT)
    w["lm_head.weight"] = draw.matrix(VOCAB, TEXT, 2.0)
    return w


# ---- the forward pass

def layernorm(x, scale, bias, eps):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + eps) * scale + bias


def gelu(x):
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def heads(x, n):
    return x.reshape(len(x), n, -1).transpose(1, 0, 2)


def encode(w, tile):
    """tile: [3, side, side] normalised. Returns [1 + patches, cols]: the class token first."""
    at = "model.vision_tower.embeddings."
    patches = tile.reshape(3, ACROSS, PATCH, ACROSS, PATCH).transpose(1, 3, 0, 2, 4).reshape(ACROSS ** 2, -1)
    x = patches @ w[at + "patch_embeddings.projection.weight"].T + w[at + "patch_embeddings.projection.bias"]
    x = np.concatenate([w[at + "cls_token"], x]) + w[at + "position_embeddings"]
    for i in range(LAYERS):
        at = f"model.vision_tower.encoder.layer.{i}."
        product = lambda name, y: y @ w[at + name + ".weight"].T + w[at + name + ".bias"]
        y = layernorm(x, w[at + "layernorm_before.weight"], w[at + "layernorm_before.bias"], 1e-6)
        q, k, v = (heads(product(f"attention.{p}_proj", y), HEADS) for p in "qkv")
        y = softmax(q @ k.transpose(0, 2, 1) / math.sqrt(COLS // HEADS)) @ v
        x = x + w[at + "lambda_1"] * product("attention.projection_layer", y.transpose(1, 0, 2).reshape(len(x), -1))
        y = layernorm(x, w[at + "layernorm_after.weight"], w[at + "layernorm_after.bias"], 1e-6)
        x = x + w[at + "lambda_2"] * product("mlp.fc2", gelu(product("mlp.fc1", y)))
    return x


def connect(w, encoded):
    at, n = "model.multi_modal_projector.", ACROSS // SCALE
    grid = encoded[1:].reshape(n, SCALE, n, SCALE, COLS).transpose(0, 2, 1, 3, 4).reshape(n * n, -1)  # [dy, dx, c] in a row
    y = layernorm(grid, w[at + "layer_norm.weight"], w[at + "layer_norm.bias"], 1e-5)
    return gelu(y @ w[at + "linear_1.weight"].T + w[at + "linear_1.bias"]) @ w[at + "linear_2.weight"].T + w[at + "linear_2.bias"]


def rmsnorm(x, scale):
    return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + 1e-6) * scale


def rotate(x):
    """RoPE over [heads, tokens, dim], pairs of halves, base 10000."""
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[1])[:, None] * 10000.0 ** (-np.arange(half) / half)
    a, b, cos, sin = x[..., :half], x[..., half:], np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def read_text(w, x):
    mask = np.triu(np.full((len(x), len(x)), -np.inf), 1)
    for i in range(TEXT_LAYERS):
        at = f"model.language_model.layers.{i}."
        y = rmsnorm(x, w[at + "input_layernorm.weight"])
        q, k, v = (heads(y @ w[f"{at}self_attn.{p}_proj.weight"].T + w[f"{at}self_attn.{p}_proj.bias"], n)
                   for p, n in (("q", TEXT_HEADS), ("k", KV), ("v", KV)))
        q, k = rotate(q), np.repeat(rotate(k), TEXT_HEADS // KV, 0)
        y = softmax(q @ k.transpose(0, 2, 1) / math.sqrt(TEXT // TEXT_HEADS) + mask) @ np.repeat(v, TEXT_HEADS // KV, 0)
        x = x + y.transpose(1, 0, 2).reshape(len(x), -1) @ w[at + "self_attn.o_proj.weight"].T
        y = rmsnorm(x, w[at + "post_attention_layernorm.weight"])
        gate = y @ w[at + "mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w[at + "mlp.up_proj.weight"].T)) @ w[at + "mlp.down_proj.weight"].T
    return rmsnorm(x, w["model.language_model.norm.weight"]) @ w["lm_head.weight"].T


def normalise(tiles):
    """Bytes [n, side, side, 3] to [n, 3, side, side], in the processor's single precision."""
    scaled = (tiles.astype(np.float64) * 0.00392156862745098).astype(np.float32)
    return ((scaled - np.float32(MEAN)) / np.float32(STD)).transpose(0, 3, 1, 2).astype(np.float64)


# ---- files

def write_folder(w, folder):
    shaped = {}
    for name, m in w.items():
        shape = [COLS, 3, PATCH, PATCH] if name.endswith("projection.weight") else shape_of(m)
        shape = [1] + shape if name.endswith(("cls_token", "position_embeddings")) else shape
        shaped[name] = (BF16, shape, packed(flat(m), BF16))
    write_safetensors(os.path.join(folder, "model.safetensors"), shaped)
    vision = dict(model_type="internvl_vision", hidden_size=COLS, intermediate_size=FFN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                  image_size=[IMAGE_SIDE] * 2, patch_size=[PATCH] * 2, hidden_act="gelu", attention_bias=True, layer_norm_eps=1e-6, norm_type="layer_norm",
                  use_qk_norm=False, use_mean_pooling=True, use_mask_token=False, use_absolute_position_embeddings=True, hidden_dropout_prob=0.0)
    text = dict(model_type="qwen2", hidden_size=TEXT, intermediate_size=TEXT_FFN, num_hidden_layers=TEXT_LAYERS, num_attention_heads=TEXT_HEADS,
                num_key_value_heads=KV, vocab_size=VOCAB, rms_norm_eps=1e-6, rope_theta=10000.0, max_position_embeddings=256, hidden_act="silu",
                bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)
    config = dict(architectures=["InternVLForConditionalGeneration"], model_type="internvl", image_token_id=IMAGE, downsample_ratio=1 / SCALE,
                  image_seq_length=(ACROSS // SCALE) ** 2, projector_hidden_act="gelu", vision_feature_layer=-1, vision_feature_select_strategy="default",
                  tie_word_embeddings=False, text_config=text, vision_config=vision)
    preparation = dict(image_processor_type="GotOcr2ImageProcessorFast", crop_to_patches=False, min_patches=1, max_patches=12, image_mean=MEAN, image_std=STD,
                       resample=3, size=dict(height=IMAGE_SIDE, width=IMAGE_SIDE))
    for name, values in (("config.json", config), ("preprocessor_config.json", preparation)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(json.dumps(values, indent=2, sort_keys=True) + "\n")


def write_text_gguf(w, folder):
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "ffn_norm"}
    tops = {"model.language_model.embed_tokens": "token_embd", "model.language_model.norm": "output_norm", "lm_head": "output"}
    meta = {"general.architecture": "qwen2", "qwen2.block_count": TEXT_LAYERS, "qwen2.embedding_length": TEXT, "qwen2.attention.head_count": TEXT_HEADS,
            "qwen2.attention.head_count_kv": KV, "qwen2.feed_forward_length": TEXT_FFN, "qwen2.vocab_size": VOCAB, "qwen2.context_length": 256,
            "qwen2.attention.layer_norm_rms_epsilon": 1e-6, "qwen2.rope.freq_base": 10000.0, "tokenizer.ggml.model": "none"}
    tensors = {}
    for name, m in w.items():
        part, _, kind = name.rpartition(".")
        if part in tops:
            to = f"{tops[part]}.{kind}"
        elif part.startswith("model.language_model.layers."):
            layer, part = part.removeprefix("model.language_model.layers.").split(".", 1)
            to = f"blk.{layer}.{names[part]}.{kind}"
        else:
            continue
        dtype = BF16 if isinstance(m[0], list) else F32
        tensors[to] = (dtype, shape_of(m), packed(flat(m), dtype))
    write_gguf(os.path.join(folder, "text.gguf"), meta, tensors)


def write_mmproj(w, folder):
    names = {"attention.q_proj": "attn_q", "attention.k_proj": "attn_k", "attention.v_proj": "attn_v", "attention.projection_layer": "attn_out",
             "layernorm_before": "ln1", "layernorm_after": "ln2", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
    tops = {"embeddings.cls_token": "v.class_embd", "embeddings.position_embeddings": "v.position_embd.weight",
            "embeddings.patch_embeddings.projection.weight": "v.patch_embd.weight", "embeddings.patch_embeddings.projection.bias": "v.patch_embd.bias"}
    connector = {"layer_norm": 0, "linear_1": 1, "linear_2": 3}
    meta = {"general.architecture": "clip", "general.type": "mmproj", "clip.has_vision_encoder": True, "clip.projector_type": "internvl",
            "clip.use_gelu": True, "clip.vision.image_size": IMAGE_SIDE, "clip.vision.patch_size": PATCH, "clip.vision.embedding_length": COLS,
            "clip.vision.feed_forward_length": FFN, "clip.vision.block_count": LAYERS, "clip.vision.projection_dim": TEXT,
            "clip.vision.attention.head_count": HEADS, "clip.vision.attention.layer_norm_epsilon": 1e-6, "clip.vision.image_mean": MEAN,
            "clip.vision.image_std": STD, "clip.vision.projector.scale_factor": SCALE, "clip.vision.preproc_min_tiles": 1,
            "clip.vision.preproc_max_tiles": 12}
    tensors = {}
    for name, m in w.items():
        at = name.removeprefix("model.vision_tower.")
        if name.startswith("model.multi_modal_projector."):
            part, kind = name.removeprefix("model.multi_modal_projector.").split(".")
            to = f"mm.model.mlp.{connector[part]}.{kind}"
        elif at in tops:
            to = tops[at]
        elif at.startswith("encoder.layer."):
            layer, part = at.removeprefix("encoder.layer.").split(".", 1)
            to = f"v.blk.{layer}.ls{part[-1]}.weight" if part.startswith("lambda_") else f"v.blk.{layer}.{names[part.rpartition('.')[0]]}.{part.rpartition('.')[2]}"
        else:
            continue
        plain = not isinstance(m[0], list) or "embd" in to
        dtype = F32 if plain else F16 if "attn" in to else BF16
        shape = [COLS, 3, PATCH, PATCH] if to == "v.patch_embd.weight" else [COLS] if to == "v.class_embd" else shape_of(m)
        tensors[to] = (dtype, shape, packed(flat(m), dtype))
    write_gguf(os.path.join(folder, "mmproj.gguf"), meta, tensors)


# ---- the vectors

def make_tokens(r):
    rows, word = (ACROSS // SCALE) ** 2, lambda: r.randrange(8, VOCAB)
    tokens = [1, 20]
    for n_tiles in PICTURES:
        tokens += [word()] + [IMAGE] * (rows * n_tiles) + [word(), word()]
    return tokens + [word() for _ in range(5)]


def make_tiles(r):
    band = lambda x, y, c: int(128 + 100 * math.sin(0.1 * (x * (c + 1) + y * (3 - c))) + r.gauss(0, 30))
    return np.array([[[[min(255, max(0, band(x, y, c))) for c in range(3)] for x in range(IMAGE_SIDE)] for y in range(IMAGE_SIDE)]
                     for _ in range(sum(PICTURES))], np.uint8)


def main():
    folder = os.path.join(sys.argv[1], "internvl")
    os.makedirs(folder, exist_ok=True)
    draw = Draw(20270)
    lists = make_weights(draw)
    write_folder(lists, folder)
    write_text_gguf(lists, folder)
    write_mmproj(lists, folder)
    tiles, tokens = make_tiles(draw.r), make_tokens(draw.r)
    w = {name: np.array(m, np.float64) for name, m in lists.items()}
    encoded = [encode(w, tile) for tile in normalise(tiles)]
    connected = np.concatenate([connect(w, e) for e in encoded])
    x = w["model.language_model.embed_tokens.weight"][tokens]
    x[np.array(tokens) == IMAGE] = connected
    numbers = {"encoded": np.concatenate([np.roll(e, -1, 0) for e in encoded]), "connected": connected, "logits": read_text(w, x)}
    pixels = tiles.tobytes()
    pixels += b"\0" * (-len(pixels) % 4)
    write_safetensors(os.path.join(folder, "golden.safetensors"), {
        "tokens": ("I32", [len(tokens)], np.array(tokens, np.int32).tobytes()),
        "n_tiles": ("I32", [1], np.array([len(tiles)], np.int32).tobytes()),
        "tiles": ("I32", [len(pixels) // 4], pixels),
        **{name: ("F32", list(m.shape), m.astype(np.float32).tobytes()) for name, m in numbers.items()}})
    print(f"internvl: {len(tiles)} tiles, {len(tokens)} tokens, logits {numbers['logits'].std():.2f}")


if __name__ == "__main__":
    main()
