"""msl_lint.py - mistakes in MSL that tokens betray: what Apple's compiler refuses, and what this project's dialect leaves out because the
emulator does not model it. Each rule is a generator of (place, message)."""
import re
from msl_parse import functions
from msl_tokens import CLOSE, OPEN, SPACES
from msl_translate import POSITIONS, SAME

SCALARS = {'float', 'half', 'bfloat', 'int', 'uint', 'short', 'ushort', 'char', 'uchar', 'long', 'ulong', 'bool', 'size_t', 'void',
           'int8_t', 'uint8_t', 'int16_t', 'uint16_t', 'int32_t', 'uint32_t', 'int64_t', 'uint64_t', 'u8', 'i8', 'u16', 'u32', 'i32',
           'u64', 'f32'}
VECTOR = re.compile(r'(packed_)?(float|half|bfloat|int|uint|short|ushort|char|uchar|long|ulong|bool)[234]$')
ONE_NUMBER = {'thread_index_in_threadgroup', 'thread_index_in_simdgroup', 'simdgroup_index_in_threadgroup', 'simdgroups_per_threadgroup',
              'threads_per_simdgroup'}
NUMBERS = {'uint', 'ushort', 'u32', 'u16'}
ATTRIBUTES = POSITIONS | set(SAME) | {
    'buffer', 'threadgroup', 'function_constant', 'host_name', 'max_total_threads_per_threadgroup', 'kernel', 'unused', 'maybe_unused',
    'likely', 'unlikely', 'fallthrough', 'nodiscard', 'unroll'}
BANNED = {
    'double': 'MSL has no double', 'new': 'MSL has no heap', 'delete': 'MSL has no heap', 'virtual': 'MSL has no virtual functions',
    'try': 'MSL has no exceptions', 'catch': 'MSL has no exceptions', 'throw': 'MSL has no exceptions', 'dynamic_cast': 'MSL has no RTTI',
    'typeid': 'MSL has no RTTI', 'goto': 'MSL has no goto', 'thread_local': 'not in MSL', 'printf': 'not in MSL', 'memcpy': 'not in MSL',
    'memset': 'not in MSL', 'asm': 'not in MSL', 'register': 'not in MSL', 'wchar_t': 'not in MSL', 'noexcept': 'not in MSL',
    '__shared__': "CUDA's word", '__syncthreads': "CUDA's word", 'threadIdx': "CUDA's word", 'blockIdx': "CUDA's word",
    'thread_elements': 'which lane holds what of a simdgroup_matrix is not documented'}


