#!/usr/bin/env python3
"""ends.py PROGRAM TEST_RANKS - how a group of ranks ends: what differs is said, a rank that dies or is silent is named in time, and status 3."""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM, TEST_RANKS = [os.path.abspath(a) for a in sys.argv[1:3]]
MODEL = str(pathlib.Path(__file__).parents[2] / "models/ingot-7m-q8_0.gguf")
OTHER = str(pathlib.Path(__file__).parents[1] / "golden/qwen2/model.gguf")
MPIRUN = ["mpirun", "--bind-to", "none", "--map-by", ":OVERSUBSCRIBE", "--allow-run-as-root"]
ENVIRONMENT = {"ASAN_OPTIONS": "detect_leaks=0"}  # MPI has leaks of its own at its end
SERVE = "serve --port 0 -t 1 -np 3 -c 512 -dev cpu --drain 60".split()
# Notes the process and its exit status; mpirun's signals are for the program alone.
KEEP = 'trap "" TERM CONT; "$@" & echo $! >$DIR/pid.$OMPI_COMM_WORLD_RANK; wait $!; s=$?; echo $s >$DIR/status.$OMPI_COMM_WORLD_RANK; exit $s'
PROMPT = {"prompt": "fox " * 200, "temperature": 0, "max_tokens": 4}  # by the plain loops many seconds
LONG = {"prompt": "Once upon a time", "ignore_eos": True, "temperature": 0, "max_tokens": 480}


class Group:
    """One mpirun with a command for each rank."""

    def __init__(self, *commands):
        self.folder = tempfile.TemporaryDirectory()
        at = pathlib.Path(self.folder.name)
        self.log_path = at / "log"
        line = list(MPIRUN)
        for i, command in enumerate(commands):
            line += [":"] * (i > 0) + ["-n", "1", "-x", "DIR", "sh", "-c", KEEP, "sh", *command]
        with open(self.log_path, "w") as out:
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **ENVIRONMENT, "DIR": str(at)})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for rank in range(3):
            self.signal(rank, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def log(self):
        return self.log_path.read_text(errors="replace")

    def read(self, name):
        path = pathlib.Path(self.folder.name) / name
        return path.read_text().strip() if path.exists() else ""

    def signal(self, rank, number):
        try:
            os.kill(int(self.read(f"pid.{rank}") or 0) or 1 << 22, number)
        except ProcessLookupError:
            pass

    def await_log(self, pattern, seconds=60):
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.log())):
            if time.monotonic() > end or self.process.poll() is not None:
                fail(f"no '{pattern}' within {seconds} s", self)
            time.sleep(0.02)
        return found

    def await_end(self, seconds):
        begun = time.monotonic()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            fail(f"still there after {seconds} s", self)
        return time.monotonic() - begun


def fail(what, group):
    sys.exit(f"{what}\n--- the log\n{group.log()}")


def expect(group, condition, what):
    if not condition:
        fail(what, group)


def lines_of(group, part):
    return [line for line in group.log().splitlines() if line.startswith("ingot: ") and part in line]


