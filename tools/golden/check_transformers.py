"""Asks transformers for the logits of golden models that numpy made, and says how far apart they are.

Usage: python3 check_transformers.py GOLDEN NAME ... [--write OUT]     (needs torch, transformers 5, safetensors; CPU only)

The folder GOLDEN/NAME is loaded as any checkpoint is, in fp32 with eager attention; MXFP4 is unpacked first. A model that sees
gets the tiles that its tokens have places for. --write keeps the library's logits as OUT/NAME.safetensors, with the tokens.
Embedding models and rerankers (golden.safetensors has vectors) are pooled here as 1_Pooling/config.json says.
"""
import json
import os
import sys

import torch
from safetensors.torch import load_file, save_file
import transformers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForSequenceClassification

# Nomic's own names, which checkpoints have and the library's class does not read.
NOMIC = {"n_embd": "hidden_size", "n_inner": "intermediate_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}


def config_of(folder):
    """config.json as the library reads it, but for Nomic's names, and for heads that do not divide the width: the library refuses
    those although Gemma 3's heads have a size of their own, so their true number is set behind its check."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        said = json.load(f)
    if said["model_type"] == "gemma3_text" and said["hidden_size"] % said["num_attention_heads"]:
        config = AutoConfig.for_model(**{**said, "num_attention_heads": 1})
        config.num_attention_heads = said["num_attention_heads"]
        return config
    config = AutoConfig.from_pretrained(folder)
    if said["model_type"] == "nomic_bert":
        for theirs, ours in NOMIC.items():
            setattr(config, ours, said[theirs])
        config.head_dim = said["n_embd"] // said["n_head"]
        config.rope_parameters = {"rope_type": "default", "rope_theta": float(said["rotary_emb_base"])}
    return config


def load(folder):
    more = {}
    if getattr(AutoConfig.from_pretrained(folder), "quantization_config", None):
        from transformers import Mxfp4Config
        more["quantization_config"] = Mxfp4Config(dequantize=True)
    config = config_of(folder)
    kind = AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM
    if config.model_type == "mistral4":  # no automatic class has its text model
        kind = transformers.Mistral4ForCausalLM
    model = kind.from_pretrained(folder, config=config, attn_implementation="eager", dtype=torch.float32, **more)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    return model.float().eval()


def pixels_of(folder, golden):
    """Bytes [n, side, side, 3] to [n, 3, side, side]: float32(byte / 255 in double), then mean and deviation in float32."""
    with open(os.path.join(folder, "preprocessor_config.json"), encoding="utf-8") as f:
        settings = json.load(f)
    n, side = int(golden["n_tiles"][0]), settings["size"]["height"]
    data = golden["tiles"].numpy().tobytes()[:n * side * side * 3]
    scaled = (torch.frombuffer(bytearray(data), dtype=torch.uint8).double() * 0.00392156862745098).float().reshape(n, side, side, 3)
    return ((scaled - torch.tensor(settings["image_mean"])) / torch.tensor(settings["image_std"])).permute(0, 3, 1, 2).contiguous()


def pooled(folder, rows):
    with open(os.path.join(folder, "1_Pooling", "config.json"), encoding="utf-8") as f:
        kind = json.load(f)
    x = rows.mean(0) if kind["pooling_mode_mean_tokens"] else rows[0] if kind["pooling_mode_cls_token"] else rows[-1]
    for dense in ("2_Dense", "3_Dense"):
        path = os.path.join(folder, dense, "model.safetensors")
        x = load_file(path)["linear.weight"] @ x if os.path.exists(path) else x
    return x / x.norm()


@torch.no_grad()
def check_vectors(folder, golden):
    """The largest 1 - cosine, or of a reranker the largest difference of scores. Of Qwen3 the two rows are the checkpoint's."""
    ranks, worst, at = not os.path.exists(os.path.join(folder, "1_Pooling")), 0.0, 0
    decodes = ranks and AutoConfig.from_pretrained(folder).model_type == "qwen3"
    kind = AutoModelForSequenceClassification if ranks and not decodes else AutoModel
    model = kind.from_pretrained(folder, config=config_of(folder), attn_implementation="eager", dtype=torch.float32).float().eval()
    words = load_file(os.path.join(folder, "model.safetensors"))["score.weight"] if decodes else None
    for n, want in zip(golden["lengths"].tolist(), golden["vectors"]):
        out = model(input_ids=golden["tokens"][at:at + n][None].long())
        at += n
        if decodes:
            worst = max(worst, abs(torch.softmax(words @ out.last_hidden_state[0, -1], 0)[0] - want[0]).item())
        elif ranks:
            worst = max(worst, abs(torch.sigmoid(out.logits[0, 0]) - want[0]).item())
        else:
            worst = max(worst, 1 - (pooled(folder, out.last_hidden_state[0]).double() @ want.double()).item())
    print(f"{os.path.basename(folder):14s} {'scores apart by' if ranks else '1 - cosine'} at most {worst:.1e}", flush=True)


@torch.no_grad()
def check(folder, out):
    golden = load_file(os.path.join(folder, "golden.safetensors"))
    if "vectors" in golden:
        check_vectors(folder, golden)
        return
    sees = {"pixel_values": pixels_of(folder, golden)} if "tiles" in golden else {}
    logits = load(folder)(input_ids=golden["tokens"][None].long(), use_cache=False, **sees).logits[0].float()
    error = ((logits - golden["logits"]) ** 2).sum(1) / (golden["logits"] ** 2).sum(1)
    print(f"{os.path.basename(folder):14s} squared error at most {error.max():.1e}, first position {error[0]:.1e}", flush=True)
    if out:
        save_file({"tokens": golden["tokens"], "logits": logits.contiguous()}, os.path.join(out, os.path.basename(folder) + ".safetensors"))


def main():
    names = sys.argv[2:]
    out = names[names.index("--write") + 1] if "--write" in names else None
    torch.set_num_threads(1)
    for name in names[:names.index("--write")] if out else names:
        try:
            check(os.path.join(sys.argv[1], name), out)
        except Exception as error:  # one model that the library cannot load must not hide the others
            print(f"{name:14s} {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
