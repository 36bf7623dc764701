"""Golden models with a layer that drafts tokens (MTP, "nextn"), with its logits from a numpy reference in double precision.

Usage: python3 make_draft_golden.py OUT [name ...]     (needs numpy alone)

The models are those of make_glm_golden.py, make_latent_golden.py and make_hybrid_golden.py with one layer more. As DeepSeek-AI describe it (2024, V3, 2.2): the layer's
row i takes the token i + 1 and what the model made of the tokens up to i, behind its last norm; its logits are those of token i + 2.
Layers add little to what a token's embedding says, and the drafting layer's matrix is near to the identity on its first half, so that its
drafts are often right. One model has an embedding and a head of the layer's own, one repeats the model's, as checkpoints do; Qwen3.5 has neither,
a layer of full attention, its tensors under "mtp." and norms of 1 + w (the Qwen team, 2025 and 2026: Qwen3-Next, Qwen3.5).
"""
import os

import numpy as np

import make_glm_golden as glm
import make_hybrid_golden as hybrid
import make_latent_golden as latent
import gguf_write as gguf
from golden_files import make_named, write_config, write_safetensors

SEED = 20300
SMALL = dict(vocab_size=61, num_hidden_layers=2, first_k_dense_replace=1, num_nextn_predict_layers=1, max_position_embeddings=256,
             n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, topk_method="noaux_tc", scoring_func="sigmoid", n_group=1,
             topk_group=1, norm_topk_prob=True, rms_norm_eps=1e-5)
