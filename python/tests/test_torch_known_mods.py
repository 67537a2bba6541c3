"""Which mods mean the same: what a trace read, and whether others read the same."""

import array as arrays
import collections
import contextvars
import enum
import functools
import gc
import math
import types
import weakref

import numpy
import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attn.torch import flex  # noqa: E402
from attn.torch.known_mods import KnownMods  # noqa: E402
from attn.trace import trace, unwrapped  # noqa: E402

settings = types.ModuleType("settings")
settings.WINDOW = 4
settings.inner = types.SimpleNamespace(cap=2.0)


class Options:
    window = 4

    @property
    def broken(self):
        raise RuntimeError("not now")


class Mask:
    options = Options

    def __call__(self, b, h, q_idx, kv_idx):
        return q_idx - kv_idx < self.options.window


class Layer(torch.nn.Module):
    scale = 2.0

    def forward(self, score, b, h, q_idx, kv_idx):
        return score * self.scale


options = Options()
array = numpy.arange(6)


def by_module(b, h, q_idx, kv_idx):
    return q_idx - kv_idx < settings.WINDOW


def by_inner(score, b, h, q_idx, kv_idx):
    return score * settings.inner.cap


def by_class(b, h, q_idx, kv_idx):
    return q_idx - kv_idx < options.window


def by_helper(b, h, q_idx, kv_idx):
    return by_class(b, h, q_idx, kv_idx) | (q_idx == 0)


def of_constant(value):
    def mod(score, b, h, q_idx, kv_idx):
        return score + value

    return mod


SIZES = {"B": 1, "Hq": 2, "Hkv": 2, "Sq": 12, "Skv": 12, "Dqk": 8, "Dv": 8}


def traced(mod, *mask):
    """Traces a score_mod, unless a mask_mod is given or its parameters say that it is one."""
    pair = (mod, *mask) if mask or "score" in _parameters(mod) else (None, mod)
    return trace(*pair, **SIZES, facts=False), unwrapped(*pair, None)[:2]


def _parameters(mod):
    code = getattr(mod, "__code__", None) or getattr(getattr(mod, "func", None), "__code__", None)
    if code is None:
        code = getattr(type(mod), "forward", type(mod).__call__).__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


class Kept:
    """What is kept for a mod."""

    def __init__(self, *mods):
        self.meanings = KnownMods(8)
        one, pair = traced(*mods)
        assert one.steps is not None, one.opaque
        self.meanings.put(None, one.steps, self)

    def is_found(self, *mods):
        pair = (*mods, None) if "score" in _parameters(mods[0]) else (None, *mods)
        return self.meanings.find(None, pair[:2])[0] is self


@pytest.mark.parametrize(
    "mod, owner, name, other",
    [
        (by_module, settings, "WINDOW", 5),
        (by_inner, settings.inner, "cap", 3.0),
        (by_class, Options, "window", 5),
        (by_helper, Options, "window", 5),
        (Mask(), Options, "window", 5),
        (Layer(), Layer, "scale", 3.0),
        (functools.partial(by_module), settings, "WINDOW", 5),
    ],
)
def test_attributes_that_a_mod_reads(mod, owner, name, other, monkeypatch):
    kept = Kept(mod)
    assert kept.is_found(mod)
    monkeypatch.setattr(owner, name, other)
    assert not kept.is_found(mod)


def same(value, other):
    return Kept(of_constant(value)).is_found(of_constant(other))


def test_constants():
    assert same(1.5, 1.5)
    assert not same(0.0, -0.0)
    assert not same(1, 1.0)
    assert not same(1, True)


def test_containers_by_what_is_read_of_them():
    def mod(score, b, h, q_idx, kv_idx):
        return score * table["scale"] + (1 if "extra" in table else 0) + sum(numbers)

    table, numbers = {"scale": 2.0, "other": 1}, [1, 2]
    kept = Kept(mod)
    table["other"] = 3
    assert kept.is_found(mod)
    table["extra"] = 3
    assert not kept.is_found(mod)
    del table["extra"]
    numbers.append(0)
    assert not kept.is_found(mod)


