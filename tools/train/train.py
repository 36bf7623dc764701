"""Trains the shipped model: tokenizer, data, loop, evaluation, checkpoint.

Usage: python3 train.py OUT [--steps N] [--tokens N] [--rows N] [--smoke]     (one GPU; about six minutes in full)

Writes OUT/checkpoint.pt, OUT/tokenizer.json, OUT/eval.jsonl, OUT/report.json. Then: python3 export.py OUT REPOSITORY.
Everything is seeded; the GPU's order of summation is not fixed, so a second run gives a model of the same quality, not the
same bytes.
"""
import argparse
import json
import math
import multiprocessing
import os
import re
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch

import corpus
from model import Config, Decoder, packed_loss

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PAD, START, END = 0, 1, 2
ROW = 1024  # tokens read per packed row; one more is stored as the last target
CONVERSATIONS_PER_SHARD = 8000
SEED = "ingot-7m"


def log(*what):
    print(f"[{time.time() - log.start:6.1f} s]", *what, flush=True)


log.start = time.time()


# --- tokenizer --------------------------------------------------------------------------------------------------------

def train_tokenizer(path, vocab, n_shards, held):
    """Digits are taken out of the text the merges are learnt from, so every digit stays a token of its own and sums can be
    learnt column by column."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    texts = (re.sub(r"[0-9]", "", text) for i in range(n_shards) for turns in corpus.shard(SEED, i, CONVERSATIONS_PER_SHARD, held) for _, text, _ in turns)
    tokenizer.train_from_iterator(texts, trainer)
    assert tokenizer.get_vocab_size() == vocab, f"only {tokenizer.get_vocab_size()} tokens: the corpus has too few words"
    assert all(tokenizer.token_to_id(t) == i for i, t in enumerate(SPECIAL))
    tokenizer.save(path)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return tokenizer


# --- data -------------------------------------------------------------------------------------------------------------

def encode_turns(tokenizer, conversations):
    """Yields (ids, weights) per conversation. The weight of a token is what its prediction counts."""
    texts = [part for turns in conversations for role, text, _ in turns for part in (role + "\n", text)]
    pieces = iter(tokenizer.encode_batch_fast(texts))
    newline = tokenizer.encode("\n").ids
    for turns in conversations:
        ids, weights = [], []
        for role, _, weight in turns:
            head, body = [START] + next(pieces).ids, next(pieces).ids + [END]
            ids += head + body + newline
            weights += [0.02] * len(head) + [weight] * len(body) + [0.02] * len(newline)
        if len(ids) <= ROW:
            yield ids, weights


def pack(encoded):
    """First fit into a few open rows. Returns ids, weights as 1/200, conversation numbers; [rows, ROW + 1] each."""
    rows, open_rows = [], []
    for ids, weights in encoded:
        for row in open_rows:
            if len(row[0]) + len(ids) <= ROW + 1:
                break
        else:
            if len(open_rows) == 12:
                rows.append(open_rows.pop(max(range(12), key=lambda i: len(open_rows[i][0]))))
            row = ([], [], [])
            open_rows.append(row)
        row[2].extend([row[2][-1] + 1 if row[2] else 0] * len(ids))
        row[0].extend(ids)
        row[1].extend([0] + [round(w * 200) for w in weights[1:]])  # the first token is predicted from another conversation
    rows += open_rows
    out = np.zeros((3, len(rows), ROW + 1), dtype=np.int16)
    out[2] = -1
    for i, row in enumerate(rows):
        for k in range(3):
            out[k, i, :len(row[k])] = row[k]
    return out


def make_shard(job):
    path, index, held = job
    from tokenizers import Tokenizer
    if not hasattr(make_shard, "tokenizer"):
        make_shard.tokenizer = Tokenizer.from_file(path)
    return pack(encode_turns(make_shard.tokenizer, corpus.shard(SEED, index, CONVERSATIONS_PER_SHARD, held)))


def make_data(pool, tokenizer_path, n_tokens, held):
    """Shards in order until there are enough tokens; on the GPU as int16 and uint8."""
    parts, total = [], 0
    jobs = ((tokenizer_path, i, held) for i in range(10 ** 6))
    for packed in bounded(pool, jobs):
        parts.append(packed)
        total += int((packed[2] >= 0).sum())
        if total >= n_tokens:
            break
    pool.terminate()
    data = np.concatenate(parts, axis=1)
    log(f"{len(parts)} shards, {total / 1e6:.1f} M tokens in {data.shape[1]} rows, {total / data[0].size:.1%} filled")
    ids, weights, document = (torch.from_numpy(data[k]) for k in range(3))
    return ids.cuda(), weights.to(torch.uint8).cuda(), document.cuda(), total, len(parts)


def bounded(pool, jobs):
    """pool.imap without drawing an endless stream of jobs ahead."""
    waiting = [pool.apply_async(make_shard, (next(jobs),)) for _ in range(2 * os.cpu_count())]
    while True:
        yield waiting.pop(0).get()
        waiting.append(pool.apply_async(make_shard, (next(jobs),)))


# --- evaluation -------------------------------------------------------------------------------------------------------

def render(messages):
    return "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages) + "<|im_start|>assistant\n"


@torch.no_grad()
def answer_all(model, tokenizer, prompts, limit=120, batch=256):
    """Greedy answers in fp32. Every step reads the whole text again: slow and simple, and free of cache mistakes."""
    out = []
    for at in range(0, len(prompts), batch):
        texts = [tokenizer.encode(render(p)).ids for p in prompts[at:at + batch]]
        n_prompt, active = [len(t) for t in texts], list(texts)
        for _ in range(limit):
            width = -(-max(map(len, active)) // 64) * 64
            ids = torch.tensor([t + [PAD] * (width - len(t)) for t in active], device="cuda")
            last = torch.tensor([len(t) - 1 for t in active], device="cuda")
            for t, token in zip(active, model.next_logits(ids, last).argmax(-1).tolist()):
                t.append(token)
            active = [t for t in active if t[-1] not in (PAD, END) and len(t) < ROW]
            if not active:
                break
        for t, n in zip(texts, n_prompt):
            said = t[n:-1] if t[-1] in (PAD, END) else t[n:]
            out.append(tokenizer.decode(said, skip_special_tokens=False))
    return out


def evaluate(model, tokenizer, questions, show=0):
    """Returns accuracy by kind (share) and the wrong ones."""
    torch.backends.cuda.matmul.allow_tf32 = False
    said = answer_all(model, tokenizer, [q["messages"] for q in questions])
    torch.backends.cuda.matmul.allow_tf32 = True
    by_kind, wrong = {}, []
    for q, s in zip(questions, said):
        ok = corpus.right(q, s)
        by_kind.setdefault(q["kind"], []).append(ok)
        if not ok:
            wrong.append((q["kind"], q["messages"][-1]["content"][-160:], s, q["answer"]))
    for w in wrong[:show]:
        log("  wrong:", *map(repr, w))
    score = {kind: sum(v) / len(v) for kind, v in by_kind.items()}
    score["all"] = sum(map(sum, by_kind.values())) / len(questions)
    return score, wrong


def as_percent(score):
    return " ".join(f"{k} {100 * v:.1f}" for k, v in score.items())


@torch.no_grad()
def rounded(model, how):
    """A copy with its weights as a file will hold them."""
    import copy
    import sys
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
    import gguf_write
    twin = copy.deepcopy(model)
    for p in twin.parameters():
        p.copy_(p.to(torch.bfloat16))
        if how == "q8_0" and p.ndim == 2:
            x = p.float().cpu().numpy()
            p.copy_(torch.from_numpy(gguf_write.dequantize_q8_0(gguf_write.quantize_q8_0(x), x.shape)))
    return twin


TRY = ["Tell me a short story about a fox.", "Hello! Who are you?", "What is 47 + 36?", "What is 23 x 17?", "tell me a story about a dragon and a princess",
       "Write a story about a zebra who is afraid of water.", "Sort these words: pear, apple, fig", "How many words are in \"the quick brown fox\"?",
       "What is the capital of France?", "Write a poem.", "My name is Oskar. What is my name?", "Tell me a long story about a spaceship.",
       "The red ball is in the kitchen. Where is the ball?", "Tom has 5 apples and eats 2. How many apples are left?", "Tell me a story about a girl named Alice.",
       "Once upon a time", "hi", "Write a poem about the moon.", "Tell me a story about a spaceship and a cat named Bubbles.", "What is 99 x 99?", "What is 12 - 30?", "Repeat after me: Grombulo", "What is a neural network?", "Write a story about two friends who build a boat.", "Name three animals.", "What is the colour of the sky?", "Anna gave the book to Peter. Who has the book?", "Explain what a tape is."]


# --- loop -------------------------------------------------------------------------------------------------------------

def schedule(step, steps, warmup, peak):
    if step < warmup:
        return peak * (step + 1) / warmup
    t = (step - warmup) / max(1, steps - warmup)
    return peak * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * t)))


def make_optimizer(model, peak, decay):
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), eps=1e-8, fused=True)


def train(model, data, args, tokenizer, dev):
    ids, weights, document = data
    optimizer = make_optimizer(model, args.peak, args.decay)
    loss_of = torch.compile(packed_loss)
    order, at, losses, started = None, 0, [], None
    generator = torch.Generator().manual_seed(1)
    smooth = None
    step, steps = -1, args.steps
    while (step := step + 1) < steps:
        if order is None or at + args.rows > len(order):
            order, at = torch.randperm(ids.shape[0], generator=generator), 0
        pick = order[at:at + args.rows].cuda()
        at += args.rows
        for group in optimizer.param_groups:
            group["lr"] = schedule(step, steps, args.warmup, args.peak)
        batch = ids[pick].long()
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(model, batch, document[pick][:, :-1].int(), weights[pick][:, 1:].float())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        smooth = loss.detach() if smooth is None else smooth + 0.02 * (loss.detach() - smooth)
        if step == 20:
            torch.cuda.synchronize()
            started = time.time()
        if step == 120:  # while the rate still warms up, so the schedule has no kink
            torch.cuda.synchronize()
            steps = min(steps, int(args.seconds / ((time.time() - started) / 100)))
        if step % 500 == 0 or step == steps - 1:
            rate = (step - 20) * args.rows * ROW / (time.time() - started) / 1e6 if started and step > 20 else 0
            losses.append((step, round(float(smooth), 4)))
            log(f"step {step} loss {float(smooth):.4f} {rate:.2f} M tokens/s")
            assert math.isfinite(losses[-1][1])
        if step and step % args.check == 0:
            log("   ", as_percent(evaluate(model, tokenizer, dev[::5])[0]))
    return losses, steps


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--steps", type=int, default=11000)
    p.add_argument("--seconds", type=float, default=400, help="fewer steps where the machine is too slow for this")
    p.add_argument("--tokens", type=float, default=200e6, help="distinct tokens of the corpus")
    p.add_argument("--rows", type=int, default=128)
    p.add_argument("--peak", type=float, default=3e-3)
    p.add_argument("--decay", type=float, default=0.1)
    p.add_argument("--warmup", type=int, default=300)
    p.add_argument("--check", type=int, default=2500, help="steps between looks at the development questions")
    p.add_argument("--smoke", action="store_true", help="a few steps, to see that everything runs")
    args = p.parse_args()
    if args.smoke:
        args.steps, args.tokens, args.check, args.warmup = min(args.steps, 400), 8e6, 300, 50
    return args


def main():
    args = arguments()
    os.makedirs(args.out, exist_ok=True)
    pool = multiprocessing.get_context("fork").Pool(os.cpu_count())  # before any thread or GPU is there to be copied
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True  # for training; evaluate() turns it off
    config = Config()
    questions, held = corpus.questions(corpus.EVAL_SEED, 20)
    dev, held_dev = corpus.questions(corpus.DEV_SEED, 50)
    held |= held_dev
    path = os.path.join(args.out, "tokenizer.json")
    tokenizer = train_tokenizer(path, config.vocab, 5, held)
    log("tokenizer made;", tokenizer.encode("Tell me a short story about a fox. What is 47 + 36?").tokens)
    *data, n_tokens, n_shards = make_data(pool, path, args.tokens, held)
    model = Decoder(config).cuda()
    began = time.time()
    losses, steps = train(model, data, args, tokenizer, dev)
    took = time.time() - began
    del data
    torch.save({"model": model.state_dict()}, os.path.join(args.out, "checkpoint.pt"))
    report = {"parameters": sum(p.numel() for p in model.parameters()), "steps": steps, "rows": args.rows, "tokens_per_step": args.rows * ROW,
              "distinct_tokens": n_tokens, "shards": n_shards, "peak": args.peak, "decay": args.decay, "warmup": args.warmup, "seconds": round(took, 1),
              "losses": losses, "torch": torch.__version__, "device": torch.cuda.get_device_name()}
    for how in ("bf16", "q8_0"):
        twin = rounded(model, how)
        report[how], wrong = evaluate(twin, tokenizer, questions, show=20)
        log(f"held back, {how}:", as_percent(report[how]))
        if how == "bf16":
            report["dev"], _ = evaluate(twin, tokenizer, dev, show=40)
            log("development, bf16:", as_percent(report["dev"]))
            prompts = [[{"role": "user", "content": t}] for t in TRY]
            report["tried"] = list(zip(TRY, answer_all(twin, tokenizer, prompts, limit=260)))
            for prompt, said in report["tried"]:
                print(f">>> {prompt}\n{said}", flush=True)
    with open(os.path.join(args.out, "eval.jsonl"), "w", encoding="utf-8") as f:
        f.writelines(json.dumps(q, ensure_ascii=False) + "\n" for q in questions)
    with open(os.path.join(args.out, "report.json"), "w", encoding="utf-8") as f:
        json.dump(report, f, indent=1)
    log("done")


if __name__ == "__main__":
    main()
