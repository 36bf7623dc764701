"""From the checkpoint of train.py to the shipped files.

Usage: python3 export.py OUT REPOSITORY

Writes models/ingot-7m/ (BF16 safetensors in two shards, config, tokenizer), models/ingot-7m-q8_0.gguf, models/eval.jsonl and
tests/golden/ingot-7m/ (logits of the BF16 weights in fp32, greedy continuations), all below REPOSITORY. The reference
implementation loads what was written and must give the training model's logits.
"""
import json
import os
import shutil
import sys

import numpy as np
import torch
from safetensors.torch import save_file

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
import gguf_write as gguf
import hf_to_gguf
from model import Config, Decoder
from train import END, PAD, SPECIAL, START, render

NAME = "ingot-7m"
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
GOLDEN_CHAT = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": "What is 23 x 17?"},
               {"role": "assistant", "content": "23 x 10 = 230, 23 x 7 = 161, 230 + 161 = 391. So 23 x 17 = 391."},
               {"role": "user", "content": "Thank you! Now tell me a short story about a fox and a lost key."}]
# Of each group the prompt whose continuation is never close to a tie is kept, so that rounding cannot change a token.
GREEDY = [["Tell me a short story about a fox.", "Tell me a short story about a brave owl.", "Tell me a story about a dragon.", "Tell me a story about a girl named Mia.",
           "Write a story about a robot who wants to sing.", "Tell me a story about a lost key."],
          ["How many words are in \"the small dog found a red ball in the garden\"?", "Count the words: apple river stone music lamp garden cloud"],
          ["Who are you?", "What can you do?"]]


def config_json(c):
    """The older key names, which every reader knows."""
    return {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": START, "eos_token_id": END,
            "head_dim": c.head_dim, "hidden_act": "silu", "hidden_size": c.hidden, "initializer_range": 0.04, "intermediate_size": c.ffn,
            "max_position_embeddings": c.max_positions, "mlp_bias": False, "model_type": "llama", "num_attention_heads": c.heads,
            "num_hidden_layers": c.layers, "num_key_value_heads": c.kv_heads, "pad_token_id": PAD, "rms_norm_eps": c.eps, "rope_scaling": None,
            "rope_theta": c.rope_theta, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": c.vocab}


def write_json(path, data):
    with open(path, "w", encoding="utf-8") as f:
        f.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def write_safetensors(folder, weights):
    """Two shards of about half the bytes each; a layer may be split between them."""
    half, shards, size = sum(w.nbytes for w in weights.values()) / 2, [{}, {}], 0
    for name, w in weights.items():
        shards[size >= half].setdefault(name, w)
        size += w.nbytes
    index = {"metadata": {"total_size": size}, "weight_map": {}}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05d}-of-00002.safetensors"
        save_file(shard, os.path.join(folder, file), metadata={"format": "pt"})
        index["weight_map"].update(dict.fromkeys(shard, file))
    index["weight_map"] = dict(sorted(index["weight_map"].items()))
    write_json(os.path.join(folder, "model.safetensors.index.json"), index)


def write_tokenizer_config(folder, positions):
    added = {str(i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True} for i, t in enumerate(SPECIAL)}
    write_json(os.path.join(folder, "tokenizer_config.json"),
               {"add_bos_token": False, "add_prefix_space": False, "added_tokens_decoder": added, "additional_special_tokens": SPECIAL[1:],
                "bos_token": SPECIAL[START], "chat_template": TEMPLATE, "clean_up_tokenization_spaces": False, "eos_token": SPECIAL[END],
                "model_max_length": positions, "pad_token": SPECIAL[PAD], "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": None})
    write_json(os.path.join(folder, "generation_config.json"), {"bos_token_id": START, "eos_token_id": END, "pad_token_id": PAD})


def write_gguf(path, config, weights, tokenizer):
    rope = {"rope_type": "default", "rope_theta": config["rope_theta"]}
    w = gguf.Writer("llama")
    for key, value in (("type", "model"), ("name", "Ingot 7M"), ("size_label", "7M"), ("license", "apache-2.0"),
                       ("description", "Small chat model: short stories, questions about them, arithmetic, sorting and counting.")):
        w.add("general." + key, gguf.STR, value)
    w.add_array("general.languages", gguf.STR, ["en"])
    w.add("general.file_type", gguf.U32, 7)
    w.add("general.quantization_version", gguf.U32, 2)
    hf_to_gguf.add_model(w, "llama", config, rope)
    hf_to_gguf.add_tokenizer(w, tokenizer, TEMPLATE, {"bos": START, "eos": END, "padding": PAD})
    hf_to_gguf.add_tensors(w, "llama", config, rope, {k: v.float().numpy() for k, v in weights.items()}, gguf.GGML_Q8_0)
    w.write(path)


