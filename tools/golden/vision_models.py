"""Small models with eyes (Idefics3, SmolVLM), as checkpoints and as GGUF with mmproj, for the golden vectors.

Usage: python3 vision_models.py OUT [name ...]     (the standard library alone, seconds)

Each OUT/<name>/ holds the model as a checkpoint (config.json, preprocessor_config.json, model.safetensors), as text.gguf
with mmproj.gguf, and mmproj-old.gguf with ffn_up and ffn_down swapped, as early converters wrote them; and
golden.safetensors with tokens and the pixels of tiles: pictures of one tile and of several. make_vision_golden.py adds what
the reference implementation makes of them. Weights are re-randomised (norms and biases too), sizes are odd, and every weight
is a number that BF16 and F16 both hold exactly, so that all files mean the same model.
"""
import array
import json
import math
import os
import random
import struct
import sys

F32, F16, BF16 = "F32", "F16", "BF16"
IMAGE = 7  # the id of an image place

VARIANTS = {
    "smolvlm": dict(model_type="smolvlm", cls="SmolVLMForConditionalGeneration", cols=48, heads=3, ffn=112, layers=2, image=30, patch=5,
                    scale=3, text=56, text_heads=4, kv=2, text_ffn=100, text_layers=2, vocab=331, head=True, eps=1e-6,
                    pictures=[3, 1, 2]),
    "idefics3": dict(model_type="idefics3", cls="Idefics3ForConditionalGeneration", cols=72, heads=4, ffn=104, layers=3, image=37, patch=6,
                     scale=2, text=72, text_heads=3, kv=1, text_ffn=84, text_layers=2, vocab=257, head=False, eps=1e-5, pictures=[1, 2]),
}


def in_both(x):
    """The nearest number of 8 significant bits that is 0 or at least 2^-14."""
    if abs(x) < 2 ** -14:
        return 0.0
    m, e = math.frexp(x)
    return math.ldexp(round(m * 256), e - 8)


class Draw:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def matrix(self, rows, cols, wide=1.0):
        return [[in_both(self.r.gauss(0, wide / cols ** 0.5)) for _ in range(cols)] for _ in range(rows)]

    def bias(self, n):
        return [in_both(self.r.gauss(0, 0.1)) for _ in range(n)]

    def norm(self, n):
        return [in_both(0.5 + self.r.random()) for _ in range(n)]


# ---- the model

