"""Asks transformers for the logits of golden models that numpy made, and says how far apart they are.

Usage: python3 check_transformers.py GOLDEN NAME ... [--write OUT]     (needs torch, transformers 5, safetensors; CPU only)

The folder GOLDEN/NAME is loaded as any checkpoint is, in fp32 with eager attention; MXFP4 is unpacked first. --write keeps the
library's logits as OUT/NAME.safetensors, with the tokens.
"""
import os
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM


def load(folder):
    more = {}
    if getattr(AutoConfig.from_pretrained(folder), "quantization_config", None):
        from transformers import Mxfp4Config
        more["quantization_config"] = Mxfp4Config(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32, **more)
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    return model.float().eval()


@torch.no_grad()
def check(folder, out):
    golden = load_file(os.path.join(folder, "golden.safetensors"))
    logits = load(folder)(input_ids=golden["tokens"][None].long(), use_cache=False).logits[0].float()
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
