"""The structs in ctypes are those of ingot.h, by a C compiler's word: CC, and the header's folder in INGOT_INCLUDE."""
import ctypes
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from ingot import _library

STRUCTS = {
    "ingot_error": _library.Error,
    "ingot_adapter": _library.Adapter,
    "ingot_adapter_use": _library.AdapterUse,
    "ingot_adapter_info": _library.AdapterInfo,
    "ingot_engine_options": _library.EngineOptions,
    "ingot_engine_info": _library.EngineInfo,
    "ingot_token_info": _library.TokenInfo,
    "ingot_prompt_info": _library.PromptInfo,
    "ingot_memory": _library.Memory,
    "ingot_message": _library.Message,
    "ingot_sampling": _library.Sampling,
    "ingot_bias": _library.Bias,
    "ingot_request_options": _library.RequestOptions,
    "ingot_miss": _library.Miss,
    "ingot_result": _library.Result,
    "ingot_logprob": _library.Logprob,
    "ingot_event": _library.Event,
}


def layout_of_c():
    lines = ["#include <ingot.h>", "#include <stdio.h>", "int main(void)", "{"]
    for tag, struct in STRUCTS.items():
        lines.append(f'printf("{tag} %zu\\n", sizeof(struct {tag}));')
        for name, *_ in struct._fields_:
            size = f"sizeof(((struct {tag} *)0)->{name})"
            lines.append(f'printf("{tag}.{name} %zu %zu\\n", offsetof(struct {tag}, {name}), {size});')
    lines.append(f'printf("abi %d\\n", INGOT_ABI == {_library.ABI});\n}}')
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "layout.c"), Path(folder, "layout")
        source.write_text("\n".join(lines))
        needs = ["-I", os.environ["INGOT_INCLUDE"], str(source), "-o", str(program), os.environ["INGOT_LIBRARY"]]
        subprocess.run([os.environ.get("CC", "cc"), *needs], check=True)
        folder_of_library = str(Path(os.environ["INGOT_LIBRARY"]).parent)
        env = {**os.environ, "LD_LIBRARY_PATH": folder_of_library, "DYLD_LIBRARY_PATH": folder_of_library}
        return subprocess.run([program], check=True, env=env, capture_output=True, text=True).stdout.splitlines()


class Layout(unittest.TestCase):
    def test_every_member_is_where_c_has_it(self):
        here = []
        for tag, struct in STRUCTS.items():
            here.append(f"{tag} {ctypes.sizeof(struct)}")
            for name, *_ in struct._fields_:
                field = getattr(struct, name)
                here.append(f"{tag}.{name} {field.offset} {field.size}")
        self.assertEqual([*here, "abi 1"], layout_of_c())


if __name__ == "__main__":
    unittest.main()