def make_weights(v, draw):
    c, t = v["cols"], v["text"]
    w = {"model.vision_model.embeddings.patch_embedding.weight": draw.matrix(c, 3 * v["patch"] ** 2),
         "model.vision_model.embeddings.patch_embedding.bias": draw.bias(c),
         "model.vision_model.embeddings.position_embedding.weight": draw.matrix((v["image"] // v["patch"]) ** 2, c, 0.5 * c ** 0.5)}
    for i in range(v["layers"]):
        at = f"model.vision_model.encoder.layers.{i}."
        for p in "qkv":
            w[f"{at}self_attn.{p}_proj.weight"] = draw.matrix(c, c, 1.0 if p == "v" else 2.0)
            w[f"{at}self_attn.{p}_proj.bias"] = draw.bias(c)
        w[at + "self_attn.out_proj.weight"], w[at + "self_attn.out_proj.bias"] = draw.matrix(c, c), draw.bias(c)
        for n in "12":
            w[f"{at}layer_norm{n}.weight"], w[f"{at}layer_norm{n}.bias"] = draw.norm(c), draw.bias(c)
        w[at + "mlp.fc1.weight"], w[at + "mlp.fc1.bias"] = draw.matrix(v["ffn"], c), draw.bias(v["ffn"])
        w[at + "mlp.fc2.weight"], w[at + "mlp.fc2.bias"] = draw.matrix(c, v["ffn"]), draw.bias(c)
    w["model.vision_model.post_layernorm.weight"], w["model.vision_model.post_layernorm.bias"] = draw.norm(c), draw.bias(c)
    w["model.connector.modality_projection.proj.weight"] = draw.matrix(t, c * v["scale"] ** 2)
    w["model.text_model.embed_tokens.weight"] = draw.matrix(v["vocab"], t, t ** 0.5)
    head_dim = t // v["text_heads"]
    for i in range(v["text_layers"]):
        at = f"model.text_model.layers.{i}."
        w[at + "input_layernorm.weight"], w[at + "post_attention_layernorm.weight"] = draw.norm(t), draw.norm(t)
        for p, n in (("q", v["text_heads"]), ("k", v["kv"]), ("v", v["kv"])):
            w[f"{at}self_attn.{p}_proj.weight"] = draw.matrix(n * head_dim, t, 1.0 if p == "v" else 1.5)
        w[at + "self_attn.o_proj.weight"] = draw.matrix(t, t)
        for p in ("gate", "up"):
            w[f"{at}mlp.{p}_proj.weight"] = draw.matrix(v["text_ffn"], t)
        w[at + "mlp.down_proj.weight"] = draw.matrix(t, v["text_ffn"])
    w["model.text_model.norm.weight"] = draw.norm(t)
    if v["head"]:
        w["lm_head.weight"] = draw.matrix(v["vocab"], t, 2.0)
    return w


# ---- files

def packed(numbers, dtype):
    if dtype == F32:
        return array.array("f", numbers).tobytes()
    if dtype == F16:
        return struct.pack(f"<{len(numbers)}e", *numbers)
    return b"".join(struct.pack("<f", n)[2:] for n in numbers)  # the numbers have 8 significant bits


def flat(w):
    return [n for row in w for n in row] if isinstance(w[0], list) else w


def shape_of(w):
    return [len(w), len(w[0])] if isinstance(w[0], list) else [len(w)]


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, shape, bytes)."""
    head, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _dtype, _shape, data in tensors.values():
            f.write(data)


GGUF_TYPES = {F32: 0, F16: 1, BF16: 30}


def gguf_string(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def gguf_value(value):
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + gguf_string(value)
    return struct.pack("<IIQ", 9, 6, len(value)) + struct.pack(f"<{len(value)}f", *value)


def write_gguf(path, meta, tensors):
    """tensors: name -> (dtype, shape, bytes); shapes innermost last, as everywhere but in the file."""
    infos, blob = b"", b""
    for name, (dtype, shape, data) in tensors.items():
        blob += b"\0" * (-len(blob) % 32)
        infos += gguf_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), GGUF_TYPES[dtype], len(blob))
        blob += data
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta))
    head += b"".join(gguf_string(k) + gguf_value(value) for k, value in meta.items()) + infos
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32) + blob)


def write_folder(v, w, folder):
    shaped = {}
    for name, m in w.items():
        conv = name.endswith("patch_embedding.weight")
        shaped[name] = (BF16, [v["cols"], 3, v["patch"], v["patch"]] if conv else shape_of(m), packed(flat(m), BF16))
    write_safetensors(os.path.join(folder, "model.safetensors"), shaped)
    vision = dict(hidden_size=v["cols"], intermediate_size=v["ffn"], num_hidden_layers=v["layers"], num_attention_heads=v["heads"],
                  image_size=v["image"], patch_size=v["patch"], hidden_act="gelu_pytorch_tanh", num_channels=3)
    if v["eps"] != 1e-6:  # the class's default is left out
        vision["layer_norm_eps"] = v["eps"]
    text = dict(model_type="llama", hidden_size=v["text"], intermediate_size=v["text_ffn"], num_hidden_layers=v["text_layers"],
                num_attention_heads=v["text_heads"], num_key_value_heads=v["kv"], vocab_size=v["vocab"], rms_norm_eps=1e-5,
                rope_theta=10000.0, max_position_embeddings=256, hidden_act="silu", bos_token_id=1, eos_token_id=2, pad_token_id=128002)
    config = dict(architectures=[v["cls"]], model_type=v["model_type"], image_token_id=IMAGE, scale_factor=v["scale"],
                  tie_word_embeddings=False, text_config=text, vision_config=vision)
    edge = dict(do_image_splitting=True, image_mean=[0.5] * 3, image_std=[0.5] * 3, resample=1, size=dict(longest_edge=4 * v["image"]),
                max_image_size=dict(longest_edge=v["image"]), image_processor_type="Idefics3ImageProcessor")
    for name, values in (("config.json", config), ("preprocessor_config.json", edge)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(json.dumps(values, indent=2, sort_keys=True) + "\n")


def byte_letters():
    """The letters that stand for bytes in a byte-level vocabulary: printable ones for themselves, the others from U+0100 on."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(0x100 + others.index(b)) for b in range(256)]


TEMPLATE = """<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}\
{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}\
{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}\
{% elif part['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>
{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"""


def write_tokenizer(folder):
    """Bytes, and the marks of pictures; no merges."""
    special = {"<|endoftext|>": 0, "<|im_start|>": 1, "<end_of_utterance>": 2, "<fake_token_around_image>": 5, "<global-img>": 6, "<image>": IMAGE}
    special.update({f"<row_{r}_col_{c}>": 276 + 4 * (r - 1) + c - 1 for r in range(1, 5) for c in range(1, 5)})
    letters = {letter: 20 + b for b, letter in enumerate(byte_letters())}
    added = [dict(id=i, content=t, special=True, normalized=False, lstrip=False, rstrip=False, single_word=False) for t, i in special.items()]
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    tokenizer = dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None, pre_tokenizer=level,
                     post_processor=None, decoder=level, model=dict(type="BPE", dropout=None, unk_token=None, vocab=letters, merges=[]))
    config = dict(tokenizer_class="GPT2Tokenizer", bos_token="<|im_start|>", eos_token="<end_of_utterance>", add_bos_token=False)
    for name, values in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(json.dumps(values, indent=None, ensure_ascii=False) + "\n")
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(TEMPLATE)


def paired(m, head_dim):
    """Rows of each head so that neighbours rotate together, as GGUF files of llama have them."""
    half = head_dim // 2
    return [m[at + i + j * half] for at in range(0, len(m), head_dim) for i in range(half) for j in range(2)]


def write_text_gguf(v, w, folder):
    head_dim = v["text"] // v["text_heads"]
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "ffn_norm"}
    meta = {"general.architecture": "llama", "llama.block_count": v["text_layers"], "llama.embedding_length": v["text"],
            "llama.attention.head_count": v["text_heads"], "llama.attention.head_count_kv": v["kv"],
            "llama.feed_forward_length": v["text_ffn"], "llama.vocab_size": v["vocab"], "llama.context_length": 256,
            "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0, "llama.rope.dimension_count": head_dim,
            "tokenizer.ggml.model": "none"}
    tensors = {}
    for name, m in w.items():
        at = name.removeprefix("model.text_model.").removesuffix(".weight")
        if at.startswith("layers."):
            _, layer, part = at.split(".", 2)
            to = f"blk.{layer}.{names[part]}.weight"
            m = paired(m, head_dim) if part in ("self_attn.q_proj", "self_attn.k_proj") else m
        elif at in ("embed_tokens", "norm", "lm_head"):
            to = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}[at] + ".weight"
        else:
            continue
        dtype = BF16 if isinstance(m[0], list) else F32
        tensors[to] = (dtype, shape_of(m), packed(flat(m), dtype))
    write_gguf(os.path.join(folder, "text.gguf"), meta, tensors)


