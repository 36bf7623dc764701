"""msl_parse.py - finds what a translator must know in MSL: kernels with their parameters, instantiations, function constants,
threadgroup variables, attributes. It reads tokens, not the language: types are left to the C++ compiler."""
from msl_tokens import OPEN, SPACES


class Attribute:
    def __init__(self, name, argument, at):
        self.name, self.argument, self.at = name, argument, at


class Parameter:
    """words: the declaration without attributes."""

    def __init__(self, at, words, attributes):
        self.at, self.words, self.attributes = at, words, attributes
        self.name = words[-1] if words else '?'
        self.spaces = [word for word in words if word in SPACES]
        self.is_pointer = '*' in words or '&' in words

    def argument_of(self, attribute):
        return next((a.argument for a in self.attributes if a.name == attribute), None)


class Kernel:
    def __init__(self, name, at, is_template, parameters, returns):
        self.name, self.at, self.is_template, self.parameters, self.returns = name, at, is_template, parameters, returns
        self.max_threads = 0


class Instance:
    def __init__(self, host_name, kernel, arguments, at):
        self.host_name, self.kernel, self.arguments, self.at = host_name, kernel, arguments, at


class Constant:
    def __init__(self, name, index, at, start, end, in_scope):
        self.name, self.index, self.at, self.start, self.end, self.in_scope = name, index, at, start, end, in_scope


class Derived:
    """constant T name = expression over function constants;"""

    def __init__(self, name, start, end, text):
        self.name, self.start, self.end, self.text = name, start, end, text


class Variable:
    """threadgroup T name[..]; at the index of its `threadgroup`."""

    def __init__(self, at, end, name, type_words, dimensions, initialised, several):
        self.at, self.end, self.name, self.type_words, self.dimensions = at, end, name, type_words, dimensions
        self.initialised, self.several = initialised, several


def attributes_at(source, i):
    """The attributes of the [[...]] at i, and the index after it."""
    end, found = source.match(i), []
    for start, stop in source.split(i + 1, end):
        argument = ''
        if source.text(start + 1) == '(':
            argument = ' '.join(source.texts(start + 2, source.match(start + 1)))
        elif source.text(start + 1) == '::':
            start += 2
        found.append(Attribute(source.text(start), argument, start))
    return found, end + 1


def functions(source):
    """(name, index of the name, start and end of the body, is a kernel) of everything with a body at the top level."""
    i, start = 0, 0
    while i < len(source):
        text = source.text(i)
        if text in (';', '}'):
            start = i + 1
        elif text == 'namespace' and source.text(i - 1) != 'using':
            while source.text(i) != '{':
                i += 1
            start = i + 1
        elif text == '{':
            end = source.match(i)
            head = source.texts(start, i)
            if '(' in head and head[0] not in ('struct', 'union', 'enum', 'constant') and '=' not in head:
                k = next(k for k in range(start, i) if source.text(k) == '(' and source.is_name(k - 1) and
                         source.text(k - 1) not in ('alignas', 'buffer', 'host_name'))
                yield source.text(k - 1), k - 1, i, end, 'kernel' in head
            i, start = end, end + 1
        elif text in OPEN:
            i = source.match(i)
        i += 1


