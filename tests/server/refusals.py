#!/usr/bin/env python3
"""refusals.py PROGRAM - a refusal reaches clients that are still writing their body: Python's http.client, and Node's fetch where there is node."""
import http.client
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
CHAT = "/v1/chat/completions"
LONG = b'{"messages":[{"role":"user","content":"Count."}],"ignore_eos":true,"temperature":1.5,"max_tokens":950}'
FETCH = """
const [url, bytes, key, chunked] = process.argv.slice(1);
const all = Buffer.alloc(+bytes, "a");
const pieces = async function* () { for (let i = 0; i < all.length; i += 65536) yield all.subarray(i, i + 65536); };
const body = chunked === "True" ? ReadableStream.from(pieces()) : all;
const r = await fetch(url, { method: "POST", body, duplex: "half", headers: { authorization: "Bearer " + key } });
console.log(r.status, (await r.json()).error.type);
"""


def python_says(port, path, n_bytes, key, chunked):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    pieces = (b"a" * 65536 for _ in range(n_bytes // 65536))
    c.request("POST", path, pieces if chunked else b"a" * n_bytes, {"Authorization": f"Bearer {key}"}, encode_chunked=chunked)
    status = c.getresponse()
    status.read()
    return status.status


def node_says(port, path, n_bytes, key, chunked):
    url = f"http://127.0.0.1:{port}{path}"
    command = ["node", "--input-type=module", "-e", FETCH, url, str(n_bytes), key, str(chunked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        sys.exit(f"node: {path}: {done.stderr}")
    return int(done.stdout.split()[0])


def ask_long(port):
    """A request that takes long; its reply is never read."""
    c = http.client.HTTPConnection("127.0.0.1", port)
    c.request("POST", CHAT, LONG, {"Authorization": "Bearer right"})
    return c


def active(port):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request("GET", "/metrics", headers={"Authorization": "Bearer right"})
    text = c.getresponse().read().decode()
    return sum(float(n) for n in re.findall(r"^vllm:num_requests_(?:running|waiting)\{.*\} (\S+)", text, re.M))


def expect(clients, port, status, path, n_bytes, key="right"):
    for name, says in clients.items():
        for chunked in [False, True]:
            found = says(port, path, n_bytes, key, chunked)
            if found != status:
                sys.exit(f"{name}, {'chunks' if chunked else 'a length'}: {path} gave {found}, not {status}")
            print(f"{status} reached {name} in {'chunks' if chunked else 'a length'}, {n_bytes // MIB} MiB")


def main():
    clients = {"http.client": python_says} | ({"fetch": node_says} if shutil.which("node") else {})
    log = tempfile.NamedTemporaryFile("r")
    options = "--port 0 -t 1 -np 1 --queue 1 --max-body 16 --drain 600 --api-key right -dev cpu:plain".split()
    with open(log.name, "w") as out:
        server = subprocess.Popen([sys.argv[1], "serve", *options], stderr=out)
    try:
        while not (found := re.search(r"listening on http://[^:]*:(\d+)(.|\n)*loaded in", log.read())):
            time.sleep(0.05)
            log.seek(0)
        port = int(found[1])
        expect(clients, port, 401, CHAT, 10 * MIB, key="wrong")
        expect(clients, port, 404, "/nothing", 10 * MIB)
        expect(clients, port, 413, CHAT, 20 * MIB)
        asked = [ask_long(port) for _ in range(2)]
        while active(port) < 2:
            time.sleep(0.01)
        expect(clients, port, 429, CHAT, 10 * MIB)
        server.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        expect(clients, port, 503, CHAT, 10 * MIB)
        assert len(asked) == 2  # still connected
    finally:
        server.kill()
        server.wait()


main()
