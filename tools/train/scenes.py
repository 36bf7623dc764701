"""Scenes, the questions about them with their one right answer, the held-back questions and the scoring rule. The standard library alone.

Usage: python3 scenes.py sample N FOLDER | eval FOLDER | golden FOLDER | example FILE
       (numpy; N pictures with questions; the 400 held-back questions with theirs as PNG files; 20 of them without noise, which are small files,
       for tests/golden/ingot-eyes; examples/shapes.png)

A scene is a dictionary that pictures.py draws: up to six shapes in eleven colours, often a number or a word, on a plain background. Whatever is
asked has one answer: things asked for are unique, places are away from the borders between them, sizes differ by a third.
"""
import json
import math
import os
import random
import re
import sys

import pictures
import words
from pictures import CHARACTERS, COLOURS, SHAPES

EVAL_SEED, DEV_SEED, TRAIN_SEED = "held back", "development", "ingot-eyes"
KINDS = ["colour", "shape", "count", "place", "relation", "size", "exists", "number", "word", "list"]
SAME = {frozenset(p) for p in (("black", "brown"), ("white", "yellow"), ("black", "purple"), ("white", "pink"), ("red", "orange"),
                               ("yellow", "orange"), ("blue", "purple"), ("red", "brown"), ("grey", "brown"))}  # too alike to be read on each other
KNOWN_WORDS = [w.upper() for w in words.PLAIN_WORDS + ["stop", "go", "exit", "taxi", "cafe"] if re.fullmatch(r"[a-z]{2,5}", w)]


# --- scenes -----------------------------------------------------------------------------------------------------------

def jitter(rng, colour, wide=9):
    return [min(255, max(0, v + rng.uniform(-wide, wide))) for v in COLOURS[colour]]


def picture_size(rng, shape=None):
    """Native width and height. shape: what the tiles are cut from, or any."""
    shape = shape or rng.choices([(256, 256), (256, 128), (128, 256)], [8, 1, 1])[0]
    if shape != (256, 256):
        return shape
    if rng.random() < 0.6:
        return 256, 256
    width = rng.randint(160, 420)
    return width, min(420, max(150, int(width * math.exp(rng.uniform(-0.6, 0.6)))))


def random_text(rng):
    if rng.random() < 0.5:
        n = rng.randint(1, 4)
        return "number", str(rng.randint(10 ** (n - 1) if n > 1 else 0, 10 ** n - 1))
    if rng.random() < 0.4:
        return "word", rng.choice(KNOWN_WORDS)
    return "word", "".join(rng.choice(CHARACTERS[10:]) for _ in range(rng.randint(2, 5)))


def add_text(rng, scene, unit, colours):
    kind, text = random_text(rng)
    most = min(0.94 * scene["width"] / (6 * len(text)), 0.8 * scene["height"] / 7, 9 * unit)
    cell = rng.uniform(min(3.3 * unit, most), most)
    wide, high = 3 * len(text) * cell + 2, 3.5 * cell + 2
    colour = rng.choice([c for c in colours if frozenset((c, scene["background"])) not in SAME])
    scene["items"].append({"kind": kind, "text": text, "colour": colour, "rgb": jitter(rng, colour), "cell": cell, "wide": wide, "high": high,
                           "x": rng.uniform(wide, scene["width"] - wide), "y": rng.uniform(high, scene["height"] - high)})


def free(scene, x, y, r, gap):
    for item in scene["items"]:
        if "text" in item:
            dx, dy = max(0, abs(x - item["x"]) - item["wide"]), max(0, abs(y - item["y"]) - item["high"])
            if math.hypot(dx, dy) < r + gap:
                return False
        elif math.hypot(x - item["x"], y - item["y"]) < r + item["r"] + gap:
            return False
    return True


def add_shape(rng, scene, unit, largest, palette):
    for _ in range(30):
        r = rng.uniform(17, largest) * unit
        x, y = rng.uniform(r + 1, scene["width"] - r - 1), rng.uniform(r + 1, scene["height"] - r - 1)
        if free(scene, x, y, r, 3 * unit):
            shape, colour = rng.choice(palette[0]), rng.choice(palette[1])
            scene["items"].append({"kind": "shape", "shape": shape, "colour": colour, "rgb": jitter(rng, colour), "x": x, "y": y, "r": r,
                                   "turn": rng.uniform(-0.2, 0.2), "soft": rng.uniform(0.8, 1.8)})
            return
        largest = max(17, 0.92 * largest)


