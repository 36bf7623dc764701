"""Runs language models with the ingot engine.

    import ingot

    with ingot.Engine("user/repo:Q4_K_M") as engine:      # a file, a name of the Hugging Face cache, or nothing: the model inside
        for piece in engine.stream([{"role": "user", "content": "What is 12 + 30?"}], temperature=0):
            print(piece, end="", flush=True)

A prompt is a text, a list of messages, or a list of token ids. Any thread may use an engine; threads that wait share its steps. Other
Python threads run meanwhile, and Ctrl-C ends a generation.
"""
import ctypes
import dataclasses
import json
import os
import secrets
import threading
from ctypes import byref
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _library
from ._library import Code, IngotError, lib

__all__ = ["Code", "Engine", "Info", "IngotError", "Memory", "Options", "Picture", "Rendered", "Request", "Result", "Token", "check_grammar", "find_model", "schema_to_grammar", "version"]

Message = Mapping[str, Any]  # role, content, and what else chat completions have: tool_calls, tool_call_id, name, reasoning_content
Prompt = Union[str, Sequence[Message], Sequence[int]]
File = Union[str, "os.PathLike[str]", bytes]  # a path, or a file's bytes
_WAIT_MS = 100  # between two looks for a signal
_KINDS = ("normal", "unknown", "control", "user_defined", "unused", "byte")
_SPECIALS = ("bos", "eos", "fim_prefix", "fim_suffix", "fim_middle", "fim_repo", "fim_file")
_FINISHES = ("none", "eos", "stop", "length", "cancelled", "error")


def version() -> str:
    """The library's version, as in "0.1.0"."""
    return str(lib.ingot_version().decode())


def find_model(name: str) -> str:
    """The path of a model in this machine's Hugging Face cache, by its name; of a file, the file. Never asks the network."""
    path, error = ctypes.create_string_buffer(4096), _library.Error()
    if not lib.ingot_model_find(os.fsencode(name), path, len(path), byref(error)):
        raise error.exception()
    return os.fsdecode(path.value)


def check_grammar(grammar: str) -> None:
    """Raises IngotError when an answer could not follow this GBNF."""
    error = _library.Error()
    if not lib.ingot_grammar_check(grammar.encode(), byref(error)):
        raise error.exception()


def schema_to_grammar(schema: Union[str, Mapping[str, Any]]) -> str:
    """The GBNF whose texts fulfil a JSON Schema. Raises IngotError for a keyword that cannot be followed."""
    data, error = (schema if isinstance(schema, str) else json.dumps(schema)).encode(), _library.Error()
    n = lib.ingot_schema_to_grammar(data, None, 0, byref(error))
    text = ctypes.create_string_buffer(max(n, 0) + 1)
    if n < 0 or lib.ingot_schema_to_grammar(data, text, len(text), byref(error)) < 0:
        raise error.exception()
    return text.value.decode()


class Picture:
    """A picture as a model gets it: RGB, upright, transparency on white. Nothing changes it; any number of requests may share it."""

    def __init__(self, source: File) -> None:
        """source: the path of a PNG, JPEG or WebP file, or its bytes."""
        error = _library.Error()
        if isinstance(source, bytes):
            self._take(lib.ingot_picture_from_memory(source, len(source), byref(error)), error)
        else:
            self._take(lib.ingot_picture_from_file(os.fsencode(source), byref(error)), error)

    @classmethod
    def from_rgb(cls, rgb: bytes, width: int, height: int) -> "Picture":
        """From height rows of width pixels of three bytes."""
        if len(rgb) != 3 * width * height:
            raise ValueError(f"{len(rgb)} bytes; {width} x {height} pixels take {3 * width * height}")
        picture, error = cls.__new__(cls), _library.Error()
        picture._take(lib.ingot_picture_from_rgb(rgb, width, height, 0, byref(error)), error)
        return picture

    def _take(self, handle: Optional[int], error: _library.Error) -> None:
        self._handle = handle
        if not handle:
            raise error.exception()

    @property
    def size(self) -> Tuple[int, int]:
        """Width and height in pixels."""
        width, height = ctypes.c_uint32(), ctypes.c_uint32()
        lib.ingot_picture_size(self._handle, byref(width), byref(height))
        return width.value, height.value

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            lib.ingot_picture_free(self._handle)


