"""Golden reference models: one tiny, fully re-randomised model per architecture variant, with the logits of a forward pass.

Usage: python3 make_golden.py OUT [name ...]     (needs torch, transformers 5, safetensors, numpy; CPU only, seconds)

The committed folders of tests/golden came from torch 2.11, transformers 5.17; two runs gave the same bytes.

Each OUT/<name>/ holds the model twice, as a checkpoint (config.json, model.safetensors) and as model.gguf, and what the
reference implementation makes of it (golden.safetensors: tokens, logits at every position, the hidden state after the
embedding and after every layer). Freshly initialised models hide mistakes: norms are one, biases zero, logits flat. So
every parameter is drawn anew, and the sizes are odd on purpose: no hidden size is a multiple of 64, head sizes differ from
hidden / heads, the vocabulary is prime, sequences run past the original context where RoPE is scaled.
"""
import json
import os
import sys

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

import check_golden
import gguf_write as gguf
import hf_to_gguf

SEED = 20251


def rope(theta, kind="default", **more):
    return {"rope_type": kind, "rope_theta": float(theta), **more}


# n is the number of tokens; keys: "old" writes config.json as older releases did; shards splits the checkpoint.
VARIANTS = {
    "llama2": dict(cls=LlamaConfig, arch="llama", hidden=56, heads=4, kv=4, head_dim=14, ffn=100, layers=2, vocab=331, n=43,
                   rope=rope(1e4), eps=1e-5),
    "tinyllama": dict(cls=LlamaConfig, arch="llama", hidden=72, heads=6, kv=1, head_dim=12, ffn=84, layers=2, vocab=257, n=47,
                      rope=rope(1e4), eps=1e-5, keys="old"),
    "llama3": dict(cls=LlamaConfig, arch="llama", hidden=72, heads=6, kv=3, head_dim=12, ffn=76, layers=2, vocab=257, n=70,
                   rope=rope(5e5, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=64), eps=1e-5),
    "llama-linear": dict(cls=LlamaConfig, arch="llama", hidden=56, heads=4, kv=2, head_dim=14, ffn=108, layers=2, vocab=331,
                         n=53, rope=rope(1e4, "linear", factor=2.5), eps=1e-5, keys="old"),
    "llama-yarn": dict(cls=LlamaConfig, arch="llama", hidden=72, heads=3, kv=1, head_dim=24, ffn=84, layers=2, vocab=257, n=66,
                       rope=rope(1e4, "yarn", factor=4.0, original_max_position_embeddings=32), eps=1e-6,
                       positions=128),
    "smollm2": dict(cls=LlamaConfig, arch="llama", hidden=72, heads=9, kv=3, head_dim=8, ffn=60, layers=3, vocab=281, n=41,
                    rope=rope(1e5), eps=1e-5, tied=True),
    "mistral": dict(cls=MistralConfig, arch="llama", hidden=72, heads=4, kv=2, head_dim=16, ffn=82, layers=2, vocab=257, n=44,
                    rope=rope(1e6), eps=1e-5),
    "devstral": dict(cls=MistralConfig, arch="llama", hidden=56, heads=6, kv=2, head_dim=16, ffn=90, layers=2, vocab=331, n=51,
                     rope=rope(1e8), eps=1e-5, keys="old"),
    "qwen2": dict(cls=Qwen2Config, arch="qwen2", hidden=56, heads=4, kv=2, head_dim=14, ffn=104, layers=2, vocab=331, n=45,
                  rope=rope(1e6), eps=1e-6),
    "qwen25": dict(cls=Qwen2Config, arch="qwen2", hidden=72, heads=6, kv=2, head_dim=12, ffn=100, layers=2, vocab=331, n=59,
                   rope=rope(1e6), eps=1e-6, tied=True, shards="260KB"),
    "qwen3": dict(cls=Qwen3Config, arch="qwen3", hidden=56, heads=4, kv=2, head_dim=24, ffn=80, layers=3, vocab=331, n=57,
                  rope=rope(1e6), eps=1e-6, tied=True),
}


def make_config(v):
    fields = dict(hidden_size=v["hidden"], num_attention_heads=v["heads"], num_key_value_heads=v["kv"],
                  intermediate_size=v["ffn"], num_hidden_layers=v["layers"], vocab_size=v["vocab"],
                  max_position_embeddings=v.get("positions", 256), rms_norm_eps=v["eps"], rope_parameters=dict(v["rope"]),
                  tie_word_embeddings=v.get("tied", False), bos_token_id=1, eos_token_id=2, pad_token_id=None)
    if v["cls"] is MistralConfig:
        fields["sliding_window"] = None
    if v["cls"] is Qwen2Config:  # has no head_dim of its own
        assert v["head_dim"] * v["heads"] == v["hidden"]
    else:
        fields["head_dim"] = v["head_dim"]
    return v["cls"](**fields, dtype="float32")


