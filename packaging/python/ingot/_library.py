"""The C interface of ingot.h in ctypes: structs as the header has them, functions with their types, errors as exceptions.

tests/test_layout.py compares every struct with what a C compiler makes of the header. A call through ctypes lets other Python threads run.
"""
import ctypes
import enum
import os
import sys
from ctypes import POINTER, byref, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from pathlib import Path

ABI = 2
NO_TOKEN = 0xFFFFFFFF
PARSE_SPECIAL, ADD_SPECIAL, KEEP_SPECIAL = 1, 2, 4
EMBED_MODEL = 4  # of enum ingot_embed


class Code(enum.IntEnum):
    """What kind of error it was."""

    INPUT = 1
    NOT_FOUND = 2
    IO = 3
    MEMORY = 4
    LIMIT = 5
    UNSUPPORTED = 6
    CANCELLED = 7
    NUMERIC = 8
    DEVICE = 9
    TIMEOUT = 10


class IngotError(Exception):
    """An error of the library. Its text says what was found, what was expected, and what to do."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = Code(code)


class Error(ctypes.Structure):
    _fields_ = [("code", c_int), ("message", c_char * 504)]

    def exception(self) -> IngotError:
        return IngotError(self.code, self.message.decode("utf-8", "replace"))


Progress = ctypes.CFUNCTYPE(c_bool, c_void_p, c_uint64, c_uint64)


class Adapter(ctypes.Structure):
    _fields_ = [("path", c_char_p), ("name", c_char_p), ("scale", c_float)]


class AdapterUse(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("scale", c_float)]


class EngineOptions(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("model", c_char_p), ("device", c_char_p), ("stages", c_char_p), ("n_threads", c_uint32),
        ("n_context", c_uint32), ("n_sequences", c_uint32), ("n_kv_tokens", c_uint32), ("n_batch", c_uint32),
        ("step_stretch", c_float), ("cache_type_k", c_int), ("cache_type_v", c_int), ("commit_every", c_uint32),
        ("exact", c_bool), ("invariant", c_bool), ("gemm", c_int), ("no_repack", c_bool), ("no_prefix_cache", c_bool),
        ("cache_dir", c_char_p), ("cache_bytes", c_uint64), ("cpu_features", c_uint32), ("progress", Progress),
        ("progress_arg", c_void_p),
        ("mmproj", c_char_p), ("n_logit_rows", c_uint32), ("draft_most", c_uint64), ("speculate", c_int), ("experts", c_char_p),
        ("draft", c_char_p), ("adapters", POINTER(Adapter)), ("n_adapters", c_size_t), ("limits", c_char_p),
        ("aim", c_int), ("probe_anew", c_bool), ("n_tensor_parallel", c_uint32),
    ]  # fmt: skip


class EngineInfo(ctypes.Structure):
    _fields_ = [
        ("model_name", c_char * 128), ("architecture", c_char * 32), ("format", c_char * 32), ("device", c_char * 160),
        ("n_parameters", c_uint64), ("weight_bytes", c_uint64), ("page_bytes", c_uint64), ("scratch_bytes", c_uint64),
        ("n_layers", c_uint32), ("n_vocab", c_uint32), ("n_embedding", c_uint32), ("n_context", c_uint32),
        ("n_sequences", c_uint32), ("n_batch", c_uint32), ("n_stages", c_uint32), ("cache_type_k", c_int),
        ("cache_type_v", c_int), ("has_tokenizer", c_bool), ("longest_token", c_uint32),
        ("page_tokens", c_uint32), ("takes_pictures", c_bool), ("n_adapters", c_uint32),
        ("n_vector", c_size_t), ("embed", c_int), ("is_encoder", c_bool), ("ranks", c_bool),
    ]  # fmt: skip


class AdapterInfo(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("scale", c_float), ("rank", c_uint32), ("n_matrices", c_uint32)]


class TokenInfo(ctypes.Structure):
    _fields_ = [
        ("spelling", c_void_p), ("bytes", c_void_p), ("n_spelling", c_size_t), ("n_bytes", c_size_t), ("kind", c_int),
        ("ends_answer", c_bool),
    ]  # fmt: skip


class Memory(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in ("weight_bytes", "page_bytes", "scratch_bytes", "free_bytes", "device_bytes", "tower_weight_bytes", "tower_scratch_bytes", "host_weight_bytes")]


class Message(ctypes.Structure):
    _fields_ = [("role", c_char_p), ("content", c_char_p), ("fields", c_char_p)]


class Sampling(ctypes.Structure):
    _fields_ = [
        ("temperature", c_float), ("top_k", c_uint32), ("top_p", c_float), ("min_p", c_float), ("repeat_penalty", c_float),
        ("presence_penalty", c_float), ("frequency_penalty", c_float), ("penalty_window", c_uint32), ("seed", c_uint64),
        ("reserved", c_uint32 * 16),
    ]  # fmt: skip


class Bias(ctypes.Structure):
    _fields_ = [("token", c_uint32), ("bias", c_float)]


class RequestOptions(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t), ("message_size", c_size_t), ("event_size", c_size_t), ("result_size", c_size_t),
        ("session", c_void_p), ("messages", POINTER(Message)), ("n_messages", c_size_t), ("text", c_char_p),
        ("tokens", POINTER(c_uint32)), ("n_tokens", c_size_t), ("parse_special", c_bool), ("sampling", Sampling),
        ("max_tokens", c_uint32), ("stop", POINTER(c_char_p)), ("n_stop", c_size_t), ("ignore_eos", c_bool),
        ("grammar", c_char_p), ("json_schema", c_char_p), ("bias", POINTER(Bias)), ("n_bias", c_size_t), ("embed", c_int),
        ("keep_special", c_bool), ("n_logits", c_uint32), ("priority", c_int32), ("deadline_ms", c_uint32),
        ("n_unread", c_uint32), ("cache_salt", c_char_p), ("tools", c_char_p), ("template_variables", c_char_p),
        ("no_generation_prompt", c_bool), ("continue_last", c_bool), ("n_logprobs", c_uint32), ("n_top_logprobs", c_uint32),
        ("pictures", c_void_p), ("n_pictures", c_size_t), ("no_split", c_bool), ("no_splits", POINTER(c_bool)),
        ("adapters", POINTER(AdapterUse)), ("n_adapters", c_size_t),
        ("n_dimensions", c_uint32), ("no_normalize", c_bool), ("deferred", c_bool),
        ("on_step", c_void_p),
    ]  # fmt: skip


class Pair(ctypes.Structure):
    _fields_ = [
        ("query", c_char_p), ("document", c_char_p), ("instruction", c_char_p), ("n_query", c_size_t), ("n_document", c_size_t),
        ("n_instruction", c_size_t),
    ]  # fmt: skip


class Miss(ctypes.Structure):
    _fields_ = [("reason", c_int), ("position", c_uint32), ("token", c_uint32), ("kept_token", c_uint32)]


class Result(ctypes.Structure):
    _fields_ = [
        ("finish", c_int), ("stop", c_uint32), ("error", Error), ("n_prompt", c_uint32), ("n_reused", c_uint32),
        ("n_generated", c_uint32), ("n_pauses", c_uint32), ("miss", Miss), ("first_token_ms", c_double),
        ("prefill_ms", c_double), ("decode_ms", c_double),
        ("n_tiles", c_uint32), ("n_tiles_cached", c_uint32), ("encode_ms", c_double), ("split_ms", c_double),
        ("read_ms", c_double), ("patch_ms", c_double), ("connect_ms", c_double), ("draft_gain", c_double),
        ("n_drafted", c_uint32), ("n_accepted", c_uint32),
    ]  # fmt: skip


class Logprob(ctypes.Structure):
    _fields_ = [("token", c_uint32), ("logprob", c_double)]


class Event(ctypes.Structure):
    _fields_ = [
        ("text", c_void_p), ("n_bytes", c_size_t), ("token", c_uint32), ("logits", POINTER(c_float)), ("position", c_uint32),
        ("embedding", POINTER(c_float)), ("done", c_bool), ("result", POINTER(Result)), ("logprobs", POINTER(Logprob)),
        ("n_logprobs", c_uint32), ("n_numbers", c_size_t),
    ]  # fmt: skip


class PromptInfo(ctypes.Structure):
    _fields_ = [("text", c_void_p), ("n_bytes", c_size_t), ("reasoning", c_int)]


_SIGNATURES = {
    "ingot_version": (c_char_p, []),
    "ingot_abi": (c_uint32, []),
    "ingot_engine_options_init": (None, [POINTER(EngineOptions), c_size_t]),
    "ingot_engine_open": (c_void_p, [POINTER(EngineOptions), POINTER(Error)]),
    "ingot_engine_estimate_fill": (c_bool, [POINTER(EngineOptions), POINTER(Memory), c_size_t, POINTER(Error)]),
    "ingot_model_find": (c_bool, [c_char_p, c_char_p, c_size_t, POINTER(Error)]),
    "ingot_engine_close": (None, [c_void_p]),
    "ingot_engine_info_fill": (None, [c_void_p, POINTER(EngineInfo), c_size_t]),
    "ingot_adapter_info_fill": (c_bool, [c_void_p, c_uint32, POINTER(AdapterInfo), c_size_t]),
    "ingot_encode": (c_int64, [c_void_p, c_char_p, c_size_t, c_uint, POINTER(c_uint32), c_size_t, POINTER(Error)]),
    "ingot_decode": (c_int64, [c_void_p, POINTER(c_uint32), c_size_t, c_uint, c_char_p, c_size_t, POINTER(Error)]),
    "ingot_token_info_fill": (c_bool, [c_void_p, c_uint32, POINTER(TokenInfo), c_size_t]),
    "ingot_token_find": (c_int64, [c_void_p, c_char_p, c_size_t]),
    "ingot_token_special": (c_int64, [c_void_p, c_int]),
    "ingot_prompt_render": (c_void_p, [c_void_p, POINTER(RequestOptions), POINTER(Error)]),
    "ingot_prompt_info_fill": (None, [c_void_p, POINTER(PromptInfo), c_size_t]),
    "ingot_prompt_tokens": (POINTER(c_uint32), [c_void_p, POINTER(c_size_t), POINTER(Error)]),
    "ingot_prompt_free": (None, [c_void_p]),
    "ingot_rank_tokens": (c_int64, [c_void_p, POINTER(Pair), POINTER(c_uint32), c_size_t, POINTER(Error)]),
    "ingot_prompt_kept": (c_size_t, [c_void_p, POINTER(c_uint32), c_size_t, c_char_p]),
    "ingot_grammar_check": (c_bool, [c_char_p, POINTER(Error)]),
    "ingot_schema_to_grammar": (c_int64, [c_char_p, c_char_p, c_size_t, POINTER(Error)]),
    "ingot_request_options_init": (None, [POINTER(RequestOptions), c_size_t]),
    "ingot_picture_from_memory": (c_void_p, [c_char_p, c_size_t, POINTER(Error)]),
    "ingot_picture_from_file": (c_void_p, [c_char_p, POINTER(Error)]),
    "ingot_picture_from_rgb": (c_void_p, [c_char_p, c_uint32, c_uint32, c_size_t, POINTER(Error)]),
    "ingot_picture_size": (None, [c_void_p, POINTER(c_uint32), POINTER(c_uint32)]),
    "ingot_picture_free": (None, [c_void_p]),
    "ingot_submit": (c_void_p, [c_void_p, POINTER(RequestOptions), POINTER(Error)]),
    "ingot_poll": (c_bool, [c_void_p, POINTER(Event)]),
    "ingot_wait": (c_bool, [c_void_p, c_void_p, c_uint32]),
    "ingot_cancel": (None, [c_void_p]),
    "ingot_request_free": (None, [c_void_p]),
}


def _load() -> ctypes.CDLL:
    name = "libingot.dylib" if sys.platform == "darwin" else "libingot.so"
    beside = Path(__file__).with_name(name)
    path = os.environ.get("INGOT_LIBRARY") or (str(beside) if beside.exists() else name)
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"{error}; install ingot, or name its shared library in INGOT_LIBRARY") from None
    for function, (result, arguments) in _SIGNATURES.items():
        try:
            found = getattr(library, function)
        except AttributeError:
            raise ImportError(f"{path} has no {function}; this package needs an ingot library of ABI {ABI}") from None
        found.restype, found.argtypes = result, arguments
    if library.ingot_abi() != ABI:
        raise ImportError(f"{path} has ABI {library.ingot_abi()}; this package needs {ABI}")
    return library


lib = _load()


def engine_options() -> EngineOptions:
    options = EngineOptions()
    lib.ingot_engine_options_init(byref(options), ctypes.sizeof(options))
    return options


def request_options() -> RequestOptions:
    options = RequestOptions()
    lib.ingot_request_options_init(byref(options), ctypes.sizeof(options))
    options.message_size = ctypes.sizeof(Message)
    options.event_size = ctypes.sizeof(Event)
    options.result_size = ctypes.sizeof(Result)
    return options