@torch.no_grad()
def greedy(model, ids, n):
    """n tokens past the prompt, whatever they are, and the smallest distance of the best logit to the second on the way."""
    out, margin = list(ids), float("inf")
    for _ in range(n):
        best = torch.topk(model(input_ids=torch.tensor([out]), use_cache=False).logits[0, -1], 2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        out.append(int(best.indices[0]))
    return out[len(ids):], margin


@torch.no_grad()
def write_golden(folder, model, tokenizer):
    ids = tokenizer.apply_chat_template(GOLDEN_CHAT, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(ids, add_special_tokens=False)["input_ids"][:48]
    assert len(ids) == 48
    tokens = torch.tensor(ids, dtype=torch.int32)
    logits = model(input_ids=tokens[None].long(), use_cache=False).logits[0].contiguous()
    save_file({"tokens": tokens, "logits": logits}, os.path.join(folder, "golden.safetensors"))
    runs = []
    for group in GREEDY:
        tried = []
        for text in group:
            messages = [{"role": "user", "content": text}]
            prompt = tokenizer(render(messages), add_special_tokens=False)["input_ids"]
            said, margin = greedy(model, prompt, 32)
            tried.append({"messages": messages, "prompt": prompt, "continuation": said, "text": tokenizer.decode(said), "smallest_margin": round(margin, 4)})
        runs.append(max(tried, key=lambda run: run["smallest_margin"]))
        print("greedy:", runs[-1]["text"], [run["smallest_margin"] for run in tried])
    write_json(os.path.join(folder, "greedy.json"), {"runs": runs})


def check(folder, source, config):
    """The written folder, read by the reference implementation, against the training model with BF16 weights."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    assert all(torch.equal(p, p.to(torch.bfloat16).float()) for p in model.parameters())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(GOLDEN_CHAT, add_generation_prompt=True, tokenize=False)
    assert text == render(GOLDEN_CHAT), text
    ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
    for p in source.parameters():
        p.data = p.data.to(torch.bfloat16).float()
    with torch.no_grad():
        mine = torch.stack([source.next_logits(ids, torch.tensor([i]))[0] for i in range(ids.shape[1])])
        theirs = model(input_ids=ids, use_cache=False).logits[0]
    nmse = float(((mine - theirs) ** 2).sum() / (theirs ** 2).sum())
    print(f"reference implementation against training model: nmse {nmse:.1e}, {config['vocab_size']} tokens, loaded as {type(tokenizer).__name__}")
    assert nmse < 1e-9
    return model, tokenizer


def main():
    out, repository = sys.argv[1:3]
    c = Config()
    source = Decoder(c)
    source.load_state_dict(torch.load(os.path.join(out, "checkpoint.pt"), map_location="cpu")["model"])
    folder = os.path.join(repository, "models", NAME)
    golden = os.path.join(repository, "tests", "golden", NAME)
    os.makedirs(folder, exist_ok=True)
    os.makedirs(golden, exist_ok=True)
    config = config_json(c)
    weights = {"model." + k: p.detach().to(torch.bfloat16).contiguous() for k, p in source.named_parameters()}
    write_json(os.path.join(folder, "config.json"), config)
    write_safetensors(folder, weights)
    shutil.copy(os.path.join(out, "tokenizer.json"), folder)
    write_tokenizer_config(folder, c.max_positions)
    shutil.copy(os.path.join(out, "eval.jsonl"), os.path.join(repository, "models", "eval.jsonl"))
    with open(os.path.join(out, "tokenizer.json"), encoding="utf-8") as f:
        write_gguf(os.path.join(repository, "models", f"{NAME}-q8_0.gguf"), config, weights, json.load(f))
    model, tokenizer = check(folder, source, config)
    write_golden(golden, model, tokenizer)
    read = gguf.Reader(os.path.join(repository, "models", f"{NAME}-q8_0.gguf"))
    x = weights["model.layers.3.self_attn.k_proj.weight"].float().numpy()
    y = hf_to_gguf.unpermute(read.tensors["blk.3.attn_k.weight"], c.kv_heads)
    assert np.abs(x - y).max() <= np.abs(x).max() / 127, "the GGUF does not hold the weights"


if __name__ == "__main__":
    main()