@torch.no_grad()
def randomize(model, generator):
    """q and k are drawn wider than 1/sqrt(fan_in), so that attention is not nearly uniform and an error in RoPE shows."""
    def normal(p, std):
        p.copy_(torch.randn(p.shape, generator=generator) * std)

    for name, p in model.named_parameters():
        if name.endswith("norm.weight"):
            p.copy_(0.5 + torch.rand(p.shape, generator=generator))
        elif name.endswith(".bias"):
            normal(p, 0.1)
        elif "embed_tokens" in name:
            normal(p, 2 / p.shape[1] ** 0.5 if model.config.tie_word_embeddings else 1.0)
        else:
            wide = 1.5 if "q_proj" in name or "k_proj" in name else 2.0 if "lm_head" in name else 1.0
            normal(p, wide / p.shape[1] ** 0.5)


@torch.no_grad()
def forward(model, tokens):
    """logits [n, vocab] and the hidden states [n, hidden] after the embedding and after each layer, before the last norm."""
    hidden = []

    def keep(_module, _args, output):
        hidden.append((output[0] if isinstance(output, tuple) else output)[0].clone())

    parts = [model.model.embed_tokens, *model.model.layers]
    hooks = [part.register_forward_hook(keep) for part in parts]
    logits = model(input_ids=tokens[None].long(), use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    assert len(hidden) == len(parts)
    return logits, hidden


def write_old_keys(path):
    """What releases before 5 wrote: rope_theta and rope_scaling at the top level, torch_dtype for dtype."""
    with open(path, encoding="utf-8") as f:
        config = json.load(f)
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    kind = scaling.pop("rope_type")
    config["rope_scaling"] = None if kind == "default" else {"type": kind, **scaling}
    config["torch_dtype"] = config.pop("dtype", "float32")
    config["transformers_version"] = "4.40.0"
    with open(path, "w", encoding="utf-8") as f:
        f.write(json.dumps(config, indent=2, sort_keys=True) + "\n")


def write_gguf(path, name, v, config, weights):
    fields = {**config.to_dict(), "head_dim": v["head_dim"]}
    writer = gguf.Writer(v["arch"])
    writer.add("general.name", gguf.STR, f"golden {name}")
    writer.add("general.type", gguf.STR, "model")
    writer.add("general.file_type", gguf.U32, 0)
    hf_to_gguf.add_model(writer, v["arch"], fields, v["rope"])
    writer.add("tokenizer.ggml.model", gguf.STR, "none")
    hf_to_gguf.add_tensors(writer, v["arch"], fields, v["rope"], weights)
    writer.write(path)


def make(name, index, out):
    v = VARIANTS[name]
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    generator = torch.Generator().manual_seed(SEED + index)
    config = make_config(v)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    randomize(model, generator)
    model.save_pretrained(folder, max_shard_size=v.get("shards", "10MB"))
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))  # says nothing that a test reads
    if v.get("keys") == "old":
        write_old_keys(os.path.join(folder, "config.json"))
    tokens = torch.randint(0, v["vocab"], (v["n"],), generator=generator, dtype=torch.int32)
    logits, hidden = forward(model, tokens)
    tensors = {"tokens": tokens, "logits": logits.contiguous()}
    tensors.update({f"hidden.{i}": h.contiguous() for i, h in enumerate(hidden)})
    save_file(tensors, os.path.join(folder, "golden.safetensors"))

    again = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    assert torch.equal(forward(again, tokens)[0], logits), f"{name}: the saved model gives other logits"
    weights = {}
    for file in sorted(os.listdir(folder)):
        if file.startswith("model") and file.endswith(".safetensors"):
            weights.update(load_file(os.path.join(folder, file)))
    write_gguf(os.path.join(folder, "model.gguf"), name, v, config, {k: w.numpy() for k, w in weights.items()})

    exact = forward(model.double(), tokens)[0]  # products in fp64; the reference keeps norms, softmax and angles in fp32
    nmse = float(((logits - exact) ** 2).sum() / (exact ** 2).sum())
    top = torch.topk(exact, 2).values
    size = {f: os.path.getsize(os.path.join(folder, f)) // 1000 for f in sorted(os.listdir(folder))}
    print(f"{name:13s} logits std {logits.std():.3f} max {logits.abs().max():.2f} smallest margin {(top[:, 0] - top[:, 1]).min():.1e}"
          f" fp32 against fp64 nmse {nmse:.1e} kB {size}")
    assert nmse < 1e-11, f"{name}: the reference itself is not accurate"


def main():
    out = sys.argv[1]
    torch.set_num_threads(1)  # one order of summation, whatever the machine
    for index, name in enumerate(VARIANTS):
        if len(sys.argv) == 2 or name in sys.argv[2:]:
            make(name, index, out)
            check_golden.check(os.path.join(out, name))


if __name__ == "__main__":
    main()