@dataclasses.dataclass(frozen=True)
class Options:
    """How to answer. Each is a keyword of generate, stream, batch and submit, too."""

    max_tokens: int = 0  # 0: until the end of the context
    temperature: float = 0.8  # 0: greedy
    top_k: int = 40  # 0: off
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: Optional[int] = None  # None: a new one, which the result names
    stop: Sequence[str] = ()
    grammar: Optional[str] = None  # GBNF
    json_schema: Union[str, Mapping[str, Any], None] = None
    bias: Mapping[int, float] = dataclasses.field(default_factory=dict)  # by token id
    ignore_eos: bool = False
    parse_special: bool = False  # in a text: control tokens may be written
    tools: Optional[Sequence[Mapping[str, Any]]] = None  # as OpenAI's chat completions write them
    template_variables: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # for example enable_thinking
    no_generation_prompt: bool = False  # the prompt ends with the last message
    continue_last: bool = False  # the last message, the assistant's, is the beginning of the answer
    top_logprobs: Optional[int] = None  # log-probabilities of the answer's tokens, and of so many likeliest beside each
    # Each fills one part {"type": "image"} of the messages, in their order; without such parts they stand before the last message's text.
    pictures: Sequence[Union[Picture, File]] = ()
    no_split: bool = False  # each picture as one tile: faster, with fewer details
    adapters: Mapping[str, float] = dataclasses.field(default_factory=dict)  # of the engine, by name: how much each adds; 1: as it was opened
    priority: int = 0  # lower runs earlier
    timeout: float = 0.0  # seconds; 0: none


@dataclasses.dataclass(frozen=True)
class Result:
    """A finished answer."""

    text: str
    finish: str  # "eos", "stop", "length" or "cancelled"
    stop: Optional[str]  # the stop string that was met
    tokens: List[int]
    seed: int
    n_prompt: int
    n_reused: int  # of the prompt, not computed again
    first_token_ms: float
    prefill_ms: float
    decode_ms: float
    logprobs: List[List[Tuple[int, float]]] = dataclasses.field(default_factory=list)  # for each token: its own first, then the likeliest
    n_tiles: int = 0  # of the pictures
    n_tiles_cached: int = 0  # of them, not encoded again
    split_ms: float = 0.0  # resizing pictures
    encode_ms: float = 0.0
    n_drafted: int = 0  # tokens of speculative decoding
    n_accepted: int = 0  # of them
    draft_gain: float = 0.0  # how many times faster their steps were, 0: not known


@dataclasses.dataclass(frozen=True)
class Info:
    """What an engine is."""

    model_name: str
    architecture: str
    format: str
    device: str
    n_parameters: int
    weight_bytes: int
    page_bytes: int
    scratch_bytes: int
    n_layers: int
    n_vocab: int
    n_embedding: int
    n_context: int
    n_sequences: int
    n_batch: int
    has_tokenizer: bool
    takes_pictures: bool


@dataclasses.dataclass(frozen=True)
class Token:
    """A word of the vocabulary."""

    id: int
    spelling: str  # as the vocabulary has it
    bytes: bytes  # that it adds within a text, maybe not whole characters
    kind: str  # "normal", "unknown", "control", "user_defined", "unused" or "byte"
    ends_answer: bool


@dataclasses.dataclass(frozen=True)
class Rendered:
    """A prompt as the model reads it."""

    text: str  # empty for a prompt of tokens
    tokens: List[int]
    reasoning: str  # "none"; "open": the prompt ends within the model's reasoning; "closed": behind it, or within the answer


@dataclasses.dataclass(frozen=True)
class Memory:
    """What an engine would take of a device, and what that has."""

    weight_bytes: int
    page_bytes: int
    scratch_bytes: int
    free_bytes: int
    device_bytes: int
    tower_weight_bytes: int
    tower_scratch_bytes: int
    host_weight_bytes: int


