"""Random mods over random objects, which change between calls: what is found again is what a new trace says.

ATTN_SEQUENCES sets how many sequences of calls are tried.
"""

import os
import random
import re
import types

import numpy
import pytest

torch = pytest.importorskip("torch")

import attn.torch.flex as flex  # noqa: E402
from attn.arguments import Sizes  # noqa: E402
from attn.errors import TraceError  # noqa: E402
from attn.trace import trace  # noqa: E402
from attn.tracing.watching import Watch  # noqa: E402

COUNT = int(os.environ.get("ATTN_SEQUENCES", "40"))
CALLS = 5
SIZES = Sizes(2, 4, 4, 8, 8, 8, 8)
NAMES = ("one", "two", "cap")


class Slots:
    __slots__ = (*NAMES, "kept")


class Base:
    def method(self):
        return self.one

    @property
    def shown(self):
        return self.two

    def __call__(self, value):
        return value * self.cap if hasattr(self, "cap") else value


class Layer(torch.nn.Module):
    def method(self):
        return self.one

    @property
    def shown(self):
        return self.two

    def forward(self, value):
        return value * self.cap if hasattr(self, "cap") else value


class Code:
    """Attributes by code, which cannot be compared."""

    def __getattr__(self, name):
        return self.__dict__["kept"][name]

    def __getitem__(self, name):
        return self.__dict__["kept"][name]


class Open(dict):
    __getattr__ = dict.__getitem__


class Graph:
    """Objects that refer to each other, and a mod that reads some of them."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.has_arrays = seed % 8 > 4
        self.made = []
        self.nodes = [self.node() for _ in range(self.random.randrange(3, 9))]
        self.roots = {f"root{i}": self.value() for i in range(4)}
        self.scope = {"torch": torch, "numpy": numpy, **self.roots}
        self.text = self.mod_text()
        exec(compile(self.text, f"<mod {seed}>", "exec"), self.scope)

    # --- objects

    def number(self):
        return self.random.choice((0.0, -0.0, 1, 1.0, 2, 2.5, True, 3, -1.5))

    def tensor(self):
        pick = self.random.randrange(8)
        if pick == 0 and self.made:
            return self.random.choice(self.made)
        if pick == 1:
            made = torch.nn.Parameter(torch.rand(4))
        elif pick == 2:
            made = torch.rand(4, dtype=torch.float64)
        elif pick == 3 and self.has_arrays:
            made = numpy.arange(4.0) + self.random.random()
        elif pick == 4:
            made = torch.rand(self.random.choice((4, 5)))
        elif pick == 5:
            made = torch.randint(-9, 9, (4,), dtype=torch.int8)
        else:
            made = torch.rand(4)
        self.made.append(made)
        return made

    def value(self):
        pick = self.random.randrange(10)
        if pick < 3:
            return self.number()
        if pick < 6 or not getattr(self, "nodes", None):
            return self.tensor()
        return self.random.choice(self.nodes)

    def node(self):
        kind = self.random.randrange(14)
        values = {name: self.number() if self.random.random() < 0.4 else self.tensor() for name in NAMES}
        if getattr(self, "nodes", None) is None:
            self.nodes = []
        if self.nodes and self.random.random() < 0.6:
            values["two"] = self.random.choice(self.nodes)
        node = self.new_node(kind, values)
        self.nodes.append(node)
        return node

    def new_node(self, kind, values):
        if kind in (8, 9):
            return dict(values) if kind == 8 else list(values.values())
        if kind == 10:
            return tuple(values.values())
        if kind == 11:
            return Open(values)
        if kind == 12:
            code = Code()
            code.__dict__["kept"] = dict(values)
            return code
        made = {0: lambda: types.SimpleNamespace(), 1: lambda: types.ModuleType("settings"), 2: Slots,
                3: lambda: type("Own", (Base,), {})(), 4: lambda: type("Held", (Base,), {}), 5: Layer,
                6: lambda: type("Other", (Layer,), {})(), 7: Base, 13: lambda: (lambda value: value)}[kind]()
        for name, value in values.items():
            setattr(made, name, value)
        return made

    # --- mods

    def path(self):
        """An expression that may or may not be there."""
        text = self.random.choice((*self.roots, "cell0", "cell1", "given"))
        for _ in range(self.random.randrange(3)):
            name = self.random.choice(NAMES)
            text = self.random.choice((
                f"{text}.{name}", f"{text}.{name}", f"{text}.{name}", f"{text}[{name!r}]",
                f"{text}[{NAMES.index(name)}]", f"{text}.method()", f"{text}.shown", f"{text}.get({name!r})",
                f"getattr({text}, {name!r})", f"[each for each in {text}][-1]", f"vars({text})[{name!r}]",
                f"{text}.kept", f"type({text}).one"))
        return text

    def mod_text(self):
        lines = ["def helper(value, where):", f"    return number({self.path_of_globals()}, where) + value",
                 "def number(value, where):",
                 "    if isinstance(value, (bool, int, float)):",
                 "        return value",
                 "    if hasattr(value, 'shape'):",
                 "        return value[where] if len(value.shape) else value",
                 "    if callable(value) and not isinstance(value, type):",
                 "        return value(where)",
                 "    return 0.25 if value is root0 else 0.5",
                 "def make(cell0, cell1, default):",
                 "    def mod(score, b, h, q_idx, kv_idx, given=default):"]
        for _ in range(self.random.randrange(1, 4)):
            path = self.path()
            lines += ["        try:", f"            value = {path}",
                      "        except (AttributeError, KeyError, IndexError, TypeError):",
                      "            value = 7.0",
                      f"        score = {self.use()}"]
        if self.random.random() < 0.3:
            lines.append("        score = helper(score, h)")
        if self.random.random() < 0.2:
            lines.append("        score = score if torch.is_grad_enabled() else score * 3")
        if self.random.random() < 0.3:
            lines.append("        score = score * (1 if cell0 is cell1 else 2)")
        return "\n".join([*lines, "        return score", "    return mod", ""])

    def path_of_globals(self):
        root = self.random.choice((*self.roots,))
        return root if self.random.random() < 0.5 else f"getattr({root}, 'one', 2.0)"

    def use(self):
        return self.random.choice((
            "score + number(value, h)", "score * number(value, h)",
            "score + (number(value * 2, h) if hasattr(value, 'shape') else number(value, h))",
            "score + (value.sum() if isinstance(value, torch.Tensor) else number(value, h))"))

    # --- changes

    def change(self):
        for _ in range(self.random.randrange(3)):
            pick = self.random.randrange(4)
            if pick == 0:
                self.scope[self.random.choice((*self.roots,))] = self.value()
            else:
                self.change_node(self.random.choice(self.nodes))

    def change_node(self, node):
        name = self.random.choice(NAMES)
        value = self.number() if self.random.random() < 0.5 else self.tensor()
        owner = node
        if self.random.random() < 0.3 and type(node).__name__ in ("Own", "Other", "Held"):
            owner = node if isinstance(node, type) else type(node)
        if isinstance(owner, Code):
            owner = owner.__dict__["kept"]
        try:
            if isinstance(owner, list):
                owner[self.random.randrange(len(owner))] = value
            elif isinstance(owner, dict):
                owner[name] = value
            elif isinstance(owner, tuple):
                return
            elif self.random.random() < 0.15:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        except (AttributeError, TypeError):  # not there, or of a module that has a parameter by this name
            return

    def mod(self):
        return self.scope["make"](self.kept[0], self.kept[1], self.kept[2])

    def calls(self):
        """A mod for each call."""
        self.kept = [self.value() for _ in range(3)]
        mod = self.mod()
        for _ in range(CALLS):
            yield mod
            self.change()
            if self.random.random() < 0.5:
                if self.random.random() < 0.6:
                    self.kept[self.random.randrange(3)] = self.value()
                mod = self.mod()


class Texts:
    def attention(self, spec, query, dtype, kind):
        return spec.text


def fresh(mod):
    return trace(mod, None, **SIZES._asdict(), facts=False)


def unwatched(mod):
    """A trace of the mod itself, and not of a copy that tells what it reads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Watch, "mod", lambda self, place: self.mods[place])
        return fresh(mod)


