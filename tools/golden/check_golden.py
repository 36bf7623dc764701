"""Checks golden folders: model.gguf must read back to exactly the weights and the configuration of the checkpoint beside it,
and golden.safetensors must have the shapes the configuration implies.

Usage: python3 check_golden.py FOLDER ...     (numpy only: safetensors is read here by hand, as GGUF is)
"""
import json
import os
import struct
import sys

import numpy as np

import gguf_write as gguf
import hf_to_gguf

DTYPES = {"F32": "<f4", "I32": "<i4"}


def read_safetensors(path):
    with open(path, "rb") as f:
        raw = f.read()
    (n,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + n])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(raw[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]], DTYPES[t["dtype"]])
            .reshape(t["shape"]) for name, t in header.items()}


def rope_of(config):
    """Both spellings: rope_parameters, or rope_theta beside rope_scaling with type or rope_type."""
    if config.get("rope_parameters"):
        return config["rope_parameters"]
    scaling = dict(config.get("rope_scaling") or {"type": "default"})
    scaling["rope_type"] = scaling.pop("type", None) or scaling["rope_type"]
    return {"rope_theta": config["rope_theta"], **scaling}


def check(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    weights = {}
    for file in sorted(os.listdir(folder)):
        if file.startswith("model") and file.endswith(".safetensors"):
            weights.update(read_safetensors(os.path.join(folder, file)))
    read = gguf.Reader(os.path.join(folder, "model.gguf"))
    arch, rope = read.meta["general.architecture"], rope_of(config)
    expected = {"embedding_length": config["hidden_size"], "block_count": config["num_hidden_layers"],
                "feed_forward_length": config["intermediate_size"], "attention.head_count": config["num_attention_heads"],
                "attention.head_count_kv": config["num_key_value_heads"], "attention.key_length": config["head_dim"],
                "attention.value_length": config["head_dim"], "rope.dimension_count": config["head_dim"],
                "vocab_size": config["vocab_size"], "context_length": config["max_position_embeddings"],
                "rope.freq_base": np.float32(rope["rope_theta"]),
                "attention.layer_norm_rms_epsilon": np.float32(config["rms_norm_eps"])}
    if rope["rope_type"] in ("linear", "yarn"):
        expected.update({"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": rope["factor"]})
    for key, value in expected.items():
        found = read.meta[f"{arch}.{key}"]
        assert found == value, f"{folder}: {arch}.{key} is {found}, config.json says {value}"
    left = set(read.tensors) - {"rope_freqs.weight"}
    for name, x in weights.items():
        y = read.tensors[hf_to_gguf.gguf_name(name)]
        n_heads = hf_to_gguf.heads_to_permute(name, arch, config)
        assert np.array_equal(hf_to_gguf.unpermute(y, n_heads) if n_heads else y, x), f"{folder}: {name} differs"
        assert not n_heads or not np.array_equal(y, x), f"{folder}: {name} is not permuted"
        left.remove(hf_to_gguf.gguf_name(name))
    assert not left, f"{folder}: only in the GGUF: {left}"
    assert config["tie_word_embeddings"] == ("output.weight" not in read.tensors), folder
    assert (rope["rope_type"] == "llama3") == ("rope_freqs.weight" in read.tensors), folder
    golden = read_safetensors(os.path.join(folder, "golden.safetensors"))
    n, hidden = len(golden["tokens"]), config["hidden_size"]
    assert golden["logits"].shape == (n, config["vocab_size"]) and np.isfinite(golden["logits"]).all(), folder
    for i in range(config["num_hidden_layers"] + 1):
        assert golden[f"hidden.{i}"].shape == (n, hidden), folder
    assert np.array_equal(golden["hidden.0"], weights["model.embed_tokens.weight"][golden["tokens"]]), folder


def main():
    for folder in sys.argv[1:]:
        if os.path.exists(os.path.join(folder, "model.gguf")):
            check(folder)
            print(f"{folder}: ok")
        else:
            print(f"{folder}: holds no model")  # the logits of a model that is shipped elsewhere


if __name__ == "__main__":
    main()