class _Arguments:
    """The C struct of a request, and what it points at for as long as the call lasts."""

    def __init__(self, prompt: Prompt, options: Options) -> None:
        self.c = _library.request_options()
        self.seed = secrets.randbits(64) if options.seed is None else options.seed
        self._set_prompt(prompt)
        self._set_sampling(options)
        stops = [text.encode() for text in options.stop]
        self.c.stop, self.c.n_stop = (ctypes.c_char_p * len(stops))(*stops), len(stops)
        biases = [_library.Bias(token, bias) for token, bias in options.bias.items()]
        self.c.bias, self.c.n_bias = (_library.Bias * len(biases))(*biases), len(biases)
        uses = [_library.AdapterUse(name.encode(), scale) for name, scale in options.adapters.items()]
        self.c.adapters, self.c.n_adapters = (_library.AdapterUse * len(uses))(*uses), len(uses)
        schema = options.json_schema
        text = schema if schema is None or isinstance(schema, str) else json.dumps(schema)
        self.c.json_schema = None if text is None else text.encode()
        if options.top_logprobs is not None:
            self.c.n_logprobs, self.c.n_top_logprobs = 1, options.top_logprobs
        self.c.tools = None if options.tools is None else json.dumps(options.tools).encode()
        self.c.template_variables = json.dumps(options.template_variables).encode() if options.template_variables else None
        self.c.grammar = None if options.grammar is None else options.grammar.encode()
        self._pictures = [p if isinstance(p, Picture) else Picture(p) for p in options.pictures]
        handles = (ctypes.c_void_p * len(self._pictures))(*(p._handle for p in self._pictures))
        self._handles = handles  # the cast keeps nothing alive
        self.c.pictures, self.c.n_pictures = ctypes.cast(handles, ctypes.c_void_p), len(handles)
        self.c.no_split = options.no_split

    def _set_prompt(self, prompt: Prompt) -> None:
        if isinstance(prompt, str):
            if "\0" in prompt:
                raise ValueError("the prompt holds a NUL; a text ends there")
            self.c.text = prompt.encode()
            return
        items = list(prompt)
        ids = [item for item in items if isinstance(item, int)]
        if ids and len(ids) == len(items):
            self.c.tokens, self.c.n_tokens = (ctypes.c_uint32 * len(ids))(*ids), len(ids)
            return
        try:
            messages = [_message(item) for item in items]
        except (TypeError, KeyError, AttributeError):
            raise TypeError("a prompt is a str, a list of {'role': ..., 'content': ...}, or a list of token ids") from None
        self.c.messages, self.c.n_messages = (_library.Message * len(messages))(*messages), len(messages)

    def _set_sampling(self, options: Options) -> None:
        for name in ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty"):
            setattr(self.c.sampling, name, getattr(options, name))
        for name in ("max_tokens", "ignore_eos", "parse_special", "priority", "no_generation_prompt", "continue_last"):
            setattr(self.c, name, getattr(options, name))
        self.c.sampling.seed = self.seed
        self.c.deadline_ms = max(1, round(options.timeout * 1000)) if options.timeout > 0 else 0


def _message(item: Any) -> _library.Message:
    """A message of a role and a text goes as it is, one with more as JSON."""
    if set(item) == {"role", "content"} and isinstance(item["content"], str) and "\0" not in item["content"]:
        return _library.Message(item["role"].encode(), item["content"].encode())
    if not isinstance(item["role"], str) or not isinstance(item["content"], (str, list, type(None))):
        raise TypeError
    return _library.Message(None, None, json.dumps(dict(item)).encode())