class Lint:
    def __init__(self, program, version):
        self.program, self.source, self.version = program, program.source, version
        self.functions = list(functions(self.source))

    def messages(self):
        for rule in (self.words, self.attributes, self.kernels, self.instances, self.constants, self.variables, self.pointers, self.barriers,
                     self.casts, self.scopes, self.recursion):
            for at, message in rule():
                yield f'{self.source.where(at)}: error: {message}'

    def words(self):
        source = self.source
        for i, token in enumerate(source.tokens):
            if token.kind != 'name':
                continue
            member = source.text(i - 1) in ('.', '->')
            if token.text in BANNED and (not member or token.text == 'thread_elements'):
                yield i, f"'{token.text}': {BANNED[token.text]}"
            elif token.text == 'std' and source.text(i + 1) == '::':
                yield i, 'MSL has no C++ standard library'
            elif token.text == 'long' and source.text(i + 1) == 'long':
                yield i, "'long long': MSL has long, of 64 bits"
            elif token.text in ('bfloat', 'bfloat2', 'bfloat4') and self.version < 310:
                yield i, f"'{token.text}' needs Metal 3.1; this is {self.version // 100}.{self.version // 10 % 10}"
            elif member and re.match(r'[rgba]{2,4}$', token.text) and source.text(i - 1) == '.':
                yield i, f"swizzle '{token.text}': xyzw letters only"

    def attributes(self):
        for attribute in self.program.attributes:
            if attribute.name not in ATTRIBUTES:
                yield attribute.at, f'attribute [[{attribute.name}]] is not known'

    def kernels(self):
        for kernel in self.program.kernels:
            if kernel.returns != ['void']:
                yield kernel.at, f'kernel {kernel.name} must return void'
            if kernel.is_template and not any(i.kernel == kernel.name for i in self.program.instances):
                yield kernel.at, f'kernel template {kernel.name} has no instance with a host_name'
            yield from self._parameters(kernel)

    def _parameters(self, kernel):
        taken, sizes = set(), set()
        for p in kernel.parameters:
            names = [SAME.get(a.name, a.name) for a in p.attributes]
            kind = next((n for n in names if n in ('buffer', 'threadgroup') or n in POSITIONS), None)
            if kind is None:
                yield p.at, f'kernel {kernel.name}: parameter {p.name} has no attribute'
            elif kind in POSITIONS:
                yield from self._position(kernel, p, kind, sizes)
            else:
                yield from self._memory(kernel, p, kind, taken)
            if 'function_constant' in names:
                yield p.at, f'kernel {kernel.name}: parameter {p.name}: [[function_constant]] on a parameter is not modelled'
        if len(sizes) > 1:
            yield kernel.at, f'kernel {kernel.name}: position parameters must have the same number of components'

    def _position(self, kernel, p, kind, sizes):
        type_name = next((w for w in p.words if w != 'const'), '')
        base, n = re.match(r'(.*?)([23]?)$', type_name).groups()
        if base not in NUMBERS and type_name not in NUMBERS or (kind in ONE_NUMBER and type_name not in NUMBERS):
            yield p.at, f'kernel {kernel.name}: [[{kind}]] cannot be of type {type_name}'
        elif kind not in ONE_NUMBER:
            sizes.add('' if type_name in NUMBERS else n)

    def _memory(self, kernel, p, kind, taken):
        index = p.argument_of(kind)
        if not p.is_pointer:
            yield p.at, f'kernel {kernel.name}: [[{kind}]] {p.name} must be a pointer or a reference'
        wanted = {'threadgroup'} if kind == 'threadgroup' else {'device', 'constant'}
        if not wanted & set(p.spaces):
            yield p.at, f'kernel {kernel.name}: {p.name} must be in {" or ".join(sorted(wanted))}'
        if (kind, index) in taken:
            yield p.at, f'kernel {kernel.name}: {kind}({index}) is taken twice'
        taken.add((kind, index))
        if index.isdigit() and int(index) > 30:
            yield p.at, f'kernel {kernel.name}: {kind}({index}): 30 is the last one'

    def instances(self):
        seen = {kernel.name for kernel in self.program.kernels if not kernel.is_template}
        for instance in self.program.instances:
            if instance.host_name in seen:
                yield instance.at, f'two kernels are named {instance.host_name}'
            seen.add(instance.host_name)

    def constants(self):
        seen = set()
        for c in self.program.constants:
            if c.in_scope:
                yield c.at, f'function constant {c.name} must be at program scope'
            if '=' in self.source.texts(c.at, c.end):
                yield c.at, f'function constant {c.name} must have no initialiser'
            if c.index.isdigit() and int(c.index) > 65535:
                yield c.at, f'function constant {c.name}: index {c.index}; 65535 is the last one'
            if c.index in seen:
                yield c.at, f'function constant {c.name}: index {c.index} is taken twice'
            seen.add(c.index)

    def variables(self):
        for v in self.program.variables:
            function = next((f for f in self.functions if f[2] < v.at < f[3]), None)
            if v.initialised:
                yield v.at, f'threadgroup variable {v.name} cannot be initialised'
            if v.several:
                yield v.at, f'threadgroup variable {v.name}: one to a declaration'
            if function and not function[4]:
                yield v.at, f'threadgroup variable {v.name} outside of a kernel'

    def pointers(self):
        source = self.source
        structs = {source.text(i + 1) for i in range(len(source)) if source.text(i) in ('struct', 'class') and source.is_name(i + 1)}
        for i in range(1, len(source)):
            name = source.text(i - 1)
            if source.text(i) not in ('*', '&') or not (name in SCALARS or name in structs or VECTOR.match(name)):
                continue
            b = i - 1
            while source.text(b - 1) in SPACES or source.text(b - 1) in ('const', 'volatile', 'struct', 'static', 'constexpr', 'unsigned'):
                b -= 1
            before = source.text(b - 1)
            is_expression = before in ('.', '->', ')', ']') or (source.tokens[b - 1].kind in ('name', 'number') and before not in ('return',)
                                                                and not before == 'inline' and name not in SCALARS)
            if not is_expression and not SPACES.keys() & set(source.texts(b, i)):
                yield i, f"pointer or reference to '{name}' without an address space"

    def barriers(self):
        source = self.source
        for i in range(len(source)):
            if source.text(i) in ('threadgroup_barrier', 'simdgroup_barrier') and source.text(i + 1) == '(':
                if 'mem_flags' not in source.texts(i + 2, source.match(i + 1)):
                    yield i, f'{source.text(i)} wants mem_flags::'

    def casts(self):
        source = self.source
        for i in range(len(source) - 3):
            if source.text(i) == '(' and VECTOR.match(source.text(i + 1)) and source.text(i + 2) == ')' and source.text(i - 1) not in (
                    'sizeof', 'alignof') and (source.is_name(i + 3) or source.text(i + 3) == '('):
                yield i, f'({source.text(i + 1)}) cast: write {source.text(i + 1)}(...)'

    def scopes(self):
        source, inside = self.source, set()
        for _, _, start, end, _ in self.functions:
            inside.update(range(start, end))
            for i in range(start, end):
                if source.text(i) == 'static':
                    yield i, 'static variable in a function'
                if source.text(i) == '[' and source.text(i - 1) in ('=', '(', ',', 'return', '{', ';') and source.text(i + 1) in (']', '&', '='):
                    yield i, 'lambda expression'
        start, i = 0, 0
        while i < len(source):
            text = source.text(i)
            if text in OPEN and text != '{' or (text == '{' and source.text(start) != 'namespace'):
                i = source.match(i)
                text = source.text(i)
                if text == '}' and source.text(i + 1) != ';' and '=' not in source.texts(start, i):
                    start = i + 1
            elif text == '{':
                start = i + 1
            elif text == ';':
                words = source.texts(start, i)
                known = {'struct', 'typedef', 'using', 'template', 'enum', 'namespace', 'class', 'constant', 'union', 'static_assert', 'inline'}
                if len(words) > 1 and not known & set(words) and '(' not in words and words[0] not in CLOSE:
                    yield start, f"variable '{words[1]}' at program scope must be constant"
                start = i + 1
            i += 1

    def recursion(self):
        calls = {name: {self.source.text(i) for i in range(start, end) if self.source.text(i + 1) == '('}
                 for name, _, start, end, _ in self.functions}
        for name, at, _, _, _ in self.functions:
            seen, todo = set(), [name]
            while todo:
                for called in calls.get(todo.pop(), ()):
                    if called in calls and called not in seen:
                        seen.add(called)
                        todo.append(called)
            if name in seen:
                yield at, f'{name} calls itself'