def make_scene(rng, shape=None, text=None):
    """text: must there be some, or None for by chance."""
    width, height = picture_size(rng, shape)
    background = rng.choices(list(COLOURS), [9 if c in ("white", "black", "grey") else 2 for c in COLOURS])[0]
    scene = {"width": width, "height": height, "background": background, "rgb": jitter(rng, background), "items": [],
             "noise": rng.choice([0, 0, 2, 4, 7]), "noise_at": (rng.randrange(400), rng.randrange(400))}
    unit = max(width, height) / pictures.EDGE
    colours = [c for c in COLOURS if c != background]
    with_text = rng.random() < 0.4 if text is None else text
    if with_text:
        add_text(rng, scene, unit, colours)
    n = rng.choice([0, 0, 1, 2, 3]) if with_text else rng.choice([1, 2, 3, 3, 4, 4, 5, 5, 6, 6])
    palette = SHAPES, colours
    if rng.random() < 0.5:  # few kinds, so that things repeat
        palette = rng.sample(SHAPES, rng.randint(1, 3)), rng.sample(colours, rng.randint(1, 3))
    largest = min((52, 52, 50, 44, 40, 36, 34)[n], 0.42 * min(width, height) / unit)
    for _ in range(n):
        add_shape(rng, scene, unit, largest, palette)
    return scene


# --- questions --------------------------------------------------------------------------------------------------------

def shapes_of(scene):
    return [i for i in scene["items"] if i["kind"] == "shape"]


def text_of(scene, kind):
    return next((i for i in scene["items"] if i["kind"] == kind), None)


def article(name):
    return ("an " if name[0] in "aeiou" else "a ") + name


def full_name(item):
    return f"{item['colour']} {item['shape']}"


def matching(scene, colour=None, shape=None):
    return [i for i in shapes_of(scene) if colour in (None, i["colour"]) and shape in (None, i["shape"])]


def reference(rng, scene, item):
    """How to speak of one thing and no other, or None."""
    if item["kind"] != "shape":
        return "the " + item["kind"]
    ways = [full_name(item)] if len(matching(scene, item["colour"], item["shape"])) == 1 else []
    if len(matching(scene, shape=item["shape"])) == 1:
        ways.append(item["shape"])
    return "the " + rng.choice(ways) if ways else None


def several(word):
    return word + ("es" if word.endswith(("s", "x")) else "s")


def ask_colour(rng, scene):
    items = [i for i in scene["items"] if i["kind"] != "shape" or len(matching(scene, shape=i["shape"])) == 1]
    if rng.random() < 0.15:
        return rng.choice(["What colour is the background?", "Which colour is the background?"]), scene["background"]
    if not items:
        return None
    item = rng.choice(items)
    name = item["shape"] if item["kind"] == "shape" else item["kind"]
    return rng.choice([f"What colour is the {name}?", f"Which colour is the {name}?", f"What is the colour of the {name}?"]), item["colour"]


def ask_shape(rng, scene):
    items = [i for i in shapes_of(scene) if len(matching(scene, colour=i["colour"])) == 1]
    if not items:
        return None
    item = rng.choice(items)
    return rng.choice(["What shape is the {} thing?", "What is the {} thing?", "Which shape is {}?"]).format(item["colour"]), item["shape"]


def ask_count(rng, scene):
    colours, shapes = sorted({i["colour"] for i in shapes_of(scene)}), sorted({i["shape"] for i in shapes_of(scene)})
    colour = rng.choice(colours) if colours and rng.random() < 0.85 else rng.choice(list(COLOURS))
    shape = rng.choice(shapes) if shapes and rng.random() < 0.85 else rng.choice(SHAPES)
    what, found = rng.choice([("shapes", shapes_of(scene)), (several(shape), matching(scene, shape=shape)),
                              (several(shape), matching(scene, shape=shape)), (colour + " shapes", matching(scene, colour=colour)),
                              (f"{colour} {several(shape)}", matching(scene, colour, shape))])
    return rng.choice(["How many {} are there?", "How many {} are in the picture?", "How many {} do you see?"]).format(what), str(len(found))