# What differs, or is not there.
def disagreements():
    run = [PROGRAM, "run", "-p", "A fox", "-n", "4", "-dev", "cpu"]
    missing = "/nowhere/model.gguf"
    cases = [
        ([*run, "-m", MODEL, "-c", "512"], [*run, "-m", MODEL, "-c", "256"], r"rank 1 \(.+\): context: -c 256 here, and rank 0 has -c 512"),
        ([*run, "-m", MODEL], [*run, "-m", OTHER], r"rank 1 \(.+\): (model|stages): .* here, and rank 0 has "),
        ([*run, "-m", MODEL, "-ctk", "f16"], [*run, "-m", MODEL, "-ctk", "f32"], r"rank 1 \(.+\): k: -ctk f32 here, and rank 0 has -ctk f16"),
        ([*run, "-m", MODEL, "--exact"], [*run, "-m", MODEL, "-ctk", "f16", "-ctv", "f16"], r"rank 1 \(.+\): (k|exact): "),
        ([*run, "-m", MODEL], [*run, "-m", missing], rf"rank 1 \(.+\): {missing}: "),
        ([*run, "-m", missing], [*run, "-m", MODEL], rf"rank 0 \(.+\): {missing}: "),
        ([*run, "-m", MODEL, "--stages", "3"], [*run, "-m", MODEL, "--stages", "4"], r"rank 1 \(.+\): stages: layers 0, 4 here, and rank 0 has layers 0, 3"),
        ([*run, "-m", MODEL, "--stages", "3,5"], [*run, "-m", MODEL, "--stages", "3,5"], r'rank 0 \(.+\): stages "3,5" are 3, and there are 2 ranks'),
        ([*run, "-m", MODEL, "--tensor-parallel", "2"], [*run, "-m", MODEL, "--tensor-parallel", "2"], r"--tensor-parallel does not work with mpirun yet; leave out one of them"),
        ([*run, "-m", MODEL, "-dev", "cpu,cpu"], [*run, "-m", MODEL], r"rank 0 \(.+\): --device names 2 devices"),
    ]
    for first, second, line in cases:
        with Group(first, second) as g:
            g.await_end(60)
            expect(g, len(lines_of(g, "")) == 1 and re.search(line, g.log()), f"not one line '{line}'")
            expect(g, g.read("status.0") == "1" and g.process.returncode == 1, f"status {g.read('status.0')}, not 1")
            print("said:", lines_of(g, "")[0][:150])


# Another kind of device on each rank: the text of one process with the same numerics.
def unlike_devices():
    run = [PROGRAM, "run", "-p", "Tell me a short story about a fox.", "-n", "40", "--temp", "0", "-q", "-m", MODEL, "--exact", "-dev"]
    text = subprocess.run([*run, "cpu"], capture_output=True, text=True, check=True).stdout.strip()
    for first, second in [("cpu", "cpu:plain"), ("cpu:plain", "cpu")]:
        with Group([*run, first], [*run, second]) as g:
            g.await_end(60)
            expect(g, g.process.returncode == 0 and len(text) > 80 and g.log().strip() == text, f"{first} and {second} say something else than: {text}")
            print(f"{first} and {second}: the text of one process")


def ask(port, answers, request=LONG):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        c.request("POST", "/v1/completions", json.dumps(request), {"Content-Type": "application/json"})
        reply = c.getresponse()
        answers.append((time.monotonic(), reply.status, reply.read().decode()))
    except OSError as e:
        answers.append((time.monotonic(), 0, str(e)))


# A rank is killed, or stopped; every request has its error within 5 s, and rank 0 status 3.
def death(phase, victim, n_ranks, number=signal.SIGKILL, seconds=5):
    reads = phase == "prompt"
    slow = ["-dev", "cpu:plain", *(["-c", "1024", "-t", "2"] if reads else [])]  # no processor is done before the rank is lost
    with Group(*[[PROGRAM, *SERVE, "-m", MODEL, *slow]] * n_ranks) as g:
        port = int(g.await_log(r"listening on http://[^:]*:(\d+)")[1])
        g.await_log(r"loaded in")
        answers = []
        threads = [threading.Thread(target=ask, args=(port, answers, PROMPT if reads else LONG)) for _ in range(0 if phase == "idle" else 2)]
        for t in threads:
            t.start()
        time.sleep(0.5 if reads else 0.3)
        expect(g, not answers, f"{phase}: an answer came too early")
        killed = time.monotonic()
        g.signal(victim, number)
        for t in threads:
            t.join()
        took = max([a[0] - killed for a in answers], default=0)
        for _, status, text in answers:
            expect(g, status in (500, 503) and f"rank {victim} (" in text, f"{phase}: {status} {text}")
        expect(g, took < seconds, f"{phase}: the error came after {took:.1f} s")
        g.await_end(seconds + 5)
        expect(g, g.read("status.0") == "3", f"{phase}: status {g.read('status.0')}, not 3")
        print(f"{phase}, rank {victim} of {n_ranks}: {len(answers)} errors after {took:.2f} s, all over after {time.monotonic() - killed:.2f} s")
        return g.log()


