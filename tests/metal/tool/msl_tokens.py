"""msl_tokens.py - preprocessed MSL as a list of tokens with their places, and the few look-ups that translator and lint share."""
import os
import re
import subprocess
import tempfile

TOKEN = re.compile(r'''(?P<space>\s+|//[^\n]*|/\*.*?\*/)|(?P<line>^\#[^\n]*)|(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
|(?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)|(?P<name>[A-Za-z_]\w*)
|(?P<sign>\[\[|\]\]|::|->|<<=|>>=|<<|[-+*/%&|^=!<>]=|&&|\|\||\+\+|--|.)''', re.X | re.S | re.M)

HEADERS = ('metal_stdlib', 'metal_simdgroup_matrix', 'metal_simdgroup', 'metal_atomic', 'metal_math', 'metal_integer',
           'metal_compute', 'metal_matrix', 'metal_common', 'metal_geometric', 'metal_relational', 'metal_types')
SPACES = {'device': 'MSL_DEVICE', 'constant': 'MSL_CONSTANT', 'thread': 'MSL_THREAD', 'threadgroup': 'MSL_THREADGROUP_SPACE'}
OPEN, CLOSE = {'(', '[', '{', '[['}, {')', ']', '}', ']]'}


class Token:
    __slots__ = ('kind', 'text', 'file', 'line')

    def __init__(self, kind, text, file, line):
        self.kind, self.text, self.file, self.line = kind, text, file, line


class Failure(Exception):
    """A message that begins with file:line."""


def preprocess(path, clang, includes, version, defines=()):
    """The source as the preprocessor leaves it; Metal's own headers are empty, their names come with the shim."""
    with tempfile.TemporaryDirectory() as folder:
        for name in HEADERS:
            open(os.path.join(folder, name), 'w').close()
        command = [clang, '-E', '-x', 'c++', '-std=c++14', '-nostdinc', '-undef', '-D__METAL__=1',
                   f'-D__METAL_VERSION__={version}', '-I', folder]
        command += [f'-I{folder}' for folder in includes] + [f'-D{name}' for name in defines]
        run = subprocess.run(command + [path], capture_output=True, text=True)
    if run.returncode:
        raise Failure(run.stderr.strip())
    return run.stdout


def tokenize(text):
    """All tokens, spaces and line markers too; each knows the file and line of the source it came from."""
    tokens, line, file = [], 1, '?'
    for match in TOKEN.finditer(text):
        token = Token(match.lastgroup, match.group(), file, line)
        tokens.append(token)
        line += token.text.count('\n')
        if token.kind == 'line':
            marker = re.match(r'#\s*(?:line)?\s*(\d+)\s+"([^"]*)"', token.text)
            if marker:
                line, file = int(marker[1]) - 1, marker[2]
    return tokens


class Source:
    """The tokens that matter, by index. text(i) is '' outside."""

    def __init__(self, text):
        self.all = tokenize(text)
        self.tokens = [token for token in self.all if token.kind not in ('space', 'line')]

    def __len__(self):
        return len(self.tokens)

    def text(self, i):
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ''

    def is_name(self, i):
        return 0 <= i < len(self.tokens) and self.tokens[i].kind == 'name'

    def texts(self, start, end):
        return [token.text for token in self.tokens[start:end]]

    def where(self, i):
        token = self.tokens[min(i, len(self.tokens) - 1)]
        return f'{token.file}:{token.line}'

    def match(self, i):
        """The index of the bracket that closes the one at i."""
        pairs = {'(': ')', '[': ']', '{': '}', '[[': ']]', '<': '>'}
        opening, depth = self.text(i), 0
        for k in range(i, len(self.tokens)):
            if self.text(k) == opening:
                depth += 1
            elif self.text(k) == pairs[opening] or (opening == '<' and self.text(k) == '>>'):
                depth -= 2 if self.text(k) == '>>' else 1
                if depth <= 0:
                    return k
        raise Failure(f'{self.where(i)}: error: {opening} is not closed')

    def split(self, start, end):
        """Ranges between the commas at the top level of start..end."""
        ranges, depth, begin = [], 0, start
        for i in range(start, end):
            text = self.text(i)
            depth += (text in OPEN or text == '<') - (text in CLOSE or text == '>')
            if text == ',' and depth == 0:
                ranges.append((begin, i))
                begin = i + 1
        if begin < end:
            ranges.append((begin, end))
        return ranges

    def statement(self, i):
        """The index of the ; that ends what begins at i, brackets skipped."""
        while self.text(i) != ';':
            i = self.match(i) + 1 if self.text(i) in OPEN else i + 1
            if i >= len(self.tokens):
                raise Failure(f'{self.where(i)}: error: ; expected')
        return i
