"""The held-back questions of scenes.py, asked of ingot itself: a table per kind, and every wrong answer.

Usage: python3 measure_eyes.py PROGRAM MODEL [options of `ingot run`, such as --image-no-split or -dev cpu:plain]     (needs numpy; a minute)
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

import scenes


def ask(program, options, folder, asked):
    done = subprocess.run([program, "run", *options, "-q", "--temp", "0", "--image", os.path.join(folder, asked["picture"]), "-p", asked["question"]],
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return done.stdout.strip() if done.returncode == 0 else f"(status {done.returncode}: {done.stderr.strip()})"


def main():
    program, options = sys.argv[1], ["-m", *sys.argv[2:]]
    with tempfile.TemporaryDirectory() as folder:
        scenes.write_questions(folder, scenes.held_back(scenes.EVAL_SEED, 40))
        with open(os.path.join(folder, "questions.json"), encoding="utf-8") as f:
            questions = json.load(f)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            answers = list(pool.map(lambda asked: ask(program, options, folder, asked), questions))
    right = {}
    for asked, said in zip(questions, answers):
        ok = scenes.right(asked["kind"], said, asked["answer"])
        right.setdefault(asked["kind"], []).append(ok)
        if not ok:
            print(f"wrong: {asked['kind']}, {asked['picture']}: {asked['question']} -> {said!r} not {asked['answer']!r}")
    for kind, oks in right.items():
        print(f"{kind:9} {sum(oks)} of {len(oks)}")
    print(f"all       {sum(map(sum, right.values()))} of {len(questions)}")


if __name__ == "__main__":
    main()
