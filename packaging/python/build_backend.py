"""Writes the wheel: the package and the shared library, with nothing but Python's own library.

    python3 build_backend.py LIBRARY FOLDER     or, as a PEP 517 backend, `INGOT_LIBRARY=LIBRARY pip wheel .`

The library's own needs (jansson, PCRE2, utf8proc, libcrypto, libpng, libjpeg, libwebp) stay outside: the wheel is for machines that have
them, and its tag says linux_x86_64, not manylinux.
"""
import base64
import ctypes
import hashlib
import os
import sys
import sysconfig
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def _version(library):
    found = ctypes.CDLL(str(library)).ingot_version
    found.restype = ctypes.c_char_p
    return found().decode()


def _files(library, info, tag):
    name = "libingot.dylib" if sys.platform == "darwin" else "libingot.so"
    version = info[len("ingot-") : -len(".dist-info")]
    for path in sorted((HERE / "ingot").glob("*.py")) + [HERE / "ingot" / "py.typed"]:
        yield f"ingot/{path.name}", path.read_bytes()
    yield f"ingot/{name}", library.read_bytes()
    yield f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: ingot\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    yield f"{info}/METADATA", (
        f"Metadata-Version: 2.1\nName: ingot\nVersion: {version}\nSummary: Runs language models: the ingot inference engine for Python\n"
        "License: Apache-2.0\nRequires-Python: >=3.9\n"
    ).encode()


def build(library, folder):
    """Returns the wheel's path. Times in it are fixed, so that the same files give the same wheel."""
    version = _version(library)
    tag = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
    info = f"ingot-{version}.dist-info"
    path = Path(folder) / f"ingot-{version}-{tag}.whl"
    record = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in _files(library, info, tag):
            entry = zipfile.ZipInfo(name)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            wheel.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(data)}\n"
        wheel.writestr(zipfile.ZipInfo(f"{info}/RECORD"), record + f"{info}/RECORD,,\n")
    return path


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517."""
    library = os.environ.get("INGOT_LIBRARY")
    if not library:
        raise SystemExit("INGOT_LIBRARY is not set; want the path of libingot.so, as in build/release/libingot.so")
    return build(Path(library).resolve(), wheel_directory).name


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: build_backend.py LIBRARY FOLDER")
    print(build(Path(sys.argv[1]).resolve(), sys.argv[2]))