def without_names(traced):
    """The text with other names of tensors: those of a mod's variables are not known if nobody looks."""
    text = traced.text
    for place, name in enumerate(traced.tensors):
        text = re.sub(rf"\b{name}\b", f"tensor{place}", text)
    return " ".join(text.split())


def same(one, other):
    one, other = (value.detach() if isinstance(value, torch.Tensor) else torch.as_tensor(value)
                  for value in (one, other))
    return one.dtype == other.dtype and torch.equal(one, other)


def outcome(run):
    try:
        return run(), None
    except TraceError as error:
        return None, error.message


@pytest.mark.parametrize("part", range(4))
def test_what_is_found_again_is_what_a_trace_says(part, monkeypatch):
    monkeypatch.setattr(flex, "_texts", Texts())
    flex._kept.clear()
    query, differ, found = torch.zeros(2, 4, 8, 8), [], []
    group = flex._Group(SIZES, (None, ("o",), 0.0))
    find = flex._kept.find

    def counting(*key):
        result = find(*key)
        found.append(result[0] is not None)
        return result

    monkeypatch.setattr(flex._kept, "find", counting)
    for seed in range(part, COUNT, 4):
        graph = Graph(seed)
        for call, mod in enumerate(graph.calls()):
            actual, error = outcome(lambda: flex._attention_of(query, (mod, None), group))
            expected, expected_error = outcome(lambda: fresh(mod))
            raw, raw_error = outcome(lambda: unwatched(mod))
            if error != expected_error:
                differ.append((seed, call, error, expected_error))
            elif error is None and (actual[0] != expected.text or not all(
                    same(actual[1][name], tensor) for name, tensor in expected.tensors.items())):
                differ.append((seed, call, actual[0], expected.text))
            elif error is raw_error is None and not graph.has_arrays and (  # their elements are constants
                    without_names(expected) != without_names(raw)):
                differ.append((seed, call, expected.text, raw.text))
    assert not differ, f"{len(differ)} of {COUNT} sequences, first {differ[0]}"
    print(f"{sum(found)} of {len(found)} calls were found again")
    assert sum(found) > len(found) // 10
