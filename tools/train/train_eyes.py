"""Trains ingot-eyes, the shipped model that sees: pictures drawn by worker processes, loop, evaluation, checkpoints. One GPU, seven minutes.

Usage: python3 train_eyes.py OUT [--seconds N] [--workers N] [--batch N]

Writes OUT/ (BF16 safetensors in two files, report.json) every minute, so that a run that is cut off leaves weights. Then:
python3 export_eyes.py OUT REPOSITORY. Needs torch and numpy; the text half begins with layers of models/ingot-7m.
"""
import argparse
import json
import math
import mmap
import multiprocessing
import os
import random
import struct
import time

for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import eyes_tokens as tokens
import pictures
import scenes
from eyes_model import TEXT, TEXT_LAYERS_OF_INGOT_7M, TOWER_COLS, Eyes, TextLayer, TowerLayer
from pictures import CHARACTERS, COLOURS, EDGE, PATCH, SHAPES, TILE

CANVASES = [(EDGE, EDGE), (EDGE // 2, EDGE), (EDGE, EDGE // 2)]  # height, width of what tiles are cut from
CANVAS_WEIGHTS = [8, 1, 1]
SHARD = 128  # pictures
WORDS = 190  # tokens of questions and answers for a picture
QUESTIONS = 8
LABELS = [len(SHAPES) + 2, len(COLOURS) + 1, len(CHARACTERS) + 1]  # what a patch shows: shape (the last: writing), colour, character; 0: none
START = time.time()


def log(*what):
    print(f"[{time.time() - START:6.1f} s]", *what, flush=True)


# --- data -------------------------------------------------------------------------------------------------------------

def columns(canvas):
    """The arrays of a shard: name -> (shape of one picture's, type)."""
    h, w = CANVASES[canvas]
    return {"rgb": ((h, w, 3), np.uint8), "fine": ((h // PATCH, w // PATCH, 3), np.uint8), "coarse": ((TILE // PATCH, TILE // PATCH, 3), np.uint8),
            "ids": ((WORDS,), np.int16), "block": ((WORDS,), np.uint8), "place": ((WORDS,), np.uint8), "target": ((WORDS,), np.int16)}


def views(memory, canvas):
    """The arrays of a shard in a slot of shared memory."""
    out, at = {}, 0
    for name, (shape, kind) in columns(canvas).items():
        n = SHARD * math.prod(shape)
        out[name] = np.frombuffer(memory, kind, n, at).reshape(SHARD, *shape)
        at += n * np.dtype(kind).itemsize
    return out


SLOT_BYTES = SHARD * (EDGE * EDGE * 3 + 8192)


def label_patches(scene, owner, size):
    """What most of each patch shows, if anything does: uint8 [rows, cols, 3] for the tiles and for the whole as one tile."""
    names = np.zeros((32, 3), dtype=np.uint8)
    n = 1
    for item in scene["items"]:
        colour = 1 + list(COLOURS).index(item["colour"])
        if item["kind"] == "shape":
            names[n] = 1 + SHAPES.index(item["shape"]), colour, 0
            n += 1
        else:
            for character in item["text"]:
                names[n] = len(SHAPES) + 1, colour, 1 + CHARACTERS.index(character)
                n += 1
    h, w = size
    rows, cols = np.arange(h) * owner.shape[0] // h, np.arange(w) * owner.shape[1] // w
    owner = owner[rows][:, cols]
    patch = (np.arange(h) // PATCH)[:, None] * (w // PATCH) + (np.arange(w) // PATCH)[None, :]
    counts = np.bincount((patch * 32 + owner).ravel(), minlength=h * w // PATCH ** 2 * 32).reshape(h // PATCH, w // PATCH, 32)
    counts[..., 0] = PATCH * PATCH // 10
    wide = counts.reshape(TILE // PATCH, h // TILE, TILE // PATCH, w // TILE, 32).sum(axis=(1, 3))
    return names[counts.argmax(axis=-1)], names[wide.argmax(axis=-1)]


def write_questions(asked, row):
    """Fills a picture's ids, block (0 is the picture, 255 nothing), place in the block, and target: the next token of an answer, or -1."""
    at = 0
    row["block"][:], row["place"][:], row["ids"][:], row["target"][:] = 255, 0, tokens.PAD, -1
    for number, (_, question, answer) in enumerate(asked, 1):
        head, body = tokens.question_ids(question), tokens.answer_ids(answer)
        n = len(head) + len(body)
        if at + n > WORDS:
            break
        row["ids"][at:at + n] = head + body
        row["block"][at:at + n] = number
        row["place"][at:at + n] = np.arange(n)
        row["target"][at + len(head) - 1:at + n - 1] = body
        at += n


def fill_shard(rng, memory, canvas):
    shard = views(memory, canvas)
    h, w = CANVASES[canvas]
    for i in range(SHARD):
        scene = scenes.make_scene(rng, (w, h))
        rgb, owner = pictures.draw(scene)
        shard["rgb"][i] = pictures.whole(rgb)
        shard["fine"][i], shard["coarse"][i] = label_patches(scene, owner, (h, w))
        write_questions(scenes.questions_about(rng, scene, QUESTIONS), {k: shard[k][i] for k in ("ids", "block", "place", "target")})


def work(number, memory, free, full):
    """A worker: fills slots until it is ended."""
    rng = random.Random(f"{scenes.TRAIN_SEED}:{number}")
    while True:
        slot = free.get()
        canvas = rng.choices(range(3), CANVAS_WEIGHTS)[0]
        fill_shard(rng, memoryview(memory)[slot * SLOT_BYTES:(slot + 1) * SLOT_BYTES], canvas)
        full.put((slot, canvas))


class Stock:
    """Pictures on the GPU, filled while training runs, until there is no more room."""

    def __init__(self, n_workers, room):
        self.n_slots, self.n_workers = 3 * n_workers, n_workers
        self.memory = mmap.mmap(-1, self.n_slots * SLOT_BYTES)  # shared with the workers that are forked now
        fork = multiprocessing.get_context("fork")
        self.free, self.full = fork.SimpleQueue(), fork.SimpleQueue()
        for slot in range(self.n_slots):
            self.free.put(slot)
        self.workers = [fork.Process(target=work, args=(i, self.memory, self.free, self.full), daemon=True) for i in range(n_workers)]
        for worker in self.workers:
            worker.start()
        self.room = [int(room * w / sum(CANVAS_WEIGHTS)) // SHARD * SHARD for w in CANVAS_WEIGHTS]
        self.n, self.stopped, self.arrays = [0, 0, 0], False, None

    def allocate(self, device):
        self.arrays = [{name: torch.empty((self.room[c], *shape), dtype=getattr(torch, np.dtype(kind).name), device=device)
                        for name, (shape, kind) in columns(c).items()} for c in range(3)]

    def take(self):
        """Moves one shard, if one is there, to the GPU."""
        if self.stopped or self.full.empty():
            return False
        slot, c = self.full.get()
        if self.n[c] + SHARD <= self.room[c]:
            shard = views(memoryview(self.memory)[slot * SLOT_BYTES:(slot + 1) * SLOT_BYTES], c)
            for name, x in shard.items():
                self.arrays[c][name][self.n[c]:self.n[c] + SHARD].copy_(torch.from_numpy(x))
            self.n[c] += SHARD
        if all(n + SHARD > room for n, room in zip(self.n, self.room)):
            self.stop()
        else:
            self.free.put(slot)
        return True

    def stop(self):
        self.stopped = True
        for worker in self.workers:
            worker.terminate()
        log(f"drawing ends: {self.n} pictures")


# --- batches ----------------------------------------------------------------------------------------------------------

class Cutter:
    """From whole pictures to tiles, on the GPU; the last tile is the whole, by Pillow's weights in fp32."""

    def __init__(self, device):
        self.half = torch.from_numpy(pictures.lanczos(EDGE, TILE)).to(device)

    def cut(self, rgb, split):
        """uint8 [batch, h, w, 3] -> [batch, tiles, TILE, TILE, 3]"""
        batch, h, w, _ = rgb.shape
        x = rgb
        if w > TILE:
            x = torch.einsum("bhwc,ow->bhoc", x.float(), self.half).add(0.5).floor().clamp(0, 255)
        if h > TILE:
            x = torch.einsum("bhwc,oh->bowc", x.float(), self.half).add(0.5).floor().clamp(0, 255)
        last = x.to(torch.uint8).unsqueeze(1)
        if not split:
            return last
        tiles = rgb.view(batch, h // TILE, TILE, w // TILE, TILE, 3).transpose(2, 3).reshape(batch, -1, TILE, TILE, 3)
        return torch.cat((tiles, last), dim=1)

    @staticmethod
    def labels(fine, coarse, split):
        """[batch, tiles, patches, 3], in the order of cut."""
        batch, h, w, _ = fine.shape
        side = TILE // PATCH
        last = coarse.reshape(batch, 1, side * side, 3)
        if not split:
            return last
        tiles = fine.view(batch, h // side, side, w // side, side, 3).transpose(2, 3).reshape(batch, -1, side * side, 3)
        return torch.cat((tiles, last), dim=1)


def grid(canvas, split):
    return (CANVASES[canvas][0] // TILE, CANVASES[canvas][1] // TILE) if split else (0, 0)


def visible(block):
    """block [batch, n] -> mask [batch, 1, n, n]: earlier tokens of the picture or of the same question."""
    n = block.shape[1]
    causal = torch.ones(n, n, dtype=torch.bool, device=block.device).tril()
    same = block.unsqueeze(1) == block.unsqueeze(2)
    return (causal & (same | (block == 0).unsqueeze(1))).unsqueeze(1)


def sequences(batch, canvas, split):
    """ids, block and positions of the picture's places and the questions behind, filled up to a multiple of 8."""
    head = tokens.prefix(*grid(canvas, split))
    n, device = batch["ids"].shape[0], batch["ids"].device
    fill = -(len(head) + WORDS) % 8
    before = torch.tensor(head, device=device).expand(n, -1)
    ids = torch.cat((before, F.pad(batch["ids"].long(), (0, fill), value=tokens.PAD)), dim=1)
    block = torch.cat((torch.zeros_like(before), F.pad(batch["block"].long(), (0, fill), value=255)), dim=1)
    positions = torch.cat((torch.arange(len(head), device=device).expand(n, -1), len(head) + F.pad(batch["place"].long(), (0, fill))), dim=1)
    return ids, block, positions, len(head)


def losses(model, probe, cutter, batch, canvas, split):
    """(loss of answers, loss of what patches show)"""
    tiles = cutter.cut(batch["rgb"], split)
    seen = model.see(tiles.flatten(0, 1))
    labels = cutter.labels(batch["fine"], batch["coarse"], split).flatten(0, 1).long()
    shown = probe(seen).float().split(LABELS, dim=-1)
    patch_loss = sum(F.cross_entropy(x.flatten(0, 1), labels[..., i].flatten()) for i, x in enumerate(shown))
    ids, block, positions, n_head = sequences(batch, canvas, split)
    rows = model.connect(seen).view(len(ids), -1, TEXT.hidden)
    state = model.read(rows, ids, positions, visible(block))[:, n_head:n_head + WORDS]
    logits = model.logits(state).float()
    return F.cross_entropy(logits.flatten(0, 1), batch["target"].long().flatten(), ignore_index=-1), patch_loss


# --- evaluation -------------------------------------------------------------------------------------------------------

@torch.no_grad()
def answer_all(model, cutter, asked, split, limit=48):
    """Greedy answers about [(scene, question)] in fp32; every step reads the whole text again."""
    out = [None] * len(asked)
    device = model.cos.device
    wholes = [pictures.whole(pictures.draw(scene)[0]) for scene, _ in asked]
    for canvas, size in enumerate(CANVASES):
        chosen = [i for i, x in enumerate(wholes) if x.shape[:2] == size]
        if not chosen:
            continue
        tiles = cutter.cut(torch.from_numpy(np.stack([wholes[i] for i in chosen])).to(device), split)
        rows = model.connect(model.see(tiles.flatten(0, 1))).view(len(chosen), -1, TEXT.hidden)
        texts = [tokens.prefix(*grid(canvas, split)) + tokens.question_ids(asked[i][1]) for i in chosen]
        begins, active = [len(t) for t in texts], list(range(len(texts)))
        for _ in range(limit):
            width = -(-max(len(texts[k]) for k in active) // 8) * 8
            ids = torch.tensor([texts[k] + [tokens.PAD] * (width - len(texts[k])) for k in active], device=device)
            positions = torch.arange(width, device=device).expand(len(active), -1)
            state = model.read(rows[active], ids, positions, visible(torch.zeros_like(ids)))
            last = torch.tensor([len(texts[k]) - 1 for k in active], device=device)
            best = model.logits(state[torch.arange(len(active), device=device), last]).argmax(-1).tolist()
            for k, token in zip(active, best):
                texts[k].append(token)
            active = [k for k in active if texts[k][-1] not in (tokens.END, tokens.PAD)]
            if not active:
                break
        for k, i in enumerate(chosen):
            out[i] = tokens.decode([t for t in texts[k][begins[k]:] if t not in (tokens.END, tokens.PAD)])
    return out


def evaluate(model, cutter, questions, split, show=0):
    """Share of right answers by kind."""
    fast, (model.run_tower, model.run_text) = (model.run_tower, model.run_text), (TowerLayer.forward, TextLayer.forward)
    said = answer_all(model, cutter, [(scene, question) for _, scene, question, _ in questions], split)
    model.run_tower, model.run_text = fast
    by_kind = {}
    for (kind, _, question, answer), s in zip(questions, said):
        ok = scenes.right(kind, s, answer)
        by_kind.setdefault(kind, []).append(ok)
        if not ok and show > 0:
            show -= 1
            log("  wrong:", kind, question, "->", repr(s), "not", repr(answer))
    score = {kind: round(sum(v) / len(v), 4) for kind, v in by_kind.items()}
    score["all"] = round(sum(map(sum, by_kind.values())) / len(questions), 4)
    return score


def as_percent(score):
    return " ".join(f"{k} {100 * v:.0f}" for k, v in score.items())


# --- files ------------------------------------------------------------------------------------------------------------

def read_safetensors(path):
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = bytearray(f.read())
    head.pop("__metadata__", None)
    return {name: torch.frombuffer(data, dtype=torch.bfloat16, count=math.prod(t["shape"]), offset=t["data_offsets"][0]).view(t["shape"]).float()
            for name, t in head.items() if t["dtype"] == "BF16"}


def start_text(model):
    """The text half begins as layers of ingot-7m."""
    have = {}
    for name in sorted(os.listdir(tokens.BASE)):
        if name.endswith(".safetensors"):
            have.update(read_safetensors(os.path.join(tokens.BASE, name)))
    with torch.no_grad():
        model.text_model.embed_tokens.weight[:tokens.N_BASE] = have["model.embed_tokens.weight"]
        model.text_model.embed_tokens.weight[tokens.N_BASE:] = have["model.embed_tokens.weight"].mean(0) + 0.02 * torch.randn(len(tokens.PICTURE), TEXT.hidden)
        model.text_model.norm.weight.copy_(have["model.norm.weight"])
        for to, source in enumerate(TEXT_LAYERS_OF_INGOT_7M):
            for name, p in model.text_model.layers[to].named_parameters():
                p.copy_(have[f"model.layers.{source}.{name}"])


def write_safetensors(path, weights):
    head, blob = {"__metadata__": {"format": "pt"}}, []
    at = 0
    for name, w in weights.items():
        data = w.detach().cpu().to(torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes()
        head[name] = {"dtype": "BF16", "shape": list(w.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        blob.append(data)
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".part", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blob))
    os.replace(path + ".part", path)


def save(model, out, report):
    """Two files of about half the weights each, index, report."""
    weights = {"model." + k: v for k, v in model.state_dict().items()}
    half, parts, size = sum(w.numel() for w in weights.values()) / 2, [{}, {}], 0
    for name, w in weights.items():
        parts[size >= half][name] = w
        size += w.numel()
    where = {}
    for i, part in enumerate(parts, 1):
        file = f"model-{i:05d}-of-00002.safetensors"
        write_safetensors(os.path.join(out, file), part)
        where.update(dict.fromkeys(part, file))
    index = {"metadata": {"total_size": 2 * size}, "weight_map": dict(sorted(where.items()))}
    for name, data in (("model.safetensors.index.json", index), ("report.json", report)):
        with open(os.path.join(out, name), "w", encoding="utf-8") as f:
            f.write(json.dumps(data, indent=2) + "\n")


# --- loop -------------------------------------------------------------------------------------------------------------

TURNS = [(0, True, 5), (0, False, 3), (1, True, 0.8), (2, True, 0.8), (1, False, 0.3), (2, False, 0.3)]  # canvas, split, share of steps


def draw_batch(stock, rng, n):
    """(batch, canvas, split)"""
    canvas, split, _ = rng.choices([t for t in TURNS if stock.n[t[0]]], [t[2] for t in TURNS if stock.n[t[0]]])[0]
    pick = torch.randint(stock.n[canvas], (n,), device=stock.arrays[canvas]["ids"].device)
    return {name: x[pick] for name, x in stock.arrays[canvas].items()}, canvas, split


def make_optimizer(model, probe, peak, device):
    params = [*model.parameters(), *probe.parameters()]
    groups = [{"params": [p for p in params if p.ndim >= 2], "weight_decay": 0.05}, {"params": [p for p in params if p.ndim < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.98), **({"fused": True} if device == "cuda" else {}))


def try_compile(model, step):
    """Compiles the layers, one of each kind, if that works here; training goes on without."""
    try:
        for name in ("recompile_limit", "cache_size_limit"):
            if hasattr(torch._dynamo.config, name):
                setattr(torch._dynamo.config, name, 64)
        model.run_tower, model.run_text = torch.compile(TowerLayer.forward), torch.compile(TextLayer.forward)
        for canvas, split in ((0, True), (0, False), (1, True)):
            began = time.time()
            step(canvas, split)
            log(f"compiled for canvas {canvas}, split {split}: {time.time() - began:.1f} s")
    except Exception as error:  # whatever a compiler throws
        log("no compilation:", repr(error)[:300])
        model.run_tower, model.run_text = TowerLayer.forward, TextLayer.forward


def train(model, probe, stock, cutter, args, check):
    device = args.device
    optimizer = make_optimizer(model, probe, args.peak, device)
    rng, began = random.Random(1), time.time()

    def loss_of(batch, canvas, split, patch_share):
        with torch.autocast(device, torch.bfloat16):
            answers, patches = losses(model, probe, cutter, batch, canvas, split)
        return answers + patch_share * patches, answers.detach(), patches.detach()

    def try_step(canvas, split):
        if stock.n[canvas]:
            pick = torch.randint(stock.n[canvas], (args.batch,), device=device)
            loss_of({name: x[pick] for name, x in stock.arrays[canvas].items()}, canvas, split, 0.5)[0].backward()
            optimizer.zero_grad(set_to_none=True)
            if device == "cuda":
                torch.cuda.synchronize()

    if args.compile:
        try_compile(model, try_step)
    step, told, smooth, history, trained = 0, time.time(), None, [], time.time()
    while (now := time.time()) - START < args.seconds:
        stock.take()
        part = (now - began) / (START + args.seconds - began)
        rate = args.peak * min(1, (step + 1) / 200) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * part)))
        for g in optimizer.param_groups:
            g["lr"] = rate
        loss, answers, patches = loss_of(*draw_batch(stock, rng, args.batch), 0.5 * (1 - part) + 0.05)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        new = torch.stack((answers, patches))
        smooth = new if smooth is None else smooth + 0.02 * (new - smooth)
        step += 1
        if step % 100 == 0 or step == 10:
            a, p = smooth.tolist()  # waits for the GPU
            history.append((step, round(a, 4), round(p, 4)))
            log(f"step {step} answers {a:.4f} patches {p:.4f} rate {rate:.5f} {step * args.batch / (time.time() - trained):.0f} pictures/s, stock {stock.n}")
            assert math.isfinite(a + p), "the loss is no number"
        if time.time() - told > args.every:
            told = time.time()
            check(step, history)
    return step, history


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--seconds", type=float, default=425, help="from the start, before the last evaluation")
    p.add_argument("--workers", type=int, default=max(1, min(15, (os.cpu_count() or 2) - 1)))
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--peak", type=float, default=1.5e-3)
    p.add_argument("--room", type=int, default=400_000, help="pictures on the GPU")
    p.add_argument("--every", type=float, default=60, help="seconds between looks at the development questions")
    p.add_argument("--no-compile", dest="compile", action="store_false")
    p.add_argument("--few", type=int, default=20, help="development questions of a kind")
    args = p.parse_args()
    args.device = "cuda" if torch.cuda.is_available() else "cpu"
    return args


def main():
    args = arguments()
    os.makedirs(args.out, exist_ok=True)
    stock = Stock(args.workers, args.room)  # forks: before any GPU or thread is there to be copied
    torch.manual_seed(0)
    log(f"torch {torch.__version__}, {args.device}, {args.workers} workers")
    model = Eyes()
    start_text(model)
    probe = nn.Linear(TOWER_COLS, sum(LABELS)).to(args.device)
    model = model.to(args.device)
    cutter = Cutter(args.device)
    stock.allocate(args.device)
    report = {"parameters": sum(p.numel() for p in model.parameters()), "torch": torch.__version__,
              "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu", "batch": args.batch, "peak": args.peak}
    log(f"{report['parameters']} parameters on {report['device']}")
    development = scenes.held_back(scenes.DEV_SEED, args.few)
    while stock.n[0] < min(64 * SHARD, stock.room[0]) or not all(stock.n):
        if not stock.take():
            time.sleep(0.02)
    log(f"training begins: {stock.n} pictures")

    def check(step, history):
        score = evaluate(model, cutter, development, True)
        log(f"development at step {step}, split:", as_percent(score))
        report.update(steps=step, losses=history[::5], development=score)
        save(model, args.out, report)

    step, history = train(model, probe, stock, cutter, args, check)
    if not stock.stopped:
        stock.stop()
    report.update(steps=step, losses=history[::5] + history[-1:], pictures=stock.n, seconds=round(time.time() - START, 1))
    save(model, args.out, report)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.to(torch.bfloat16))  # as the files hold them
    questions = scenes.held_back(scenes.EVAL_SEED, 2 * args.few)
    for name, split in (("held_back_split", True), ("held_back_one_tile", False)):
        report[name] = evaluate(model, cutter, questions, split, show=25)
        log(f"{name}:", as_percent(report[name]))
        save(model, args.out, report)
    log("done")


if __name__ == "__main__":
    main()