class Program:
    def __init__(self, source):
        self.source = source
        self.kernels, self.instances, self.constants, self.derived, self.variables = [], [], [], [], []
        self.attributes, self.removed, self.plain = [], set(), set()
        self.scopes = []
        self._walk()

    def kernel(self, name):
        return next((kernel for kernel in self.kernels if kernel.name == name), None)

    def _in_function(self):
        return 'body' in self.scopes

    def _walk(self):
        source, i = self.source, 0
        while i < len(source):
            text = source.text(i)
            if text == '{':
                self.scopes.append(self._kind_of_brace(i))
            elif text == '}' and self.scopes:
                self.scopes.pop()
            elif text == 'template' and source.text(i + 1) == '[[':
                i = self._instance(i)
                continue
            elif text == 'kernel' and source.is_name(i) and not self._in_function():
                i = self._kernel(i)
                continue
            elif text == '[[':
                i = self._attribute(i)
                continue
            elif text == 'threadgroup' and self._in_function() and source.text(i - 1) in ('{', '}', ';', ')', ':'):
                self._variable(i)
            elif text == 'constant' and not self.scopes and source.text(i - 1) in ('', ';', '}'):
                self._derived(i)
            i += 1

    def _kind_of_brace(self, i):
        if 'body' in self.scopes:
            return 'inner'
        head, k = [], i - 1
        while k >= 0 and self.source.text(k) not in (';', '{', '}'):
            head.append(self.source.text(k))
            k -= 1
        return 'body' if ')' in head and '=' not in head else 'type'

    def _attribute(self, i):
        found, end = attributes_at(self.source, i)
        self.attributes += found
        self.removed.update(range(i, end))
        for attribute in found:
            if attribute.name == 'function_constant' and not self.source.text(end) in (',', ')'):
                start = i
                while start and self.source.text(start - 1) not in (';', '}', '{'):
                    start -= 1
                self.constants.append(Constant(self.source.text(i - 1), attribute.argument, i, start,
                                               self.source.statement(end), bool(self.scopes)))
        return end

    def _instance(self, i):
        """template [[host_name("x")]] kernel T name<arguments>...;"""
        source = self.source
        found, k = attributes_at(source, i + 1)
        end = source.statement(k)
        host_name = next((a.argument.strip('"') for a in found if a.name == 'host_name'), None)
        words = source.texts(k, end)
        name = next((n for n in range(k, end) if source.text(n + 1) == '<' and self.kernel(source.text(n))), None)
        if host_name is None or 'kernel' not in words or name is None:
            self.attributes += found
            self.removed.update(range(i + 1, k))
            return k
        close = source.match(name + 1)
        self.instances.append(Instance(host_name, source.text(name), ' '.join(source.texts(name + 1, close + 1)), i))
        self.removed.update(range(i, end + 1))
        return end + 1

    def _kernel(self, i):
        source, k, returns = self.source, i + 1, []
        max_threads = self._max_threads_before(i)
        self.removed.add(i)
        while source.text(k) != '(':
            if source.text(k) == '[[':
                found, end = attributes_at(source, k)
                max_threads = max([max_threads] + [int(a.argument) for a in found if a.name.startswith('max_total') and a.argument.isdigit()])
                self.attributes += found
                self.removed.update(range(k, end))
                k = end
            else:
                returns.append(source.text(k))
                k += 1
        end = source.match(k)
        parameters = [self._parameter(start, stop) for start, stop in source.split(k + 1, end)]
        kernel = Kernel(source.text(k - 1), i, source.text(i - 1) == '>', parameters, returns[:-1])
        kernel.max_threads = max_threads
        self.kernels.append(kernel)
        return end + 1

    def _max_threads_before(self, i):
        found = [a for a in self.attributes if a.name == 'max_total_threads_per_threadgroup' and a.at >= i - 6]
        return max([0] + [int(a.argument) for a in found if a.argument.isdigit()])

    def _parameter(self, start, stop):
        words, attributes, i = [], [], start
        while i < stop:
            if self.source.text(i) == '[[':
                found, end = attributes_at(self.source, i)
                attributes += found
                self.removed.update(range(i, end))
                i = end
            else:
                words.append(self.source.text(i))
                i += 1
        self.attributes += attributes
        return Parameter(start, words, attributes)

    def _variable(self, i):
        source, end = self.source, self.source.statement(i)
        words, k, depth = [], i + 1, 0
        while k < end and not (depth == 0 and source.text(k) in ('[', '=', ',')):
            depth += (source.text(k) in OPEN or source.text(k) == '<') - (source.text(k) in (')', '>'))
            words.append(source.text(k))
            k += 1
        if '*' in words or '&' in words or len(words) < 2:
            return
        start = k
        while source.text(k) == '[':
            k = source.match(k) + 1
        self.variables.append(Variable(i, end, words[-1], words[:-1], ' '.join(source.texts(start, k)), source.text(k) == '=',
                                       source.text(k) == ','))

    def _derived(self, i):
        source, end = self.source, self.source.statement(i)
        words = source.texts(i, end)
        known = {constant.name for constant in self.constants} | {derived.name for derived in self.derived}
        if '=' not in words or not known & set(words[words.index('='):]):
            return
        equal = i + words.index('=')
        self.derived.append(Derived(source.text(equal - 1), i, end, (source.texts(i + 1, equal - 1), equal + 1)))
