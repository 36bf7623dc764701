#!/usr/bin/env python3
"""exl3_random.py BITS FOLDER [SHAPE] - a folder of safetensors whose matrices are random codes of EXL3, for measuring speed.

SHAPE: layers,width,heads,kv_heads,ffn,vocabulary; without it that of Llama-3.1-8B. Then perhaps experts,used: a model of Qwen3-MoE's
kind with heads of 128, whose experts have ffn hidden numbers (Qwen3-30B-A3B: 48,2048,32,4,768,151936,128,8). The head has 6 bits, the embedding F16, the
codebook is MUL1. Random codes are numbers of deviation 1, and factors of +-0.02 on the outputs make them as large as real weights.
"""
import json, os, random, struct, sys


def tensors_of(shape, bits):
    layers, width, heads, kv_heads, ffn, vocabulary, experts = (shape + [0])[:7]
    head_dim = 128 if experts else width // heads
    yield "model.embed_tokens.weight", "F16", [vocabulary, width]
    yield "model.norm.weight", "F16", [width]
    yield from matrix("lm_head", width, vocabulary, max(6, bits))
    for i in range(layers):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", "F16", [width]
        yield at + "post_attention_layernorm.weight", "F16", [width]
        for name, n_in, n_out in [
            ("self_attn.q_proj", width, heads * head_dim), ("self_attn.k_proj", width, kv_heads * head_dim),
            ("self_attn.v_proj", width, kv_heads * head_dim), ("self_attn.o_proj", heads * head_dim, width)]:
            yield from matrix(at + name, n_in, n_out, bits)
        if experts:
            yield at + "self_attn.q_norm.weight", "F16", [head_dim]
            yield at + "self_attn.k_norm.weight", "F16", [head_dim]
            yield at + "mlp.gate.weight", "F16", [experts, width]
        for mlp in [f"mlp.experts.{e}." for e in range(experts)] or ["mlp."]:
            for name, n_in, n_out in [("gate_proj", width, ffn), ("up_proj", width, ffn), ("down_proj", ffn, width)]:
                yield from matrix(at + mlp + name, n_in, n_out, bits)


def matrix(name, n_in, n_out, bits):
    n_in, n_out = (n_in + 127) // 128 * 128, (n_out + 127) // 128 * 128
    yield name + ".trellis", "I16", [n_in // 16, n_out // 16, 16 * bits]
    yield name + ".suh", "F16", [n_in]
    yield name + ".svh", "F16", [n_out]
    yield name + ".mul1", "I32", []


def content(name, n_bytes, pool, rng):
    half = lambda v: struct.pack("<e", v)
    if name.endswith(".mul1"):
        return struct.pack("<I", 0x83DCD12D)
    if name.endswith(("suh", "svh")):
        size, kind = 1.0 if name.endswith("suh") else 0.02, (name[-3:], n_bytes)
        if kind not in pool:
            pool[kind] = b"".join(half(size * rng.choice((-1, 1))) for _ in range(n_bytes // 2))
        return pool[kind]
    if name.endswith("mlp.gate.weight"):  # otherwise all rows choose the same experts
        return struct.pack(f"<{n_bytes // 2}e", *(rng.gauss(0, 0.02) for _ in range(n_bytes // 2)))
    if name.endswith("norm.weight"):
        return half(1.0) * (n_bytes // 2)
    if name.endswith("embed_tokens.weight"):  # numbers between 2^-6 and 2^-5 of both signs
        return pool["halves"]
    return pool["codes"]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    bits, folder = int(sys.argv[1]), sys.argv[2]
    shape = [int(n) for n in sys.argv[3].split(",")] if len(sys.argv) > 3 else [32, 4096, 32, 8, 14336, 128256]
    rng = random.Random(1)
    codes = rng.randbytes(1 << 24)
    halves = struct.pack("<4096H", *((rng.getrandbits(1) << 15 | 0x2400 | rng.getrandbits(10)) for _ in range(4096))) * 2048
    pool = {"codes": codes, "halves": halves}
    sizes = {"F16": 2, "I16": 2, "I32": 4}
    header, at, all = {}, 0, list(tensors_of(shape, bits))
    for name, dtype, dims in all:
        n = sizes[dtype]
        for d in dims:
            n *= d
        header[name] = {"dtype": dtype, "shape": dims, "data_offsets": [at, at + n]}
        at += n
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        f.write(struct.pack("<Q", len(text)) + text)
        for name, dtype, dims in all:
            begin, end = header[name]["data_offsets"]
            part = content(name, end - begin, pool, rng)
            for first in range(begin, end, len(part)):
                f.write(part[: end - first])
    layers, width, heads, kv_heads, ffn, vocabulary = shape[:6]
    config = {"model_type": "llama", "hidden_act": "silu", "hidden_size": width, "intermediate_size": ffn,
              "max_position_embeddings": 8192, "num_attention_heads": heads, "num_hidden_layers": layers,
              "num_key_value_heads": kv_heads, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "vocab_size": vocabulary,
              "tie_word_embeddings": False, "torch_dtype": "float16", "bos_token_id": 1, "eos_token_id": 2,
              "quantization_config": {"bits": bits, "head_bits": max(6, bits), "codebook": "mul1", "quant_method": "exl3"}}
    if shape[6:]:
        config.update({"model_type": "qwen3_moe", "head_dim": 128, "num_experts": shape[6], "num_experts_per_tok": shape[7],
                       "moe_intermediate_size": ffn, "norm_topk_prob": True})
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=1)


main()
