"""Golden vectors of models with eyes (Idefics3, SmolVLM), from transformers in fp32.

Usage: python3 make_vision_golden.py MODELS OUT [name ...]     (needs torch, transformers 5, safetensors; CPU, seconds)

MODELS/<name>/ is a folder that vision_models.py has made: the model, its tokens and the pixels of its tiles.
OUT/<name>/golden.safetensors gets the same tokens and tiles, and what the reference implementation makes of them: the
encoder's output (behind the last norm), the connector's, and the logits at every position. The committed ones came from torch
2.11, transformers 5.17.

The position id of patch i is i, as the models were trained. Releases from 4.55 on compute ids that are one too low from the
second row and column on, in fp32; 5.17 is right again. So that any release serves, the ids are put in here; printed beside is
how much the release's own would change, and how far numbers that MODELS has already lie from these.
"""
import json
import os
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file


def embed_patches(embeddings):
    """The forward pass of the tower's embeddings for full tiles."""
    def forward(pixel_values, patch_attention_mask=None, **_more):
        patches = embeddings.patch_embedding(pixel_values).flatten(2).transpose(1, 2)
        return patches + embeddings.position_embedding.weight[None, :patches.shape[1]]
    return forward


def open_model(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    for part in (config, config.text_config):
        part.pad_token_id = None  # that of the file lies beyond the vocabulary, as in real files, and torch does not take it
    model, info = transformers.AutoModelForImageTextToText.from_pretrained(folder, config=config, dtype=torch.float32,
                                                                           attn_implementation="eager", output_loading_info=True)
    missing = set(info["missing_keys"])
    if "lm_head.weight" in missing:  # a file without a head means its embeddings
        model.lm_head.weight = model.get_input_embeddings().weight
        missing.remove("lm_head.weight")
    assert not missing and not info["unexpected_keys"], info
    return model.eval()


def pixels_of(tiles, n_tiles, side):
    """Bytes [n, side, side, 3] to normalised [1, n, 3, side, side]: float32(byte / 255 in double), then (x - 0.5) / 0.5 in float32."""
    data = tiles.numpy().tobytes()[:n_tiles * side * side * 3]
    scaled = (torch.frombuffer(bytearray(data), dtype=torch.uint8).double() * 0.00392156862745098).float()
    return ((scaled - 0.5) / 0.5).reshape(n_tiles, side, side, 3).permute(0, 3, 1, 2)[None].contiguous()


@torch.no_grad()
def forward(model, tokens, pixels):
    """The encoder's output [n * patches, hidden], the connector's [n * rows, text] and logits [tokens, vocabulary]."""
    seen = {}

    def keep(name):
        def hook(_module, _args, output):
            value = output if torch.is_tensor(output) else output[0]
            seen[name] = value.reshape(-1, value.shape[-1]).contiguous().clone()
        return hook

    inner = model.model
    hooks = [inner.vision_model.register_forward_hook(keep("encoded")), inner.connector.register_forward_hook(keep("connected"))]
    logits = model(input_ids=tokens[None].long(), pixel_values=pixels, use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    return {**seen, "logits": logits.contiguous()}


def nmse(want, got):
    return float(((want.double() - got.double()) ** 2).sum() / (want.double() ** 2).sum())



def make(name, models, out):
    folder, side = os.path.join(models, name), None
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        side = json.load(f)["vision_config"]["image_size"]
    golden = load_file(os.path.join(folder, "golden.safetensors"))
    n_tiles = int(golden["n_tiles"][0])
    pixels, model = pixels_of(golden["tiles"], n_tiles, side), open_model(folder)
    as_released = forward(model, golden["tokens"], pixels)
    embeddings = model.model.vision_model.embeddings
    embeddings.forward = embed_patches(embeddings)
    ours = forward(model, golden["tokens"], pixels)
    exact = forward(model.double(), golden["tokens"], pixels.double())
    os.makedirs(os.path.join(out, name), exist_ok=True)
    save_file({**{k: golden[k] for k in ("tokens", "n_tiles", "tiles")}, **ours}, os.path.join(out, name, "golden.safetensors"))
    for part in ("encoded", "connected", "logits"):
        before = golden.get(part, ours[part])
        assert ours[part].shape == before.shape, (name, part, ours[part].shape, before.shape)
        print(f"{name:9s} {part:9s} {tuple(ours[part].shape)}: fp32 against fp64 {nmse(exact[part], ours[part]):.1e}, "
              f"the numbers in {models} {nmse(ours[part], before):.1e}, the release's position ids {nmse(ours[part], as_released[part]):.1e}")
        assert nmse(exact[part], ours[part]) < 1e-11, f"{name}: the reference itself is not accurate"


def main():
    models, out = sys.argv[1:3]
    torch.set_num_threads(1)  # one order of summation, whatever the machine
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    for name in sys.argv[3:] or ("smolvlm", "idefics3"):
        make(name, models, out)


if __name__ == "__main__":
    main()