def place_of(scene, item):
    """One of nine names, or None near a border between two of them."""
    def third(v, names):
        return names[0] if v < 0.3 else names[2] if v > 0.7 else names[1] if 0.37 < v < 0.63 else None
    x = third(item["x"] / scene["width"], ("left", "", "right"))
    y = third(item["y"] / scene["height"], ("top", "", "bottom"))
    return None if x is None or y is None else f"{y} {x}".strip() or "middle"


def ask_place(rng, scene):
    items = [i for i in scene["items"] if place_of(scene, i) and reference(rng, scene, i)]
    if not items:
        return None
    item = rng.choice(items)
    return rng.choice(["Where is {}?", "In which part of the picture is {}?"]).format(reference(rng, scene, item)), place_of(scene, item)


def ask_relation(rng, scene):
    items = [i for i in scene["items"] if reference(rng, scene, i)]
    if len(items) < 2:
        return None
    a, b = rng.sample(items, 2)
    dx, dy = (a["x"] - b["x"]) / scene["width"], (a["y"] - b["y"]) / scene["height"]
    ways = [("left of", "right of", dx)] * (abs(dx) > 0.1) + [("above", "below", dy)] * (abs(dy) > 0.1)
    if not ways:
        return None
    before, behind, by = rng.choice(ways)
    word = rng.choice([before, behind])
    return f"Is {reference(rng, scene, a)} {word} {reference(rng, scene, b)}?", "yes" if (word == before) == (by < 0) else "no"


def ask_size(rng, scene):
    items = sorted(shapes_of(scene), key=lambda i: i["r"])
    if len(items) < 2:
        return None
    word, item, next_one = rng.choice([("smallest", items[0], items[1]), ("largest", items[-1], items[-2])])
    if max(item["r"], next_one["r"]) < 1.25 * min(item["r"], next_one["r"]):
        return None
    return rng.choice([f"What is the {word} shape?", f"Which shape is the {word}?"]), full_name(item)


def ask_exists(rng, scene):
    items = shapes_of(scene)
    if not items:
        return None
    if rng.random() < 0.3:  # what is asked about is not there
        absent = [s for s in SHAPES if not matching(scene, shape=s)]
        if not absent:
            return None
        name = rng.choice(absent)
        return rng.choice([f"What colour is the {name}?", f"Which colour is the {name}?", f"Where is the {name}?"]), f"There is no {name}."
    if rng.random() < 0.5:
        item = rng.choice(items)
        return f"Is there {article(rng.choice([full_name(item), item['shape']]))}?", "yes"
    colour, shape = rng.choice(items)["colour"], rng.choice(items)["shape"]
    if rng.random() < 0.5:
        colour, shape = rng.choice([(rng.choice(list(COLOURS)), shape), (colour, rng.choice(SHAPES))])
    if rng.random() < 0.3:
        shape = rng.choice(SHAPES)
        return (f"Is there {article(shape)}?", "no") if not matching(scene, shape=shape) else None
    return (f"Is there {article(f'{colour} {shape}')}?", "no") if not matching(scene, colour, shape) else None


def ask_number(rng, scene):
    item = text_of(scene, "number")
    return item and (rng.choice(["What number is this?", "Which number is in the picture?", "What is the number?", "What does it say?"]), item["text"])


def ask_word(rng, scene):
    item = text_of(scene, "word")
    return item and (rng.choice(["What word is this?", "Which word is in the picture?", "What is the word?", "What does it say?"]), item["text"])


def ask_list(rng, scene):
    """From left to right."""
    names = [article(full_name(i)) if i["kind"] == "shape" else f"the {i['kind']} {i['text']}" for i in sorted(scene["items"], key=lambda i: i["x"])]
    if not names:
        return None
    told = names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
    return rng.choice(["What is in the picture?", "What do you see?", "Describe the picture."]), told


