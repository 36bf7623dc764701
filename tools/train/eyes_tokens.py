"""The tokenizer of ingot-7m and seven tokens for pictures, in plain Python: text to ids, and the text that stands for a picture.

A byte-level BPE with a cache of words; ASCII alone, which is all that scenes.py writes.
"""
import functools
import json
import os
import re

BASE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "ingot-7m")
PAD, START, END = 0, 1, 2
PICTURE = ["<fake_token_around_image>", "<global-img>", "<image>"] + [f"<row_{r}_col_{c}>" for r in (1, 2) for c in (1, 2)]
N_BASE = 4096
VOCABULARY = N_BASE + len(PICTURE)
IMAGE = N_BASE + PICTURE.index("<image>")
ROWS_A_TILE = 16
SPECIAL = {"<|endoftext|>": PAD, "<|im_start|>": START, "<|im_end|>": END} | {t: N_BASE + i for i, t in enumerate(PICTURE)}
WORDS = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")


@functools.lru_cache(1)
def base():
    """(vocabulary, rank of each merge)"""
    with open(os.path.join(BASE, "tokenizer.json"), encoding="utf-8") as f:
        model = json.load(f)["model"]
    return model["vocab"], {tuple(m) if isinstance(m, list) else tuple(m.split(" ")): i for i, m in enumerate(model["merges"])}


@functools.lru_cache(1 << 16)
def word_ids(word):
    vocabulary, ranks = base()
    parts = list(word.replace(" ", "\u0120").replace("\n", "\u010a"))
    while len(parts) > 1:
        rank, i = min((ranks.get(pair, 1 << 30), i) for i, pair in enumerate(zip(parts, parts[1:])))
        if rank == 1 << 30:
            break
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
    return [vocabulary[p] for p in parts]


def encode(text):
    """Marks such as <image> are taken for tokens."""
    out = []
    for part in re.split("(" + "|".join(map(re.escape, SPECIAL)) + ")", text):
        out += [SPECIAL[part]] if part in SPECIAL else [i for w in WORDS.findall(part) for i in word_ids(w)]
    return out


def decode(ids):
    words = {i: t for t, i in base()[0].items()} | {i: t for t, i in SPECIAL.items()}
    return "".join(words[i] for i in ids).replace("\u0120", " ").replace("\u010a", "\n")


def picture_text(rows, cols):
    """As the processor of SmolVLM writes it; rows = cols = 0: one tile."""
    places = "<image>" * ROWS_A_TILE
    out = ""
    for r in range(1, rows + 1):
        out += "".join(f"<fake_token_around_image><row_{r}_col_{c}>{places}" for c in range(1, cols + 1)) + "\n"
    return out + ("\n" if rows else "") + f"<fake_token_around_image><global-img>{places}<fake_token_around_image>"


def prefix(rows, cols):
    """Everything before the question."""
    return encode("<|im_start|>user\n" + picture_text(rows, cols))


def question_ids(question):
    return encode(question + "<|im_end|>\n<|im_start|>assistant\n")


def answer_ids(answer):
    return encode(answer) + [END]
