"""What makers of golden folders share: the files of a folder, and which folders a command line names. Needs numpy."""
import json
import os
import struct
import sys

import numpy as np


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, x in tensors.items():
        kind = {"float32": "F32", "int32": "I32", "uint8": "U8", "uint16": "BF16", "int16": "I16", "float16": "F16"}[x.dtype.name]
        header[name] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [len(data), len(data) + x.nbytes]}
        data += np.ascontiguousarray(x).tobytes()
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + data)


def write_config(folder, config):
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps(config, indent=2, sort_keys=True) + "\n")


def write_golden(folder, tokens, logits):
    write_safetensors(os.path.join(folder, "golden.safetensors"), {"tokens": tokens, "logits": logits.astype(np.float32)})


def make_named(names, make):
    """SCRIPT OUT [name ...]: all of the names, or those."""
    for index, name in enumerate(names):
        if len(sys.argv) == 2 or name in sys.argv[2:]:
            make(name, index, sys.argv[1])