VARIANTS = {
    "mtp-glm4moe": dict(n=41, draft=1, own=True, config=dict(
        SMALL, hidden_size=28, num_attention_heads=4, num_key_value_heads=2, head_dim=12, partial_rotary_factor=0.5, use_qk_norm=False,
        intermediate_size=34, moe_intermediate_size=14, routed_scaling_factor=1.0, rope_theta=1e4)),
    "mtp-deepseek3": dict(n=37, draft=1, own=False, config=dict(
        SMALL, model_type="deepseek_v3", hidden_size=24, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=18, kv_lora_rank=16,
        qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=8, intermediate_size=30, moe_intermediate_size=12,
        routed_scaling_factor=1.5, rope_theta=1e4, rope_scaling=None)),
    "mtp-qwen35": dict(arch="qwen35", n=41, draft=1, config={
        **hybrid.VARIANTS["qwen35"]["config"], "vocab_size": 61, "hidden_size": 28, "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False}),
    "mtp-qwen35moe": dict(arch="qwen35moe", n=37, draft=1, config={
        **hybrid.VARIANTS["qwen35moe"]["config"], "vocab_size": 61, "hidden_size": 24, "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False, "full_attention_interval": 2,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"]}),
}
QWEN35_OWN = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head_norm"}


def draw(name, generator):
    """The model's tensors and its drafting layer's, which is drawn as one more of the model's."""
    v = VARIANTS[name]
    c = v["config"]
    deeper = dict(v, draft=0, config=dict(c, num_hidden_layers=c["num_hidden_layers"] + 1))
    w = (glm if "glm" in name else latent).draw(deeper, generator)
    hidden, at = c["hidden_size"], f"model.layers.{c['num_hidden_layers']}."
    for tensor in w:
        if tensor.endswith(("o_proj.weight", "down_proj.weight")):
            w[tensor] *= np.float32(0.1)
    near = np.concatenate([np.eye(hidden), np.zeros((hidden, hidden))], 1)
    w[at + "eh_proj.weight"] = (near + generator.standard_normal(near.shape) * 0.02).astype(np.float32)
    for norm in ("enorm", "hnorm", "shared_head.norm"):
        w[f"{at}{norm}.weight"] = (0.8 + 0.4 * generator.random(hidden)).astype(np.float32)
    for part, of in (("embed_tokens", "model.embed_tokens"), ("shared_head.head", "lm_head")):
        x = w[of + ".weight"]
        noise = generator.standard_normal(x.shape) * 0.1 * v["own"]
        w[f"{at}{part}.weight"] = (x + noise).astype(np.float32)
    return w


def draft_logits(r, tokens, h):
    """r: the reference. h [n, hidden]: behind the model's last norm. The logits of tokens 2, 3, ..., n."""
    at, eps = f"model.layers.{r.c['num_hidden_layers']}.", r.c["rms_norm_eps"]
    e = r.w[at + "embed_tokens.weight"][tokens[1:]]
    x = np.concatenate([r.norm(e, at + "enorm", eps), r.norm(h[:-1], at + "hnorm", eps)], -1) @ r.w[at + "eh_proj.weight"].T
    x = x + r.attention(r.norm(x, at + "input_layernorm", eps), at)
    x = x + r.mixture(r.norm(x, at + "post_attention_layernorm", eps), at + "mlp.")
    return r.norm(x, at + "shared_head.norm", eps) @ r.w[at + "shared_head.head.weight"].T


def draw_qwen35(v, generator):
    """One layer more, of full attention, which becomes the drafting one."""
    c = v["config"]
    layers, hidden, at = c["num_hidden_layers"], c["hidden_size"], f"model.layers.{c['num_hidden_layers']}."
    deeper = dict(v, config=dict(c, num_hidden_layers=layers + 1, layer_types=[*c["layer_types"], "full_attention"]))
    old, w = hybrid.BASE["vocab_size"], {}
    hybrid.BASE["vocab_size"] = c["vocab_size"]
    for name, x in hybrid.Draw.qwen35(hybrid.Draw(deeper, generator)).items():
        if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight", "down_proj")):
            x = x * np.float32(0.1)
        w[name.replace(at, "mtp.layers.0.")] = x
    hybrid.BASE["vocab_size"] = old
    near = np.concatenate([np.eye(hidden), np.zeros((hidden, hidden))], 1)
    w["mtp.fc.weight"] = (near + generator.standard_normal(near.shape) * 0.02).astype(np.float32)
    for norm in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        w[f"mtp.{norm}.weight"] = (-0.2 + 0.4 * generator.random(hidden)).astype(np.float32)
    return w


def qwen35_draft_logits(r, tokens, h):
    """As draft_logits."""
    at = "mtp.layers.0."
    e = r.w["model.embed_tokens.weight"][tokens[1:]]
    both = np.concatenate([r.plus_one(e, "mtp.pre_fc_norm_embedding.weight"), r.plus_one(h[:-1], "mtp.pre_fc_norm_hidden.weight")], -1)
    x = r.linear(both, "mtp.fc")
    x = x + r.attention(r.plus_one(x, at + "input_layernorm.weight"), at + "self_attn.")
    y = r.plus_one(x, at + "post_attention_layernorm.weight")
    x = x + (r.mixture(y, at + "mlp.") if "num_experts" in r.c else r.ffn(y, at + "mlp.", ("gate_proj", "up_proj", "down_proj")))
    return r.linear(r.plus_one(x, "mtp.norm.weight"), "lm_head")


def write_qwen35_gguf(path, name, v, weights):
    """The drafting layer is the block behind the model's; block_count has it."""
    c, arch = {**hybrid.BASE, **v["config"]}, v["arch"]
    layers, w = c["num_hidden_layers"], gguf.Writer(arch)
    w.add("general.name", gguf.STR, f"golden {name}")
    w.add("general.file_type", gguf.U32, 0)
    w.add(f"{arch}.vocab_size", gguf.U32, c["vocab_size"])
    w.add(f"{arch}.context_length", gguf.U32, c["max_position_embeddings"])
    w.add(f"{arch}.nextn_predict_layers", gguf.U32, 1)
    hybrid.qwen35_keys(w, v, {**c, "num_hidden_layers": layers + 1})
    w.add("tokenizer.ggml.model", gguf.STR, "none")
    as_layer = {name.replace("mtp.layers.0.", f"model.layers.{layers}."): x for name, x in weights.items()}
    for tensor, x in hybrid.qwen35_tensors(as_layer, c).items():
        w.tensor(tensor, x)
    for own, tensor in QWEN35_OWN.items():
        w.tensor(f"blk.{layers}.nextn.{tensor}.weight", weights[f"mtp.{own}.weight"] + np.float32(own != "fc"))
    w.write(path)


def hidden_of(r, tokens):
    """What the model makes of the tokens, behind its last norm."""
    head, r.w["lm_head.weight"] = r.w["lm_head.weight"], np.eye(r.c["hidden_size"])
    h = r.logits(tokens)
    r.w["lm_head.weight"] = head
    return h


def finish(folder, r, tokens, draft):
    """The reference's logits."""
    logits, h = r.logits(tokens), hidden_of(r, tokens)
    drafts = draft(r, tokens, h)
    assert r.gap > 2e-4, f"{folder}: a near tie of experts, {r.gap}; take another seed"
    write_safetensors(os.path.join(folder, "golden.safetensors"),
                      {"tokens": tokens, "logits": logits.astype(np.float32), "drafts": drafts.astype(np.float32)})
    agree = (drafts.argmax(-1) == logits[1:].argmax(-1)).mean()
    print(f"{os.path.basename(folder):14s} logits std {logits.std():.3f}, {agree:.0%} of the drafts right, "
          f"smallest gap between experts {r.gap:.1e}")


def make_qwen35(name, index, out):
    v, folder = VARIANTS[name], os.path.join(out, name)
    generator = np.random.Generator(np.random.PCG64(SEED + index))
    os.makedirs(folder, exist_ok=True)
    weights = draw_qwen35(v, generator)
    tokens = generator.integers(0, v["config"]["vocab_size"], v["n"]).astype(np.int32)
    write_config(folder, {**hybrid.BASE, **v["config"]})
    write_safetensors(os.path.join(folder, "model.safetensors"), weights)
    write_qwen35_gguf(os.path.join(folder, "model.gguf"), name, v, weights)
    finish(folder, hybrid.Qwen35(v, weights), tokens, qwen35_draft_logits)


def make(name, index, out):
    v, folder = VARIANTS[name], os.path.join(out, name)
    if "qwen35" in name:
        make_qwen35(name, index, out)
        return
    source, reference = (glm, glm.Glm) if "glm" in name else (latent, latent.Reference)
    generator = np.random.Generator(np.random.PCG64(SEED + index))
    os.makedirs(folder, exist_ok=True)
    weights, c = draw(name, generator), {**source.BASE, **v["config"]}
    tokens = generator.integers(0, c["vocab_size"], v["n"]).astype(np.int32)
    write_config(folder, c)
    write_safetensors(os.path.join(folder, "model.safetensors"), weights)
    source.write_gguf(os.path.join(folder, "model.gguf"), name, v, weights, *([] if source is glm else [False]))
    finish(folder, reference(v, weights), tokens, draft_logits)


if __name__ == "__main__":
    make_named(VARIANTS, make)