ASK = {kind: globals()["ask_" + kind] for kind in KINDS}
WEIGHTS = dict(colour=1, shape=1, count=2, place=1, relation=1.3, size=1, exists=1.2, number=1.5, word=2, list=0)


def questions_about(rng, scene, n):
    """Up to n different questions as (kind, question, answer); telling everything is often the first."""
    out, kinds = {}, list(WEIGHTS)
    if rng.random() < 0.6:
        asked = ask_list(rng, scene)
        out[asked[0]] = ("list", *asked)
    for _ in range(3 * n):
        kind = rng.choices(kinds, WEIGHTS.values())[0]
        asked = ASK[kind](rng, scene)
        if asked and asked[0] not in out and not (kind in ("number", "word") and any(o[0] == kind for o in out.values())):
            out[asked[0]] = (kind, *asked)
        if len(out) == n:
            break
    return list(out.values())


# --- held-back questions ----------------------------------------------------------------------------------------------

def held_back(seed, per_kind, shape=None):
    """Each with a picture of its own: (kind, scene, question, answer). Counts go from 0 to 6 in turn: most would be 0 or 1 by chance."""
    out = []
    for kind in KINDS:
        index, n = 0, 0
        while n < per_kind:
            rng = random.Random(f"{seed}:{kind}:{index}")
            index += 1
            scene = make_scene(rng, shape, {"number": True, "word": True}.get(kind))
            asked = ASK[kind](rng, scene) if scene["items"] else None
            if asked and (kind != "count" or asked[1] == str(n % 7)):
                out.append((kind, scene, *asked))
                n += 1
    return out


def right(kind, said, answer):
    """Equal; a list may come in any order."""
    def parts(text):
        return sorted(re.split(r", | and ", text.strip()))
    return parts(said) == parts(answer) if kind == "list" else said.strip() == answer


def write_questions(folder, questions):
    """PNG files, and questions.json."""
    os.makedirs(folder, exist_ok=True)
    listed = []
    for i, (kind, scene, question, answer) in enumerate(questions):
        listed.append({"kind": kind, "picture": f"{i:03d}.png", "question": question, "answer": answer})
        pictures.write_png(os.path.join(folder, listed[-1]["picture"]), pictures.draw(scene)[0])
    with open(os.path.join(folder, "questions.json"), "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(q) for q in listed) + "\n]\n")


def without_noise(questions, per_kind):
    clear = [q for q in questions if not q[1]["noise"]]
    return [q for kind in KINDS for q in [c for c in clear if c[0] == kind][-per_kind:]]


def example():
    """The picture of README.md, outside of every seed."""
    def shape(colour, name, x, y, r):
        return {"kind": "shape", "shape": name, "colour": colour, "rgb": COLOURS[colour], "x": x, "y": y, "r": r, "turn": 0.0, "soft": 1.0}
    items = [shape("red", "circle", 70, 70, 44), shape("green", "star", 250, 64, 50), shape("blue", "square", 72, 176, 36),
             {"kind": "word", "text": "INGOT", "colour": "black", "rgb": COLOURS["black"], "cell": 6.0, "x": 216, "y": 180}]
    return {"width": 320, "height": 240, "background": "white", "rgb": COLOURS["white"], "items": items, "noise": 0, "noise_at": (0, 0)}


def main():
    if sys.argv[1] == "eval":
        write_questions(sys.argv[2], held_back(EVAL_SEED, 40))
        return
    if sys.argv[1] == "golden":
        write_questions(sys.argv[2], without_noise(held_back(EVAL_SEED, 40), 2))
        return
    if sys.argv[1] == "example":
        pictures.write_png(sys.argv[2], pictures.draw(example())[0])
        return
    os.makedirs(sys.argv[3], exist_ok=True)
    for i in range(int(sys.argv[2])):
        rng = random.Random(f"sample:{i}")
        scene = make_scene(rng)
        pictures.write_png(os.path.join(sys.argv[3], f"{i:03d}.png"), pictures.draw(scene)[0])
        for kind, question, answer in questions_about(rng, scene, 8):
            print(f"{i:03d}.png {kind:8} {question} -> {answer}")


if __name__ == "__main__":
    main()
