"""msl_translate.py - a parsed MSL program as a C++ unit: the same text with a few tokens exchanged, and its tables behind.

kernel and attributes vanish; address spaces become macros; v.xz becomes v.get(msl::ix<0,2>()); `threadgroup T x[n];` becomes a
reference into the threadgroup's memory; function constants become variables that the run time sets before a dispatch. Line
markers stay, so that the C++ compiler's messages point into the .metal file."""
import re
from msl_parse import functions
from msl_tokens import Failure, SPACES

SWIZZLE = re.compile(r'[xyzw]{2,4}$')
ASSIGN = {'=', '+=', '-=', '*=', '/='}
POSITIONS = {
    'thread_position_in_grid', 'threadgroup_position_in_grid', 'thread_position_in_threadgroup', 'threads_per_threadgroup',
    'dispatch_threads_per_threadgroup', 'threadgroups_per_grid', 'threads_per_grid', 'thread_index_in_threadgroup',
    'thread_index_in_simdgroup', 'simdgroup_index_in_threadgroup', 'simdgroups_per_threadgroup', 'threads_per_simdgroup'}
SAME = {'thread_execution_width': 'threads_per_simdgroup', 'dispatch_simdgroups_per_threadgroup': 'simdgroups_per_threadgroup'}


def swizzle(letters):
    return 'msl::ix<' + ','.join(str('xyzw'.index(letter)) for letter in letters) + '>()'


def binding(parameter, taken):
    """Where the argument of a kernel comes from: ('MSL_BUFFER', 3)."""
    for attribute in parameter.attributes:
        name = SAME.get(attribute.name, attribute.name)
        if name in ('buffer', 'threadgroup'):
            return f'MSL_{name.upper()}', attribute.argument
        if name in POSITIONS:
            return f'MSL_{name.upper()}', 0
    if not parameter.is_pointer or not parameter.spaces:
        return None
    kind = 'MSL_THREADGROUP' if 'threadgroup' in parameter.spaces else 'MSL_BUFFER'
    return kind, next(i for i in range(32) if (kind, str(i)) not in taken)


