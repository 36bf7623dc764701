#!/usr/bin/env python3
"""Writes tests/golden/template_vectors.json: what Python's Jinja renders, as transformers sets it up.

The templates are tests/golden/templates/*.jinja (written for this test after the formats of the model families) on made-up
conversations, and the short expressions below. With --node-modules DIR every case is also rendered by the npm package
@huggingface/jinja found there; the summary says how many agree and shows where that package differs from Python. Where it differs on
a chat template, its text becomes the case's fourth member: test_template.c says why Python's is followed. With --templates DIR the
templates are those of a folder instead, such as published ones, whose text stands in the cases: for test_template FILE.

    pip install jinja2; npm install @huggingface/jinja
    tools/golden/template_vectors.py [--node-modules node_modules]
    tools/golden/template_vectors.py --templates DIR --output FILE
"""
import argparse, datetime, json, os, pathlib, subprocess, sys, time
import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

NOW = 1700000000  # unix time that strftime_now shows, in UTC
ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def render(template, variables, grows=False):
    sandbox = SandboxedEnvironment if grows else ImmutableSandboxedEnvironment
    env = sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW).strftime(f)
    try:
        return env.from_string(template).render(**variables)
    except Exception:  # any error is an error; its text is ours to choose
        return None


def call(name, arguments, id="abcdefghi"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def message(role, content, **more):
    return {"role": role, "content": content, **more}


WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Current \"weather\" <é>\nin a city",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"type": "string",
           "enum": ["c", "f"], "default": "c"}, "days": {"type": ["integer", "null"], "minimum": 1}}, "required": ["city"]}}}
ADD = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object",
       "properties": {"a": {"type": "number"}, "b": {"type": "array", "items": {"type": "string"}}}, "required": []}}}

CONVERSATIONS = {
    "one": [message("user", "Hi there")],
    "system": [message("system", "You are <b>good</b>."), message("user", "Hello"), message("assistant", "Hey!"),
               message("user", "  blanks <|im_end|> </s> [INST]  \n")],
    "empty": [],
    "two users": [message("user", "a"), message("user", "b")],
    "ends with assistant": [message("user", "a"), message("assistant", "<think>\nhm\n</think>\n\nthe answer")],
    "reasoning": [message("user", "a"), message("assistant", "fine", reasoning_content="because\n"), message("user", "b"),
                  message("assistant", "ok", reasoning_content="\nx")],
    "parts": [message("system", [{"type": "text", "text": "sys"}]), message("user", [{"type": "text", "text": "What is "},
              {"type": "image"}, {"type": "text", "text": "this?"}])],
    "image": [message("user", [{"type": "image"}, {"type": "text", "text": "this?"}]),
              message("assistant", [{"type": "text", "text": "cat"}]), message("user", [{"type": "text", "text": "and?"}])],
    "tool call": [message("system", "s"), message("user", "w?"), message("assistant", "", tool_calls=[call("get_weather",
                  {"city": "Paris", "days": 3, "deep": {"a": [1, 2.5, None, True], "b": "é\"q\n"}})]),
                  message("tool", "{\"t\": 12}", tool_call_id="abcdefghi", name="get_weather"),
                  message("assistant", "12 degrees"), message("user", "thanks")],
    "two calls": [message("user", "w?"), message("assistant", None, tool_calls=[call("get_weather", {"city": "Paris"}),
                  call("add", {"a": 1, "b": ["x"]}, "123456789")]),
                  message("tool", "sunny", tool_call_id="abcdefghi", name="get_weather"),
                  message("tool", "3", tool_call_id="123456789", name="add")],
    "call as text": [message("user", "w?"), message("assistant", "Let me see", tool_calls=[call("get_weather",
                     "{\"city\": \"Rome\"}")]), message("tool", {"t": 1}, tool_call_id="abcdefghi", name="get_weather")],
    "unknown role": [message("alien", "x")],
}
OPTIONS = [{"add_generation_prompt": True}, {"add_generation_prompt": True, "tools": [WEATHER, ADD]},
           {"add_generation_prompt": False, "tools": None, "enable_thinking": False, "date_string": "1 May 2025"},
           {"add_generation_prompt": True, "tools": [], "enable_thinking": False, "tools_first": False}]

