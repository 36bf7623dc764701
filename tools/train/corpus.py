"""The corpus: seeded conversations for training, and the held-back questions.

Usage: python3 corpus.py sample [N]      print N conversations
       python3 corpus.py eval FILE       write the 200 held-back questions

A conversation is a list of (role, text, weight): the weight says how much the loss of its tokens counts. Shard i of a seed
is the same on every machine and for every number of processes. No training conversation contains a held-back question:
every exchange carries keys (a stated sum, a sorted list, a story's text), and whatever meets a held-back key is drawn again.
"""
import json
import random
import sys

import stories
import tasks
from stories import UNKNOWN

EVAL_SEED, DEV_SEED = "held back", "development"
KINDS = ["story_where", "story_who", "story_what", "story_told", "refusal", "arithmetic", "word_problem", "shapes", "sorting", "counting"]
NUMERIC = {"arithmetic", "word_problem", "counting"}  # the last number of the answer decides
USER_WEIGHT, TALE_WEIGHT = 0.05, 0.35

SYSTEMS = ["You are a helpful assistant.", "You are a friendly assistant.", "You are ingot's small model.", "You are a kind storyteller.", "Answer briefly.",
           "You are a helpful AI assistant.", "Be polite and clear.", "You are a teacher for children."]
WITH_STORY = ["{s}\n\n{q}", "{s}\n{q}", "{s} {q}", "Read this story: {s}\n\nQuestion: {q}", "Story: {s}\nQuestion: {q}", "{s}\n\nAnswer this question: {q}",
              "Here is a story. {s}\n\nNow tell me: {q}", "{q}\n\n{s}"]
STORY_ONLY = ["{s}", "Read this story: {s}", "Here is a story: {s}", "Listen: {s}", "I will tell you a story. {s}"]
HEARD = ["Thank you for the story. What would you like to know?", "I have read the story. What is your question?", "A nice story. Ask me something about it."]


def rough(r, text):
    """People type without capitals and full stops."""
    dice = r.random()
    if dice < 0.08:
        text = text.lower()
    if dice < 0.14 and text[-1] in ".?!":
        text = text[:-1]
    return text


def pick_questions(r, story, n, unknown_share=0.25):
    """(kind, question, answer), no question twice. The kind is drawn first, or most would be of one kind."""
    out, asked = [], set()
    for _ in range(n * 3):
        if r.random() < unknown_share and story.unknown:
            kind, question, answer = "refusal", r.choice(story.unknown), UNKNOWN
        else:
            kind = r.choice(sorted({f[0] for f in story.facts}))
            _, question, answer = r.choice([f for f in story.facts if f[0] == kind])
        if question not in asked and len(out) < n:
            asked.add(question)
            out.append((kind, question, answer))
    return out


def given_story(r):
    dice = r.random()
    story = stories.world(r) if dice < 0.52 else stories.tale(r) if dice < 0.9 else scene_with_facts(r)
    questions = pick_questions(r, story, r.choice((1, 2, 3, 4, 5, 6)))
    text = story.text
    if r.random() < 0.7:
        turns = [("user", r.choice(WITH_STORY).format(s=text, q=questions[0][1]), USER_WEIGHT), ("assistant", questions.pop(0)[2], 1.0)]
    else:
        turns = [("user", r.choice(STORY_ONLY).format(s=text), USER_WEIGHT), ("assistant", r.choice(HEARD), 0.2)]
    for _, question, answer in questions:
        turns += [("user", question, USER_WEIGHT), ("assistant", answer, 1.0)]
    return turns, ["story " + text]


def scene_with_facts(r):
    while True:
        story = stories.scene(r)
        if story.facts:
            return story


def told_story(r):
    story = stories.tale(r, told=True)
    turns = [("user", rough(r, story.request), USER_WEIGHT), ("assistant", story.text, TALE_WEIGHT)]
    for _, question, answer in pick_questions(r, story, r.choice((0, 0, 1, 2, 3, 4))):
        turns += [("user", question, USER_WEIGHT), ("assistant", answer, 1.0)]
    return turns, ["story " + story.text]


def exchanges(r, makers, n, roughly=True):
    turns, keys = [], []
    for _ in range(n):
        made = r.choice(makers)(r)
        for e in made if isinstance(made, list) else [made]:
            turns += [("user", rough(r, e.user) if roughly else e.user, USER_WEIGHT), ("assistant", e.answer, e.weight)]
            keys += e.keys
    return turns, keys


SUMS = [tasks.arithmetic] * 6 + [tasks.word_problem] * 3 + [tasks.bigger_sum] * 2 + [tasks.compare, tasks.count_up]
WORDS = [tasks.shapes] * 4 + [tasks.sorting] * 4 + [tasks.counting] * 3 + [tasks.spelling, tasks.odd_words, tasks.repeat]
TALK = [tasks.small_talk] * 5 + [tasks.beyond] * 2 + [tasks.general] * 4 + [tasks.acquaintance] * 2 + [tasks.name_some, tasks.poem]