def test_what_is_kept_with_a_tensor():
    table = torch.ones(2)
    table.scale = 2.0

    def mod(score, b, h, q_idx, kv_idx):
        return score * table.scale + table[h]

    kept = Kept(mod)
    assert kept.is_found(mod)
    table.scale = 3.0
    assert not kept.is_found(mod)


@pytest.mark.parametrize(
    "read",
    [
        lambda of: of.index(2.0),
        lambda of: of.count(2.0),
        lambda of: 2 if of < [1.0, 3.0] else 3,
        lambda of: of.copy()[1],
        lambda of: (of + [1])[1],
        lambda of: ([1] + of)[2],
        lambda of: [*of][1],
        lambda of: sorted(of)[-1],
        lambda of: {**{"x": of}}["x"][1],
        lambda of: len(str(of)),
        lambda of: of[::-1][0],
        lambda of: max(of),
    ],
)
def test_every_way_to_read_a_list(read):
    values = [1.0, 2.0, 2.0]

    def mod(score, b, h, q_idx, kv_idx):
        return score * read(values)

    meanings, first = KnownMods(8), traced(mod)[0]
    values[1:] = [17.25]
    meanings.put(None, first.steps, first)
    assert meanings.find(None, (mod, None))[0] is None


def test_tensors_by_type_and_shape():
    def of(table):
        return lambda score, b, h, q_idx, kv_idx: score + table[h]

    def finds(one, other):
        return Kept(of(one)).is_found(of(other))

    assert finds(torch.zeros(3), torch.ones(3))
    assert not finds(torch.zeros(3), torch.zeros(4))
    assert not finds(torch.zeros(3), torch.zeros(3, requires_grad=True))
    assert not finds(torch.zeros(3), torch.zeros(3, dtype=torch.float64))
    assert not finds(array, torch.zeros(6, dtype=torch.int64))


def test_which_captures_are_one_object():
    one, two = torch.ones(3), torch.ones(3)

    def of(first, second):
        return lambda score, b, h, q_idx, kv_idx: score + first[0][h] - second["x"][h]

    kept = Kept(of([one], {"x": one}))
    assert kept.is_found(of([two], {"x": two}))
    assert not kept.is_found(of([one], {"x": two}))

    def mask(b, h, q_idx, kv_idx):
        return kv_idx > one[h]

    def score(score, b, h, q_idx, kv_idx):
        return score + two[h]

    kept = Kept(score, mask)
    two = one
    assert not kept.is_found(score, mask)


def test_a_tensor_that_was_read_twice_may_become_two():
    q = torch.randn(1, 2, 12, 8, dtype=torch.float64)
    one, other = torch.ones(2, dtype=torch.float64), torch.tensor([0.5, 2.0], dtype=torch.float64)

    def call(a, c):
        o = attn.torch.flex_attention(q, q, q, lambda score, b, h, i, j: score * a[h] * c[h])
        weights = (q @ q.mT * 8**-0.5 * (a * c)[:, None, None]).softmax(-1)
        torch.testing.assert_close(o, weights @ q)

    call(one, one)
    call(other, torch.tensor([3.0, 0.1], dtype=torch.float64))
    call(other, other)


class Mode(enum.Enum):
    NEAR = 1
    FAR = 2


def test_an_enum_and_the_class_of_a_value_choose():
    choice = types.SimpleNamespace(mode=Mode.NEAR, kind=Options())

    def mod(b, h, q_idx, kv_idx):
        far = choice.mode is Mode.FAR or not isinstance(choice.kind, Options) or type(choice.kind) is Mask
        return q_idx - kv_idx < (9 if far else 2)

    kept = Kept(mod)
    choice.mode = Mode.FAR
    assert not kept.is_found(mod)
    choice.mode, choice.kind = Mode.NEAR, Mask()
    assert not kept.is_found(mod)
    choice.kind = Options()
    assert kept.is_found(mod)


class Dynamic:
    def __getattr__(self, name):
        return hidden[name]


class Wide(int):
    pass


class AttrDict(dict):
    __getattr__ = dict.__getitem__


hidden = {"w": 2}
wide = Wide(3)
wide.w = 2
variable = contextvars.ContextVar("variable", default=2)
of_bytes, of_array, of_deque = bytearray(b"\2"), arrays.array("i", [2]), collections.deque([2])
of_dict, dynamic = AttrDict(w=2), Dynamic()