VALUES = {
    "s": "Hello, World", "u": "ünï©ödé ß 日本語 😀", "q": "it's \"q\" \\ \n\t\u0001\u00a0\u200b", "empty": "", "blank": "  x y  z \n",
    "n": 42, "neg": -7, "zero": 0, "f": 2.5, "big": 9007199254740993, "t": True, "no": False, "nil": None,
    "l": [3, 1, 2], "words": ["pear", "Apple", "fig", "apple"], "mixed": [1, "a", None, 2.5, [1, {"k": "v"}], True], "nothing": [],
    "d": {"b": 1, "a": "x", "C": [1, 2]}, "users": [{"name": "bo", "age": 30, "tags": ["x"]}, {"name": "Al", "age": 25, "tags": []},
    {"name": "cy", "age": 30, "tags": ["y", "z"], "boss": {"name": "Al"}}], "key": "a", "messages": [message("user", "hi")],
    "floats": [0.1, 1e16, 1e15, 123456789.123456789, 1e-5, 0.0001, 1.0, -0.0, 5e-324, 1.7976931348623157e308, 3.14e20],
}


def expressions():
    """Short templates, and whether lists may grow in them; most are expressions over VALUES."""
    text = (pathlib.Path(__file__).parent / "template_cases.txt").read_text()
    for case in text.split("\n"):
        if case and not case.startswith("## "):
            yield case[1:].replace("\\n", "\n") if case[0] in "!+" else "{{ " + case + " }}", case[0] == "+"


JAVASCRIPT = """
const { Template } = await import(process.argv[1]);
const { readFileSync } = await import('fs');
const file = JSON.parse(readFileSync(0, 'utf8')), out = [], RealDate = Date;
globalThis.Date = class extends RealDate { constructor(...a) { super(...(a.length ? a : [file.now * 1000])); } };
for (const [t, v] of file.cases) {
  try { out.push(new Template(file.templates[t] ?? t).render(structuredClone({ ...file.variables[v[0]], ...file.variables[v[1]] }))); }
  catch (e) { out.push(null); }
}
console.log(JSON.stringify(out));
"""


def compare_with_npm(data, modules):
    package = pathlib.Path(modules).resolve() / "@huggingface" / "jinja" / "dist" / "index.js"
    run = subprocess.run(["node", "--input-type=module", "-e", JAVASCRIPT, package.as_uri()], input=json.dumps(data), text=True,
                         capture_output=True, check=True)
    theirs = json.loads(run.stdout)
    for kind in (True, False):
        pairs = [(c[2], t) for c, t in zip(data["cases"], theirs) if (c[0] in data["templates"]) == kind]
        both = [(a, b) for a, b in pairs if a is not None and b is not None]
        print(f"@huggingface/jinja, {'chat templates' if kind else 'expressions'}: of {len(both)} cases that both render",
              f"{sum(a == b for a, b in both)} agree; only Python renders {sum(b is None and a is not None for a, b in pairs)},",
              f"only the package {sum(a is None and b is not None for a, b in pairs)}")
    for c, t in zip(data["cases"], theirs):
        if c[2] is not None and t is not None and c[2] != t:
            print("  ", c[0][:60], c[1], repr(c[2])[:70], "|", repr(t)[:70])
            if c[0] in data["templates"]:
                c.append(t)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node-modules")
    parser.add_argument("--templates", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    if (options.templates is None) != (options.output is None):
        parser.error("--templates and --output go together")
    os.environ["TZ"] = "UTC"
    time.tzset()
    variables = {"values": VALUES, "none": {}}
    variables |= {k: {"messages": v, "bos_token": "<s>", "eos_token": "</s>"} for k, v in CONVERSATIONS.items()}
    variables |= {f"option {i}": o for i, o in enumerate(OPTIONS)}
    templates = {p.stem: p.read_bytes().decode() for p in sorted((options.templates or ROOT / "templates").glob("*.jinja"))}
    cases = [[t, [c, f"option {i}"]] for t in templates for c in CONVERSATIONS for i in range(len(OPTIONS))]
    short = {} if options.templates else dict(expressions())
    cases += [[e, ["values", "none"]] for e in short]
    for case in cases:
        t, (a, b) = case
        case.append(render(templates.get(t, t), {**variables[a], **variables[b]}, short.get(t, False)))
    if options.node_modules:
        compare_with_npm({"templates": templates, "variables": variables, "cases": cases, "now": NOW}, options.node_modules)
    if options.templates:
        cases = [[templates[t], *rest] for t, *rest in cases]
    lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)
    head = {"about": f"written by tools/golden/template_vectors.py with jinja2 {jinja2.__version__}; null: an error", "now": NOW,
            "variables": variables}
    (options.output or ROOT / "template_vectors.json").write_text(json.dumps(head, ensure_ascii=False)[:-1] + ",\n\"cases\": [\n" + lines + "\n]}\n")
    errors = sum(c[2] is None for c in cases)
    print(f"{len(cases)} cases, {errors} of them errors, {len(templates)} templates")


if __name__ == "__main__":
    main()