class Translation:
    """spaces: for msl_space.hpp, whose vectors are the compiler's own and whose address spaces are real; no tables."""

    def __init__(self, program, spaces=False):
        self.program, self.source, self.spaces = program, program.source, spaces
        self.replaced = {}  # index of a token: text
        self.bodies = {}  # of a function or a derived constant: the names in it
        for name, at, start, end, _ in functions(self.source):
            self.bodies.setdefault(name, set()).update(self.source.texts(at, end))
        for derived in program.derived:
            self.bodies[derived.name] = set(self.source.texts(derived.start + 1, derived.end)) - {derived.name}
        self.asked = {self.source.text(i + 2) for i in range(len(self.source)) if self.source.text(i) == 'is_function_constant_defined'}
        self._spaces()
        if not spaces:
            self._swizzles()
        self._constants()
        self._variables()

    def _spaces(self):
        for i, token in enumerate(self.source.tokens):
            if token.kind == 'name' and token.text in SPACES:
                self.replaced[i] = SPACES[token.text]

    def _swizzles(self):
        for i, token in enumerate(self.source.tokens):
            if token.kind == 'name' and SWIZZLE.match(token.text) and self.source.text(i - 1) == '.' and self.source.text(i + 1) != '(':
                verb = 'set' if self.source.text(i + 1) in ASSIGN else 'get'
                self.replaced[i] = f'{verb}({swizzle(token.text)})'

    def _constants(self):
        for constant in self.program.constants:
            space = next((i for i in range(constant.start, constant.end) if self.source.text(i) == 'constant'), None)
            if space is None:
                raise Failure(f'{self.source.where(constant.at)}: error: function constant {constant.name}: `constant` expected')
            self.replaced[space] = f'static bool msl_defined_{constant.name}; static'
        values = {}
        for derived in self.program.derived:
            words, start = derived.text
            text = ' '.join(values.get(self.source.text(i), self.replaced.get(i, self.source.text(i))) for i in range(start, derived.end))
            values[derived.name] = f'(({" ".join(words)})({text}))'
            self.program.removed.update(range(derived.start, derived.end + 1))
        for i, token in enumerate(self.source.tokens):
            if token.kind == 'name' and token.text in values and self.source.text(i - 1) not in ('.', '->', '::'):
                self.replaced[i] = values[token.text]

    def _variables(self):
        for slot, variable in enumerate(self.program.variables):
            alias = f'msl_type_of_{variable.name}'
            self.replaced[variable.at] = (f'typedef {" ".join(variable.type_words)} {alias} {variable.dimensions}; '
                                          f'MSL_VARIABLE({slot % 64}, {variable.name}, {alias})')
            self.program.removed.update(range(variable.at + 1, variable.end))

    def _body(self):
        out, i = [], -1
        for token in self.source.all:
            if token.kind == 'line':
                marker = re.match(r'#\s*(?:line)?\s*(\d+)\s+"([^"]*)"', token.text)
                out.append(f'#line {marker[1]} "{marker[2]}"' if marker and marker[2][:1] != '<' else '' if marker else token.text)
                continue
            if token.kind == 'space':
                out.append(token.text)
                continue
            i += 1
            if i in self.replaced and (i not in self.program.removed):
                out.append(self.replaced[i])
            elif i not in self.program.removed:
                out.append(token.text)
        return ''.join(out)

    def _rows(self):
        for kernel in self.program.kernels:
            if not kernel.is_template:
                yield kernel.name, kernel, ''
        for instance in self.program.instances:
            yield instance.host_name, self.program.kernel(instance.kernel), instance.arguments

    def _bindings(self, kernel):
        taken, rows = set(), []
        for parameter in kernel.parameters:
            found = binding(parameter, taken)
            if not found:
                raise Failure(f'{self.source.where(parameter.at)}: error: kernel {kernel.name}: parameter {parameter.name} has no attribute')
            taken.add((found[0], str(found[1])))
            rows.append(f'{{ {found[0]}, {found[1]} }}')
        return ', '.join(rows + ['{ 0, 0 }'])

    def _instances(self):
        names = [f'&{i.kernel}{i.arguments}' for i in self.program.instances]
        return '\n#line 1 "tables"\n' + ''.join(f'auto msl_instance_{n} = {name};\n' for n, name in enumerate(names))

    def _constants_of(self, kernel):
        """Indices of the function constants that a kernel or what it calls mentions, but for those that are asked whether they are
        defined: a system refuses a pipeline that lacks one."""
        words, todo = set(), [kernel.name]
        while todo:
            for name in self.bodies.get(todo.pop(), ()):
                if name not in words:
                    words.add(name)
                    todo.append(name)
        return [c.index for c in self.program.constants if c.name in words and c.name not in self.asked]

    def text(self):
        if self.spaces:
            return '#include "msl_space.hpp"\n' + self._body() + self._instances()
        out, tables, n = ['#include "msl.hpp"\n', self._body(), '\n#line 1 "tables"\n'], [], 0
        for name, kernel, arguments in self._rows():
            used = ', '.join(self._constants_of(kernel) + ['-1'])
            out.append(f'static const int msl_constants_{n}[] = {{ {used} }};\n')
            out.append(f'static const msl_binding msl_bindings_{n}[] = {{ {self._bindings(kernel)} }};\n')
            tables.append(f'    msl::kernel("{name}", &{kernel.name}{arguments}, msl_bindings_{n}, msl_constants_{n}, {kernel.max_threads}),\n')
            n += 1
        constants = [f'    {{ "{c.name}", &{c.name}, &msl_defined_{c.name}, sizeof {c.name}, {c.index} }},\n' for c in self.program.constants]
        out.append('extern "C" {\nextern const int msl_n_kernels, msl_n_constants;\n')
        out.append(f'const int msl_n_kernels = {n}, msl_n_constants = {len(constants)};\n')
        out.append('extern const msl_kernel msl_kernels[];\nextern const msl_constant msl_constants[];\n')
        out.append('const msl_kernel msl_kernels[] = {\n' + ''.join(tables) + '    {},\n};\n')
        out.append('const msl_constant msl_constants[] = {\n' + ''.join(constants) + '    {},\n};\n}\n')
        return ''.join(out)