class Request:
    """An answer under way: iterate for its pieces of text, or ask for the result. Freed when it ends, or by close()."""

    def __init__(self, engine: "Engine", arguments: _Arguments, options: Options) -> None:
        error = _library.Error()
        self._lock = threading.Lock()  # a handle that is being used is not freed
        self._engine = engine._opened()
        self._handle = lib.ingot_submit(self._engine, byref(arguments.c), byref(error))
        if not self._handle:
            raise error.exception()
        self._options, self._seed = options, arguments.seed
        self._pieces: List[str] = []
        self._tokens: List[int] = []
        self._logprobs: List[List[Tuple[int, float]]] = []
        self._embedding: List[float] = []
        self._result: Optional[Result] = None
        self._error: Optional[IngotError] = None

    def __iter__(self) -> Iterator[str]:
        """The pieces that are still to come. Leaving the loop early cancels the request."""
        try:
            while self._handle:
                lib.ingot_wait(self._engine, self._handle, _WAIT_MS)
                yield from self._take()
        finally:
            self.close()
        if self._error:
            raise self._error

    def _take(self) -> List[str]:
        event, pieces = _library.Event(), []
        while self._handle and lib.ingot_poll(self._handle, byref(event)):
            if event.token != _library.NO_TOKEN:
                self._tokens.append(event.token)
                if event.n_logprobs:
                    self._logprobs.append([(event.logprobs[i].token, event.logprobs[i].logprob) for i in range(event.n_logprobs)])
            if event.n_bytes:
                pieces.append(ctypes.string_at(event.text, event.n_bytes).decode())
            if event.embedding:
                self._embedding = event.embedding[: event.n_numbers]
            if event.done:
                self._end(pieces, event.result.contents)
        self._pieces += pieces
        return pieces

    def _end(self, pieces: List[str], c: _library.Result) -> None:
        finish = _FINISHES[c.finish]
        if finish == "error":
            self._error = c.error.exception()
        self._result = Result(
            text="".join(self._pieces + pieces),
            finish=finish,
            stop=self._options.stop[c.stop] if finish == "stop" else None,
            tokens=self._tokens,
            seed=self._seed,
            n_prompt=c.n_prompt,
            n_reused=c.n_reused,
            first_token_ms=c.first_token_ms,
            prefill_ms=c.prefill_ms,
            decode_ms=c.decode_ms,
            logprobs=self._logprobs,
            n_tiles=c.n_tiles,
            n_tiles_cached=c.n_tiles_cached,
            split_ms=c.split_ms,
            encode_ms=c.encode_ms,
            n_drafted=c.n_drafted,
            n_accepted=c.n_accepted,
            draft_gain=c.draft_gain,
        )
        self.close()

    def result(self) -> Result:
        """Waits for the end. Raises IngotError when the request ended with one."""
        for _ in self:
            pass
        if self._error:
            raise self._error
        if self._result is None:
            raise IngotError(Code.CANCELLED, "the request was closed before its end")
        return self._result

    def cancel(self) -> None:
        """The answer ends here; the result's finish is "cancelled". Any thread may call this, and no other method."""
        with self._lock:
            if self._handle:
                lib.ingot_cancel(self._handle)

    def close(self) -> None:
        """Frees the request, which cancels it when it still runs."""
        with self._lock:
            handle, self._handle = self._handle, None
            if handle:
                lib.ingot_request_free(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()


class Engine:
    """A loaded model. Use it in a with statement, or close() it."""

    def __init__(self, model: Optional[str] = None, **options: Any) -> None:
        """model: a .gguf file, a safetensors folder, a name of the Hugging Face cache, "ingot-eyes" for the model inside the library
        that sees, or None: the one inside for text.

        Options: device ("auto", "cpu", "cuda:1", ...), n_context, n_sequences, n_threads, n_batch, n_kv_tokens, exact, invariant,
        no_repack, no_prefix_cache, cache_dir, cache_bytes, stages, n_tensor_parallel, mmproj, experts, draft, speculate (0: auto,
        1: off, 2: always), draft_most; ingot.h says what they mean. adapters: LoRA adapters that answers can use (Options.adapters),
        each a path (named after its file), or a tuple (path, name) or (path, name, scale).
        """
        self._handle: Optional[int] = None
        error = _library.Error()
        c = _engine_arguments(model, options)
        self._handle = lib.ingot_engine_open(byref(c), byref(error))
        if not self._handle:
            raise error.exception()

    @staticmethod
    def estimate(model: Optional[str] = None, **options: Any) -> Memory:
        """What Engine(model, **options) would take. Loads nothing."""
        c, memory, error = _engine_arguments(model, options), _library.Memory(), _library.Error()
        if not lib.ingot_engine_estimate_fill(byref(c), byref(memory), ctypes.sizeof(memory), byref(error)):
            raise error.exception()
        return Memory(*(getattr(memory, field.name) for field in dataclasses.fields(Memory)))

    def _opened(self) -> int:
        if not self._handle:
            raise IngotError(Code.INPUT, "the engine is closed; open it again")
        return self._handle

    @property
    def info(self) -> Info:
        c = _library.EngineInfo()
        lib.ingot_engine_info_fill(self._opened(), byref(c), ctypes.sizeof(c))
        values = {field.name: getattr(c, field.name) for field in dataclasses.fields(Info)}
        return Info(**{name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value for name, value in values.items()})

    @property
    def adapters(self) -> Dict[str, float]:
        """The names and scales of the adapters it was opened with."""
        found, c = {}, _library.AdapterInfo()
        while lib.ingot_adapter_info_fill(self._opened(), len(found), byref(c), ctypes.sizeof(c)):
            found[c.name.decode("utf-8", "replace")] = c.scale
        return found

    def submit(self, prompt: Prompt, options: Options = Options(), **changes: Any) -> Request:
        """Begins an answer and returns at once. Changes are members of Options."""
        options = dataclasses.replace(options, **changes)
        return Request(self, _Arguments(prompt, options), options)

    def stream(self, prompt: Prompt, options: Options = Options(), **changes: Any) -> Iterator[str]:
        """The pieces of an answer, as they come. Leaving the loop cancels it."""
        return iter(self.submit(prompt, options, **changes))

    def generate(self, prompt: Prompt, options: Options = Options(), **changes: Any) -> Result:
        """The whole answer."""
        return self.submit(prompt, options, **changes).result()

    def batch(self, prompts: Sequence[Prompt], options: Options = Options(), **changes: Any) -> List[Union[Result, IngotError]]:
        """Answers to all prompts, made together: faster than one by one when n_sequences is above 1. One's error is in its place."""
        requests: List[Request] = []
        failures: Dict[int, IngotError] = {}
        try:
            for i, prompt in enumerate(prompts):
                try:
                    requests.append(self.submit(prompt, options, **changes))
                except IngotError as error:
                    failures[i] = error
            answers = iter([_outcome(request) for request in requests])
        finally:
            for request in requests:
                request.close()
        return [failures[i] if i in failures else next(answers) for i in range(len(prompts))]

    def embed(self, prompt: Prompt) -> List[float]:
        """As the model's file says, for an embedding model; else the mean of the prompt's hidden states. Of length 1."""
        arguments = _Arguments(prompt, Options())
        arguments.c.embed = _library.EMBED_MODEL
        request = Request(self, arguments, Options())
        request.result()
        return request._embedding

    def tokenize(self, text: str, parse_special: bool = False, add_special: bool = False) -> List[int]:
        """parse_special: control tokens may be written in the text. add_special: BOS, or what else the model puts around one."""
        data, flags = text.encode(), _library.PARSE_SPECIAL * parse_special | _library.ADD_SPECIAL * add_special
        room = len(data) + 16  # a token has a byte at least, but for few
        while True:
            tokens, error = (ctypes.c_uint32 * room)(), _library.Error()
            n = lib.ingot_encode(self._opened(), data, len(data), flags, tokens, room, byref(error))
            if n < 0:
                raise error.exception()
            if n <= room:
                return list(tokens[:n])
            room = n

    def render(self, prompt: Prompt, options: Options = Options(), **changes: Any) -> Rendered:
        """The prompt that a request with these options would read."""
        arguments, error = _Arguments(prompt, dataclasses.replace(options, **changes)), _library.Error()
        handle = lib.ingot_prompt_render(self._opened(), byref(arguments.c), byref(error))
        if not handle:
            raise error.exception()
        try:
            info, n = _library.PromptInfo(), ctypes.c_size_t()
            lib.ingot_prompt_info_fill(handle, byref(info), ctypes.sizeof(info))
            tokens = lib.ingot_prompt_tokens(handle, byref(n), byref(error))
            if not tokens:
                raise error.exception()
            text = ctypes.string_at(info.text, info.n_bytes).decode("utf-8", "replace")
            return Rendered(text, tokens[: n.value], ("none", "open", "closed")[info.reasoning])
        finally:
            lib.ingot_prompt_free(handle)

    def kept(self, tokens: Sequence[int]) -> int:
        """How many tokens at the beginning a request would find in memory and not compute again."""
        return int(lib.ingot_prompt_kept(self._opened(), (ctypes.c_uint32 * len(tokens))(*tokens), len(tokens), None))

    def count_tokens(self, text: str, parse_special: bool = False) -> int:
        data, error = text.encode(), _library.Error()
        n = lib.ingot_encode(self._opened(), data, len(data), _library.PARSE_SPECIAL * parse_special, None, 0, byref(error))
        if n < 0:
            raise error.exception()
        return int(n)

    def detokenize(self, tokens: Sequence[int], keep_special: bool = False) -> str:
        """keep_special: control tokens appear as the vocabulary spells them, else not at all."""
        ids, error, flags = (ctypes.c_uint32 * len(tokens))(*tokens), _library.Error(), _library.KEEP_SPECIAL * keep_special
        n = lib.ingot_decode(self._opened(), ids, len(ids), flags, None, 0, byref(error))
        text = ctypes.create_string_buffer(max(n, 0) + 1)
        if n < 0 or lib.ingot_decode(self._opened(), ids, len(ids), flags, text, len(text), byref(error)) < 0:
            raise error.exception()
        return text.raw[:n].decode("utf-8", "replace")

    def token(self, token: int) -> Token:
        """What a token is. Raises IndexError for what is none."""
        c = _library.TokenInfo()
        if not 0 <= token <= _library.NO_TOKEN or not lib.ingot_token_info_fill(self._opened(), token, byref(c), ctypes.sizeof(c)):
            raise IndexError(f"there is no token {token}")
        spelling = ctypes.string_at(c.spelling, c.n_spelling).decode("utf-8", "replace")
        return Token(token, spelling, ctypes.string_at(c.bytes, c.n_bytes), _KINDS[c.kind], c.ends_answer)

    def find_token(self, spelling: str) -> Optional[int]:
        """The token with this spelling of the vocabulary."""
        data = spelling.encode()
        token = lib.ingot_token_find(self._opened(), data, len(data))
        return None if token < 0 else int(token)

    def special_token(self, name: str) -> Optional[int]:
        """name: "bos", "eos", "fim_prefix", "fim_suffix", "fim_middle", "fim_repo" or "fim_file". None: the model has none."""
        token = lib.ingot_token_special(self._opened(), _SPECIALS.index(name))
        return None if token < 0 else int(token)

    def close(self) -> None:
        """Ends all requests as cancelled. A second time does nothing."""
        handle, self._handle = self._handle, None
        if handle:
            lib.ingot_engine_close(handle)

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()


def _outcome(request: Request) -> Union[Result, IngotError]:
    try:
        return request.result()
    except IngotError as error:
        return error


def _engine_arguments(model: Optional[str], options: Mapping[str, Any]) -> _library.EngineOptions:
    c = _library.engine_options()
    known = {name for name, *_ in c._fields_} - {"size", "model", "progress", "progress_arg", "n_adapters"}
    for name, value in options.items():
        if name not in known:
            raise TypeError(f"Engine has no option {name!r}; it has {', '.join(sorted(known))}")
        if name == "adapters":
            adapters = [_adapter(item) for item in value]
            c.adapters, c.n_adapters = (_library.Adapter * len(adapters))(*adapters), len(adapters)
            continue
        setattr(c, name, os.fsencode(value) if isinstance(value, (str, os.PathLike)) else value)
    if model is not None:
        path = os.fspath(model)
        c.model = os.fsencode(path if os.path.exists(path) else _found(path))
    return c


def _adapter(item: Any) -> _library.Adapter:
    """A path, (path, name) or (path, name, scale)."""
    parts = [item] if isinstance(item, (str, os.PathLike)) else list(item)
    if not 1 <= len(parts) <= 3:
        raise TypeError("an adapter is a path, (path, name) or (path, name, scale)")
    path, name, scale = parts + [None, 1.0][len(parts) - 1 :]
    return _library.Adapter(os.fsencode(path), None if name is None else name.encode(), scale)


def _found(name: str) -> str:
    """A name's path; what is no name is left for the library to miss as a file."""
    try:
        return find_model(name)
    except IngotError as error:
        if error.code == Code.INPUT:
            return name
        raise
