"""Golden LoRA adapters: for models of tests/golden, with logits from a numpy reference whose weights are merged.

Usage: python3 make_lora_golden.py GOLDEN [name ...]     (GOLDEN: tests/golden, whose models are read; needs numpy alone)

The reference is make_dense_golden.py's, in double: it knows nothing of adapters, its matrices are W + factor B A (Hu et al., 2021;
the factor of rsLoRA from Kalajdzievski, 2023). A folder GOLDEN/lora/NAME holds what PEFT would write, and the same adapter as
GGUF, whose q and k rows lie in the order of that format; a factor that GGUF cannot say is put into B. Numbers are drawn wide, so
that what an adapter adds is no small part of a product.
"""
import json
import os
import struct

import numpy as np

import gguf_write as gguf
import hf_to_gguf
from golden_files import make_named, write_golden, write_safetensors
from make_dense_golden import VARIANTS, Family



class Llama(Family):
    arch, tied, paired = "llama", False, True


MODELS = {**VARIANTS, "tinyllama": Llama(dict(hidden_size=72, num_attention_heads=6, num_key_value_heads=1, head_dim=12, rope_theta=1e4,
                                              intermediate_size=84, num_hidden_layers=2, vocab_size=257), 0)}
SEED = 20264
# modules: part of a layer's name -> (rank, alpha), or None: those of all; kind: of the numbers in PEFT's file
ADAPTERS = {
    # the rows of q and k are permuted in GGUF; every kind of matrix of a layer
    "tinyllama-all": dict(model="tinyllama", rank=3, alpha=7.0, modules={
        "self_attn.q_proj": None, "self_attn.k_proj": (5, 7.0), "self_attn.v_proj": None, "self_attn.o_proj": (3, 2.0),
        "mlp.gate_proj": None, "mlp.up_proj": None, "mlp.down_proj": None}),
    # another of the same model, of fewer modules, by the root of its rank, in half precision
    "tinyllama-root": dict(model="tinyllama", rank=4, alpha=3.0, rslora=True, kind="float16", modules={
        "self_attn.q_proj": None, "mlp.up_proj": None}),
    # a residual stream that is kept divided
    "granite": dict(model="granite", rank=2, alpha=9.0, modules={"self_attn.o_proj": None, "mlp.down_proj": None}),
    # q, k and v in one matrix, gate and up too
    "phi4-mini-fused": dict(model="phi4-mini", rank=2, alpha=4.0, modules={"self_attn.qkv_proj": None, "mlp.gate_up_proj": None}),
    # a head of its own
    "glm4-head": dict(model="glm4", rank=3, alpha=3.0, head=True, modules={"self_attn.o_proj": None}),
}


def read_safetensors(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(n)), f.read()
    kinds = {"F32": "<f4", "I32": "<i4"}
    return {name: np.frombuffer(data[t["data_offsets"][0]:t["data_offsets"][1]], kinds[t["dtype"]]).reshape(t["shape"])
            for name, t in header.items() if name != "__metadata__"}


def draw(v, weights, generator):
    """module -> (A, B, factor, alpha), of all layers."""
    layers = MODELS[v["model"]].c["num_hidden_layers"]
    names = {f"model.layers.{i}.{part}": own for part, own in v["modules"].items() for i in range(layers) if (i + len(part)) % 5}
    if v.get("head"):
        names["lm_head"] = None
    parts = {}
    for name, own in names.items():
        rank, alpha = own or (v["rank"], v["alpha"])
        rows, cols = weights[name + ".weight"].shape
        kind = np.dtype(v.get("kind", "float32"))
        a = (generator.standard_normal((rank, cols)) / cols ** 0.5).astype(kind)
        b = (generator.standard_normal((rows, rank)) * 0.4).astype(kind)
        parts[name] = a, b, alpha / (rank ** 0.5 if v.get("rslora") else rank), alpha
    return parts


def write_peft(folder, v, parts):
    own = {name: x for name, x in v["modules"].items() if x}
    config = dict(peft_type="LORA", task_type="CAUSAL_LM", r=v["rank"], lora_alpha=v["alpha"], use_rslora=v.get("rslora", False),
                  use_dora=False, fan_in_fan_out=False, bias="none", modules_to_save=None, lora_dropout=0.0,
                  target_modules=sorted({name.rsplit(".", 1)[-1] for name in parts}),
                  rank_pattern={name: x[0] for name, x in own.items() if x[0] != v["rank"]},
                  alpha_pattern={name: x[1] for name, x in own.items() if x[1] != v["alpha"]})
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps(config, indent=2, sort_keys=True) + "\n")
    tensors = {}
    for name, (a, b, _, _) in parts.items():
        tensors[f"base_model.model.{name}.lora_A.weight"], tensors[f"base_model.model.{name}.lora_B.weight"] = a, b
    write_safetensors(os.path.join(folder, "adapter_model.safetensors"), tensors)


def write_gguf(folder, v, parts):
    family = MODELS[v["model"]]
    writer = gguf.Writer(family.arch)
    writer.add("general.type", gguf.STR, "adapter")
    writer.add("adapter.type", gguf.STR, "lora")
    writer.add("adapter.lora.alpha", gguf.F32, v["alpha"])
    for name, (a, b, factor, _) in parts.items():
        heads = 0
        if family.paired and (".q_proj" in name or ".k_proj" in name):
            heads = family.c["num_attention_heads" if ".q_proj" in name else "num_key_value_heads"]
        b = b.astype(np.float64) * (factor / (v["alpha"] / a.shape[0]))
        ours = family.gguf_name(name + ".weight")
        writer.tensor(ours + ".lora_a", a)
        writer.tensor(ours + ".lora_b", hf_to_gguf.permute(b, heads) if heads else b)
    writer.write(os.path.join(folder, "adapter.gguf"))


def make(name, index, golden):
    v, folder = ADAPTERS[name], os.path.join(golden, "lora", name)
    generator = np.random.Generator(np.random.PCG64(SEED + index))
    model, family = os.path.join(golden, v["model"]), MODELS[v["model"]]
    weights = read_safetensors(os.path.join(model, "model.safetensors"))
    tokens = read_safetensors(os.path.join(model, "golden.safetensors"))["tokens"]
    os.makedirs(folder, exist_ok=True)
    parts = draw(v, weights, generator)
    family.w = {tensor: x.astype(np.float64) for tensor, x in weights.items()}
    plain = family.logits(tokens)
    reference = read_safetensors(os.path.join(model, "golden.safetensors"))["logits"]
    assert ((plain - reference) ** 2).sum() < 1e-9 * (plain ** 2).sum(), f"{v['model']}: without an adapter these are not its logits"
    for module, (a, b, factor, _) in parts.items():
        family.w[module + ".weight"] = family.w[module + ".weight"] + factor * b.astype(np.float64) @ a.astype(np.float64)
    logits = family.logits(tokens)
    write_peft(folder, v, parts)
    write_gguf(folder, v, parts)
    write_golden(folder, tokens, logits)
    size = sum(os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder))
    print(f"{name:16s} logits moved by {((logits - plain) ** 2).sum() / (plain ** 2).sum():.2f} of their square, {size / 1024:.0f} KB")


if __name__ == "__main__":
    make_named(ADAPTERS, make)
