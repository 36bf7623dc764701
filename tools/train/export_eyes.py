"""From the weights of train_eyes.py to the shipped files of ingot-eyes. numpy alone.

Usage: python3 export_eyes.py OUT REPOSITORY

Writes models/ingot-eyes/ (the BF16 safetensors with config, tokenizer, template and processor), models/ingot-eyes-q8_0.gguf and
models/mmproj-ingot-eyes-q8_0.gguf, all below REPOSITORY.
"""
import json
import math
import os
import shutil
import struct
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
import eyes_tokens as tokens
import gguf_write as gguf
import hf_to_gguf
from pictures import EDGE, PATCH, TILE

NAME = "ingot-eyes"
TEMPLATE = """{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}{% if message['content'] is string %}\
{{ message['content'] }}{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}{{ '<image>' }}{% else %}\
{{ part['text'] }}{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}\
{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def read_safetensors(folder):
    """name -> float32 array, in the files' order; BF16 alone."""
    out = {}
    for file in sorted(f for f in os.listdir(folder) if f.endswith(".safetensors")):
        with open(os.path.join(folder, file), "rb") as f:
            head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            data = f.read()
        for name, t in head.items():
            if name != "__metadata__":
                assert t["dtype"] == "BF16", name
                raw = np.frombuffer(data, "<u2", math.prod(t["shape"]), t["data_offsets"][0])
                out[name] = (raw.astype(np.uint32) << 16).view(np.float32).reshape(t["shape"])
    return out


def count_layers(weights, part):
    return 1 + max(int(name.split(part)[1].split(".")[0]) for name in weights if part in name)