def write_mmproj(v, w, path, swapped):
    up, down = ("ffn_down", "ffn_up") if swapped else ("ffn_up", "ffn_down")
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_out",
             "layer_norm1": "ln1", "layer_norm2": "ln2", "mlp.fc1": up, "mlp.fc2": down}
    tops = {"embeddings.patch_embedding": "v.patch_embd", "embeddings.position_embedding": "v.position_embd", "post_layernorm": "v.post_ln",
            "modality_projection.proj": "mm.model.fc"}
    meta = {"general.architecture": "clip", "general.type": "mmproj", "clip.has_vision_encoder": True, "clip.projector_type": "idefics3",
            "clip.use_gelu": True, "clip.vision.image_size": v["image"], "clip.vision.patch_size": v["patch"],
            "clip.vision.embedding_length": v["cols"], "clip.vision.feed_forward_length": v["ffn"], "clip.vision.block_count": v["layers"],
            "clip.vision.projection_dim": v["text"], "clip.vision.attention.head_count": v["heads"],
            "clip.vision.attention.layer_norm_epsilon": v["eps"], "clip.vision.image_mean": [0.5] * 3, "clip.vision.image_std": [0.5] * 3,
            "clip.vision.projector.scale_factor": v["scale"]}
    if not swapped:  # it came later
        meta["clip.vision.preproc_image_size"] = 4 * v["image"]
    tensors = {}
    for name, m in w.items():
        part, _, kind = name.removeprefix("model.").removeprefix("vision_model.").removeprefix("connector.").rpartition(".")
        if part.startswith("encoder.layers."):
            _, _, layer, part = part.split(".", 3)
            to = f"v.blk.{layer}.{names[part]}.{kind}"
        elif part in tops:
            to = f"{tops[part]}.{kind}"
        else:
            continue
        plain = not isinstance(m[0], list) or "embd" in to  # the converter forces these to F32
        dtype = F32 if plain else F16 if "attn" in to else BF16
        shape = [v["cols"], 3, v["patch"], v["patch"]] if to == "v.patch_embd.weight" else shape_of(m)
        tensors[to] = (dtype, shape, packed(flat(m), dtype))
    write_gguf(path, meta, tensors)


