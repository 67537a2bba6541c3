"""Which mods mean the same: keys of traced functions."""

import functools
import math
import types

import numpy
import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attn.torch.meaning import meaning_of  # noqa: E402

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
zero = torch.zeros(())


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


def of_pair(x, y):
    def mod(score, b, h, q_idx, kv_idx):
        return score + x[0] - y[0]

    return mod


def key(*mods):
    return meaning_of(*mods)[0]


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
    before = key(mod)
    assert key(mod) == before
    monkeypatch.setattr(owner, name, other)
    assert key(mod) != before


def test_constants():
    assert key(of_constant(1.5)) == key(of_constant(1.5))
    assert key(of_constant(math.nan)) == key(of_constant(math.nan))
    assert key(of_constant(0.0)) != key(of_constant(-0.0))
    assert key(of_constant(1)) != key(of_constant(1.0))
    assert key(of_constant({"a": 1})) != key(of_constant({"a": 2}))
    assert key(of_constant({1, 2})) != key(of_constant({1, 3}))


def test_which_of_two_containers_is_read_matters():
    one, two = [1], [2]
    assert key(of_pair(one, two)) != key(of_pair(two, one))
    shared = [1]
    assert key(of_pair(shared, shared)) == key(of_pair(shared, shared))


def test_tensors_by_type_and_shape():
    assert key(of_constant(torch.zeros(3))) == key(of_constant(torch.ones(3)))
    assert key(of_constant(torch.zeros(3))) != key(of_constant(torch.zeros(4)))
    assert key(of_constant(torch.zeros(3))) != key(of_constant(torch.zeros(3, requires_grad=True)))
    assert key(of_constant(array)) != key(of_constant(torch.zeros(6, dtype=torch.int64)))
    _, captured = meaning_of(of_constant(array), of_constant(zero))
    assert captured[0] is array and captured[1] is zero


def test_objects_are_kept_alive():
    """Otherwise another object could get the identity of one that is gone."""
    keys = {key(of_constant(object())) for _ in range(100)}
    assert len(keys) == 100


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