def config_json(weights):
    """Sizes are read off the weights; what they do not show is fixed: heads of 64 in the text half, of 32 in the tower."""
    embed, up = weights["model.text_model.embed_tokens.weight"], weights["model.text_model.layers.0.mlp.up_proj.weight"]
    q, k = (weights[f"model.text_model.layers.0.self_attn.{p}_proj.weight"] for p in "qk")
    conv, fc1 = (weights["model.vision_model." + n] for n in ("embeddings.patch_embedding.weight", "encoder.layers.0.mlp.fc1.weight"))
    square = weights["model.connector.modality_projection.proj.weight"].shape[1]
    text = {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "bos_token_id": tokens.START, "eos_token_id": tokens.END, "head_dim": 64,
            "hidden_act": "silu", "hidden_size": embed.shape[1], "intermediate_size": up.shape[0], "max_position_embeddings": 1024,
            "mlp_bias": False, "model_type": "llama", "num_attention_heads": q.shape[0] // 64,
            "num_hidden_layers": count_layers(weights, "text_model.layers."), "num_key_value_heads": k.shape[0] // 64,
            "pad_token_id": tokens.PAD, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": True, "vocab_size": embed.shape[0]}
    vision = {"hidden_act": "gelu_pytorch_tanh", "hidden_size": conv.shape[0], "image_size": TILE, "intermediate_size": fc1.shape[0],
              "layer_norm_eps": 1e-06, "model_type": "smolvlm_vision", "num_attention_heads": conv.shape[0] // 32, "num_channels": 3,
              "num_hidden_layers": count_layers(weights, "encoder.layers."), "patch_size": PATCH}
    return {"architectures": ["SmolVLMForConditionalGeneration"], "image_token_id": tokens.IMAGE, "model_type": "smolvlm",
            "pad_token_id": tokens.PAD, "scale_factor": math.isqrt(square // conv.shape[0]), "text_config": text, "tie_word_embeddings": True,
            "torch_dtype": "bfloat16", "vision_config": vision}


def token_entry(content):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}


def tokenizer_json():
    with open(os.path.join(tokens.BASE, "tokenizer.json"), encoding="utf-8") as f:
        tokenizer = json.load(f)
    tokenizer["added_tokens"] += [{"id": tokens.N_BASE + i, **token_entry(t)} for i, t in enumerate(tokens.PICTURE)]
    return tokenizer


def write_json(folder, name, data):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        f.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def write_folder(source, folder, config, tokenizer):
    os.makedirs(folder, exist_ok=True)
    for name in sorted(os.listdir(source)):
        if ".safetensors" in name:
            shutil.copy(os.path.join(source, name), folder)
    write_json(folder, "config.json", config)
    write_json(folder, "generation_config.json", {"bos_token_id": tokens.START, "eos_token_id": tokens.END, "pad_token_id": tokens.PAD})
    write_json(folder, "preprocessor_config.json",
               {"do_convert_rgb": True, "do_image_splitting": True, "do_normalize": True, "do_pad": True, "do_rescale": True, "do_resize": True,
                "image_mean": [0.5] * 3, "image_processor_type": "SmolVLMImageProcessor", "image_std": [0.5] * 3,
                "max_image_size": {"longest_edge": TILE}, "processor_class": "SmolVLMProcessor", "resample": 1,
                "rescale_factor": 0.00392156862745098, "size": {"longest_edge": EDGE}})
    write_json(folder, "processor_config.json", {"image_seq_len": tokens.ROWS_A_TILE, "processor_class": "SmolVLMProcessor"})
    write_json(folder, "tokenizer.json", tokenizer)
    write_json(folder, "tokenizer_config.json",
               {"add_bos_token": False, "add_prefix_space": False, "added_tokens_decoder": {str(i): token_entry(t) for t, i in tokens.SPECIAL.items()},
                "bos_token": "<|im_start|>", "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "global_image_token": "<global-img>",
                "fake_image_token": "<fake_token_around_image>", "image_token": "<image>", "model_max_length": 1024, "pad_token": "<|endoftext|>",
                "processor_class": "SmolVLMProcessor", "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": None})
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(TEMPLATE)


def add_general(writer, kind):
    for key, value in (("type", kind), ("name", "Ingot Eyes"), ("size_label", "7M"), ("license", "apache-2.0"),
                       ("description", "Small model that sees: shapes, colours, counts, places, numbers and words in drawn pictures.")):
        writer.add("general." + key, gguf.STR, value)
    writer.add("general.file_type", gguf.U32, 7)
    writer.add("general.quantization_version", gguf.U32, 2)


def write_text(path, config, weights, tokenizer):
    rope = {"rope_type": "default", "rope_theta": config["rope_theta"]}
    writer = gguf.Writer("llama")
    add_general(writer, "model")
    hf_to_gguf.add_model(writer, "llama", config, rope)
    hf_to_gguf.add_tokenizer(writer, tokenizer, TEMPLATE, {"bos": tokens.START, "eos": tokens.END, "padding": tokens.PAD})
    hf_to_gguf.add_tensors(writer, "llama", config, rope, weights, gguf.GGML_Q8_0)
    writer.write(path)


def write_mmproj(path, config, weights):
    writer = gguf.Writer("clip")
    add_general(writer, "mmproj")
    hf_to_gguf.add_tower(writer, config, EDGE)
    hf_to_gguf.add_tower_tensors(writer, weights, gguf.GGML_Q8_0)
    writer.write(path)


def main():
    out, repository = sys.argv[1:3]
    models = os.path.join(repository, "models")
    weights = read_safetensors(out)
    config, tokenizer = config_json(weights), tokenizer_json()
    write_folder(out, os.path.join(models, NAME), config, tokenizer)
    text = {"model." + n.removeprefix("model.text_model."): w for n, w in weights.items() if n.startswith("model.text_model.")}
    tower = {n.removeprefix("model."): w for n, w in weights.items() if not n.startswith("model.text_model.")}
    paths = [os.path.join(models, name + "-q8_0.gguf") for name in (NAME, "mmproj-" + NAME)]
    write_text(paths[0], config["text_config"], text, tokenizer)
    write_mmproj(paths[1], config, tower)
    print(sum(w.size for w in weights.values()), "parameters;", *(f"{os.path.basename(p)}: {os.path.getsize(p)} bytes" for p in paths))


if __name__ == "__main__":
    main()