@pytest.mark.parametrize(
    "read, change",
    [
        (lambda: dynamic.w, lambda: hidden.update(w=3)),
        (lambda: wide.w, lambda: setattr(wide, "w", 3)),
        (lambda: variable.get(), lambda: variable.set(3)),
        (lambda: of_bytes[0], lambda: of_bytes.__setitem__(0, 3)),
        (lambda: of_array[0], lambda: of_array.__setitem__(0, 3)),
        (lambda: of_deque[0], lambda: of_deque.__setitem__(0, 3)),
        (lambda: of_dict.w, lambda: of_dict.update(w=3)),
        (lambda: globals()["hidden"]["w"], lambda: hidden.update(w=4)),
        (lambda: vars(options).get("w", 2), lambda: setattr(options, "w", 3)),
        (lambda: 2 if torch.is_grad_enabled() else 3, lambda: torch.set_grad_enabled(False)),
        (lambda: 2 if torch.ones(2, 2).is_contiguous() else 3, lambda: None),
        (lambda: 2 if array.flags["C_CONTIGUOUS"] else 3, lambda: None),
    ],
)
def test_what_cannot_be_compared_is_traced_again_at_each_call(read, change):
    def mod(score, b, h, q_idx, kv_idx):
        return score * read()

    try:
        first, _ = traced(mod)
        assert first.steps is None and first.opaque
        change()
        assert f"score * {read()};" in traced(mod)[0].text
    finally:
        torch.set_grad_enabled(True)


def test_closures_over_new_objects_are_one_and_nothing_stays_alive():
    flex._kept.clear()
    q, alive = torch.randn(1, 2, 12, 8), []
    for step in range(4):
        model = Layer()
        step_data = Options()
        step_data.lens, step_data.other = torch.tensor([8 + step]), torch.zeros(9)
        alive += [weakref.ref(step_data), weakref.ref(step_data.lens), weakref.ref(model)]
        attn.torch.flex_attention(q, q, q, model, mask_mod=lambda b, h, i, j: j < (step_data.lens + 0)[b])
    del model, step_data
    gc.collect()
    assert len(flex._kept) == 1
    assert [each() for each in alive] == [None] * len(alive)


def test_a_method_of_a_model_reads_what_it_reads():
    class Model(torch.nn.Module):
        def __init__(self, count):
            super().__init__()
            self.cap = 2.0
            self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(count))

        def mod(self, score, b, h, q_idx, kv_idx):
            return torch.tanh(score / self.cap) * self.layers[-1].weight[h, 0]

    few, many = (traced(Model(count).mod)[0].steps for count in (1, 100))
    assert len(few) == len(many) < 25


def test_the_oldest_is_dropped_and_others_stay():
    meanings, kept = KnownMods(2), []
    for value in (1, 2, 3):
        mod = of_constant(value)
        kept.append((mod, object()))
        meanings.put(None, traced(mod)[0].steps, kept[-1][1])
    found = [meanings.find(None, (mod, None))[0] for mod, _ in kept]
    assert found == [None, kept[1][1], kept[2][1]] and len(meanings) == 2


def test_an_attention_follows_an_attribute(monkeypatch):
    q = torch.randn(1, 2, 12, 8)
    wide = attn.torch.flex_attention(q, q, q, mask_mod=by_module)
    monkeypatch.setattr(settings, "WINDOW", 1)
    narrow = attn.torch.flex_attention(q, q, q, mask_mod=by_module)
    assert not torch.equal(wide, narrow)


def test_numpy_arrays_are_captured_like_tensors():
    q = torch.randn(1, 2, 6, 8)
    scale = numpy.array(2.0)

    def mod(score, b, h, q_idx, kv_idx, kept=array):
        return torch.where(kept[kv_idx] % 2 == 0, score * scale, -math.inf)

    o = attn.torch.flex_attention(q, q, q, mod)
    scores = 2 * q @ q.mT / math.sqrt(8)
    scores[..., 1::2] = -math.inf
    torch.testing.assert_close(o, scores.softmax(-1) @ q, atol=1e-5, rtol=1e-5)