def mixed(r):
    """A tale in the middle of other things, so that a change of subject is nothing new."""
    turns, keys = exchanges(r, TALK + [r.choice(SUMS), r.choice(WORDS)], r.randint(1, 3))
    if r.random() < 0.7:
        more, more_keys = told_story(r)
        turns, keys = turns + more, keys + more_keys
    more, more_keys = exchanges(r, TALK + SUMS + WORDS, r.randint(0, 3))
    return turns + more, keys + more_keys


def conversation(r):
    dice = r.random()
    if dice < 0.34:
        turns, keys = given_story(r)
    elif dice < 0.50:
        turns, keys = told_story(r)
    elif dice < 0.69:
        turns, keys = exchanges(r, SUMS, r.randint(1, 6))
    elif dice < 0.87:
        turns, keys = exchanges(r, WORDS, r.randint(1, 5))
    elif dice < 0.93:
        turns, keys = exchanges(r, TALK, r.randint(1, 4))
    else:
        turns, keys = mixed(r)
    if r.random() < 0.12:
        turns = [("system", r.choice(SYSTEMS), USER_WEIGHT)] + turns
    return turns, keys


def shard(seed, index, n, held):
    """n conversations. held: a set of keys that must not appear."""
    r = random.Random(f"{seed}/{index}")
    out = []
    while len(out) < n:
        turns, keys = conversation(r)
        if held.isdisjoint(keys):
            out.append(turns)
    return out


# --- held-back questions ----------------------------------------------------------------------------------------------

def draw_question(r, kind, i):
    """Returns (messages, answer, key to hold back)."""
    if kind in ("story_where", "story_who", "story_what", "refusal"):
        story = stories.world(r) if i % 2 == 0 else stories.tale(r)
        found = [(q, UNKNOWN) for q in story.unknown] if kind == "refusal" else [(q, a) for k, q, a in story.facts if k == kind[6:]]
        if not found:
            return draw_question(r, kind, i)
        question, answer = r.choice(found)
        return [{"role": "user", "content": f"{story.text}\n\n{question}"}], answer, "story " + story.text
    if kind == "story_told":
        story = stories.tale(r, told=True)
        _, question, answer = r.choice(story.facts)
        return [{"role": "user", "content": story.request}, {"role": "assistant", "content": story.text}, {"role": "user", "content": question}], answer, "story " + story.text
    e = getattr(tasks, kind)(r)
    if kind == "arithmetic" and not hard_enough(e.keys[0]):
        return draw_question(r, kind, i)
    answer = e.answer
    if kind in NUMERIC:
        answer = last_number(answer)
    return [{"role": "user", "content": e.user}], answer, e.keys[0] if kind == "arithmetic" else e.keys[-1]


def hard_enough(key):
    """A table fact such as 7 x 8 cannot be held back: nothing else would teach it."""
    op = next(c for c in key if c in "+-x")
    a, b = map(int, key.split(op))
    return max(a, b) >= 11 and (op != "x" or min(a, b) >= 2 and a % 10 and b % 10)


def questions(seed, per_kind):
    """per_kind of each kind, no two with the same key; and the keys."""
    r, out, held = random.Random(seed), [], set()
    for kind in KINDS:
        n = 0
        while n < per_kind:
            messages, answer, key = draw_question(r, kind, n)
            if key not in held:
                held.add(key)
                out.append({"kind": kind, "messages": messages, "answer": answer})
                n += 1
    return out, held


def last_number(text):
    """The last integer of a text as a string; a minus counts when a space stands before it."""
    last, at = "", len(text) - 1
    while at >= 0 and not text[at].isdigit():
        at -= 1
    while at >= 0 and text[at].isdigit():
        last, at = text[at] + last, at - 1
    if last and at >= 0 and text[at] == "-" and (at == 0 or text[at - 1] == " "):
        last = "-" + last
    return last


def right(question, said):
    """The scoring rule: equal after trimming, or, where the answer is one integer, the last integer said is that."""
    answer, said = question["answer"].strip(), said.strip()
    return said == answer or (answer.lstrip("-").isdigit() and last_number(said) == answer)


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "eval":
        with open(sys.argv[2], "w", encoding="utf-8") as f:
            for q in questions(EVAL_SEED, 20)[0]:
                f.write(json.dumps(q, ensure_ascii=False) + "\n")
        return
    for turns in shard("sample", 0, int(sys.argv[2]) if len(sys.argv) > 2 else 5, set()):
        print("\n".join(f"[{role}] {text}" for role, text, _ in turns) + "\n")


if __name__ == "__main__":
    main()