def maps(group, rank, part):
    try:
        return part in pathlib.Path(f"/proc/{int(group.read(f'pid.{rank}') or 0)}/maps").read_text()
    except OSError:
        return False


# Rank 1 is stopped as soon as it has opened the plug-in, or the model, and then killed.
def death_before_steps(phase, part):
    run = [PROGRAM, "run", "-p", "A fox", "-dev", "cpu", "-m", MODEL, "-n", "500", "--ignore-eos"]
    with Group(run, run) as g:
        while not maps(g, 1, part):
            expect(g, g.process.poll() is None, f"{phase}: all is over")
        g.signal(1, signal.SIGSTOP)
        time.sleep(0.2)
        g.signal(1, signal.SIGKILL)
        g.await_end(10)
        expect(g, len(lines_of(g, "")) == 1, f"{phase}: not one line")
        expect(g, g.read("status.0") == "3", f"{phase}: status {g.read('status.0')}, not 3")
        print(f"{phase}:", lines_of(g, "")[0][:120])


# Rank 0 is killed: nobody stays.
def death_of_the_first():
    with Group(*[[PROGRAM, *SERVE, "-m", MODEL]] * 2) as g:
        g.await_log(r"loaded in")
        g.signal(0, signal.SIGKILL)
        g.await_end(10)
        time.sleep(0.2)
        try:
            os.kill(int(g.read("pid.1")), 0)
            fail("rank 1 is still there", g)
        except ProcessLookupError:
            print("rank 0 killed: rank 1 is gone, too")


def silence():
    log = death("decode", 1, 2, signal.SIGSTOP, 17)
    if not re.search(r"rank 1 \(.+\) has been silent for 10 s", log) or not re.search(r"rank 1 \(.+\) has been silent for 15 s", log):
        sys.exit(f"no warning or no error of a silent rank\n{log}")


# What another program sends ends the group with one line.
def rubbish():
    for kind in ["short", "magic", "kind", "long", "step"]:
        with Group([PROGRAM, "run", "-m", MODEL, "-p", "A fox", "-dev", "cpu"], [TEST_RANKS, "rubbish", kind]) as g:
            g.await_end(20)
            expect(g, len(lines_of(g, "rank 1")) == 1, f"{kind}: not one line that names rank 1")
            expect(g, g.read("status.0") == "3", f"{kind}: status {g.read('status.0')}, not 3")
            print(f"{kind}:", lines_of(g, "rank 1")[0][:120])


def stop():
    """SIGTERM to mpirun while nothing is wrong: rank 0 stops as ever, and nobody is called lost."""
    with Group(*[[PROGRAM, *SERVE, "-m", MODEL]] * 2) as g:
        g.await_log(r"loaded in")
        g.signal(0, signal.SIGTERM)
        g.await_end(20)
        expect(g, g.read("status.0") == "0" and g.read("status.1") == "0", f"stop: {g.read('status.0')} {g.read('status.1')}")
        expect(g, "lost" not in g.log() and "gone" not in g.log(), "stop: a rank is called lost")
        print("stopped by SIGTERM: status 0 on both")


def why_not():
    if not pathlib.Path(PROGRAM).with_name("libingot_mpi.so").exists():
        return "this build has no plug-in for MPI: mpicc was not found"
    if not shutil.which("mpirun") or "Open MPI" not in subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout:
        return "Open MPI's mpirun is not here"
    return None


def main():
    if why := why_not():
        print(f"skipped: {why}")
        sys.exit(77)
    disagreements()
    unlike_devices()
    stop()
    death_before_steps("starting", "libingot_mpi.so")
    death_before_steps("loading", MODEL)
    death("idle", 1, 2)
    death("prompt", 1, 2)
    death("decode", 1, 2)
    death("decode", 1, 3)
    death("decode", 2, 3)
    death_of_the_first()
    rubbish()
    silence()


main()