# ---- the vectors

def make_tokens(v, r):
    """Pictures of one tile and of several, words between, and an end of words."""
    rows = (v["image"] // v["patch"] // v["scale"]) ** 2
    tokens = [1, 20]
    for n_tiles in v["pictures"]:
        for _ in range(n_tiles):
            tokens += [r.randrange(8, v["vocab"])] + [IMAGE] * rows
        tokens += [r.randrange(8, v["vocab"]) for _ in range(3)]
    return tokens + [r.randrange(8, v["vocab"]) for _ in range(5)]


def make_tile(v, r):
    """Bands with noise: bright and dark, never flat."""
    return [[min(255, max(0, int(128 + 100 * math.sin(0.1 * (x * (c + 1) + y * (3 - c))) + r.gauss(0, 30)))) for c in range(3)]
            for y in range(v["image"]) for x in range(v["image"])]


def make(name, index, out):
    v, folder = VARIANTS[name], os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    draw = Draw(20261 + index)
    w = make_weights(v, draw)
    write_folder(v, w, folder)
    write_text_gguf(v, w, folder)
    write_mmproj(v, w, os.path.join(folder, "mmproj.gguf"), False)
    if index == 0:
        write_tokenizer(folder)
        write_mmproj(v, w, os.path.join(folder, "mmproj-old.gguf"), True)
    tiles = [make_tile(v, draw.r) for _ in range(sum(v["pictures"]))]
    tokens = make_tokens(v, draw.r)
    pixels = bytes(b for tile in tiles for pixel in tile for b in pixel)
    pixels += b"\0" * (-len(pixels) % 4)
    write_safetensors(os.path.join(folder, "golden.safetensors"), {
        "tokens": ("I32", [len(tokens)], struct.pack(f"<{len(tokens)}i", *tokens)),
        "n_tiles": ("I32", [1], struct.pack("<i", len(tiles))),
        "tiles": ("I32", [len(pixels) // 4], pixels)})  # bytes [n_tiles, image, image, 3], filled up to whole words
    print(f"{name}: {len(tiles)} tiles, {len(tokens)} tokens")


def main():
    for index, name in enumerate(VARIANTS):
        if len(sys.argv) == 2 or name in sys.argv[2:]:
            make(name, index, sys.argv[1])


if __name__ == "__main__":
    main()
