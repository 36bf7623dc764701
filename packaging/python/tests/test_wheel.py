"""The wheel holds what it lists, and what it holds runs by itself. INGOT_LIBRARY names the library that goes into it."""
import base64
import hashlib
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

BACKEND = Path(__file__).resolve().parent.parent / "build_backend.py"
PROGRAM = """
import ingot
with ingot.Engine(device="cpu") as engine:
    print(ingot.__file__)
    print(engine.generate([{"role": "user", "content": "What is 12 + 30?"}], temperature=0, max_tokens=20).text)
"""


class Wheel(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def build(self):
        command = [sys.executable, str(BACKEND), os.environ["INGOT_LIBRARY"], self.folder.name]
        return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())

    def test_its_record_is_true(self):
        path = self.build()
        first = path.read_bytes()
        with zipfile.ZipFile(path) as wheel:
            (record,) = [name for name in wheel.namelist() if name.endswith(".dist-info/RECORD")]
            lines = [line.split(",") for line in wheel.read(record).decode().splitlines()]
            self.assertEqual(sorted(name for name, _, _ in lines), sorted(wheel.namelist()))
            for name, digest, size in lines:
                data = wheel.read(name)
                if name != record:
                    expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                    self.assertEqual((digest, size), (f"sha256={expected}", str(len(data))))
        self.assertEqual(self.build().read_bytes(), first)

    def test_it_runs_alone(self):
        with zipfile.ZipFile(self.build()) as wheel:
            wheel.extractall(Path(self.folder.name, "site"))
        env = {name: value for name, value in os.environ.items() if name not in ("INGOT_LIBRARY", "LD_LIBRARY_PATH")}
        env["PYTHONPATH"] = str(Path(self.folder.name, "site"))
        run = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, cwd=self.folder.name)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn(env["PYTHONPATH"], run.stdout)
        self.assertIn("42", run.stdout)


if __name__ == "__main__":
    unittest.main()
