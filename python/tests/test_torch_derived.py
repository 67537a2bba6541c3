"""Operations on captured tensors: they follow the tensors from call to call, and have their gradients."""

import math
import sys

import numpy
import pytest

torch = pytest.importorskip("torch")

import attn  # noqa: E402
import attn.torch  # noqa: E402
from attn.errors import TraceError  # noqa: E402
from attn.torch import flex  # noqa: E402
from attn.trace import trace  # noqa: E402

SIZES = {"B": 2, "Hq": 4, "Hkv": 4, "Sq": 6, "Skv": 6, "Dqk": 8, "Dv": 8}
SCORES = {
    "exp": lambda s, b, h, i, j: s * w.exp()[h],
    "twice": lambda s, b, h, i, j: s + (w * 2)[h] * j,
    "both": lambda s, b, h, i, j: s * w[h] + (w * 2)[h] * j,
    "float": lambda s, b, h, i, j: s * w.float()[h],
    "softplus": lambda s, b, h, i, j: s * torch.nn.functional.softplus(w)[h],
    "clamp": lambda s, b, h, i, j: s * w.clamp(0.1, 0.6)[h],
    "mean": lambda s, b, h, i, j: s * w.mean(),
    "softmax": lambda s, b, h, i, j: s * torch.softmax(w, 0)[h],
    "stack": lambda s, b, h, i, j: s * torch.stack([w, w * w])[1, h],
    "list": lambda s, b, h, i, j: s * torch.stack(tables)[1, h] + torch.cat([*tables])[h] * j,
    "product": lambda s, b, h, i, j: s + (table @ table.T)[i, j],
    "half": lambda s, b, h, i, j: s + w.detach().half().double()[h] * j,
    "detach": lambda s, b, h, i, j: s * w[h] + w.detach()[h] * j,
    "fmod": lambda s, b, h, i, j: s + torch.fmod(w * 3, 1.0)[h] * j,
    "logaddexp": lambda s, b, h, i, j: s + torch.logaddexp(w, w * 2)[h] * j,
    "scalar": lambda s, b, h, i, j: s / temperature,
    "inverse": lambda s, b, h, i, j: s * (1 / temperature),
    "transpose": lambda s, b, h, i, j: s + table.T[i, j],
    "slice": lambda s, b, h, i, j: s + table[:, 1::2][i, j // 3],
    "from the end": lambda s, b, h, i, j: s + table[-3:, :2][i // 2, j // 3],
    "view": lambda s, b, h, i, j: s + table.reshape(9, 4)[i, j // 2] + table.flatten()[i * 6 + j],
    "new dimensions": lambda s, b, h, i, j: s + table[None].squeeze(0).unsqueeze(1)[i, 0, j],
    "expand": lambda s, b, h, i, j: s + table.expand(4, 6, 6).permute(1, 0, 2)[i, h, j],
    "diagonal": lambda s, b, h, i, j: s + table.diagonal()[j],
    "unbind": lambda s, b, h, i, j: s + table.unbind(1)[2][i] * j + table.split(2)[1][i // 3, j],
    "rows": lambda s, b, h, i, j: s + table[order][i, j],
    "row mean": lambda s, b, h, i, j: s * table[i].mean(),
    "array": lambda s, b, h, i, j: s + (array * 2)[i, j] + array.T[i, j] + array.max(),
    "array functions": lambda s, b, h, i, j: s + numpy.exp(array)[i, j] + array[1:, ::2][i // 2, j // 2],
    "fmod of values": lambda s, b, h, i, j: s + torch.fmod(i - j, 3) + torch.fmod(s, 0.5),
    "64 bits": lambda s, b, h, i, j: s + (far[i] - far[j]) * 1e-11 + (far[j] >> 33) * 0.5,
    "a number beyond 32 bits": lambda s, b, h, i, j: s * (1 << 40) * 1e-12 + (far[j] + 10**12) * 1e-12,
    "logaddexp of values": lambda s, b, h, i, j: torch.logaddexp(s, s * 2),
}
MASKS = {
    "next": lambda b, h, i, j: j < pos + 1,
    "window": lambda b, h, i, j: (j <= pos) & (j > pos - 3),
    "largest": lambda b, h, i, j: j < lens.max(),
    "shorter": lambda b, h, i, j: j < (lens - 1)[b],
    "not": lambda b, h, i, j: (~pad)[b, j],
    "sums": lambda b, h, i, j: pad.cumsum(-1)[b, j] < 3,
    "negative": lambda b, h, i, j: j + -pos < 1,
    "bytes": lambda b, h, i, j: (small + small)[j] > 100,
    "signed bytes": lambda b, h, i, j: (signed + signed)[j] >= 0,
    "elements": lambda b, h, i, j: small[j] + small[j] > 100,
    "product of elements": lambda b, h, i, j: signed[j] * 3 >= 0,
    "searchsorted": lambda b, h, i, j: (
        torch.searchsorted(bounds, i, right=True) == torch.searchsorted(bounds, j, right=True)),
    "bucketize": lambda b, h, i, j: torch.bucketize(i, bounds) == torch.bucketize(j, bounds),
    "where": lambda b, h, i, j: torch.where(pad, 0, lens[:, None])[b, j] > 0,
    "ids beyond 32 bits": lambda b, h, i, j: far[i] == far[j],
    "order beyond 32 bits": lambda b, h, i, j: far[i] >= far[j],
    "bits of 64": lambda b, h, i, j: ((tree[i] >> (j + 58)) & 1).bool(),
    "arithmetic of 64 bits": lambda b, h, i, j: (far[i] * 1000003 - far[j]) % 1000 < 600,
    "exclusive or of 64 bits": lambda b, h, i, j: (far[i] ^ far[j]) // (1 << 30) % 8 < 5,
    "sums of 64 bits": lambda b, h, i, j: (far + 5)[i] - 5 <= (far - 1)[j] + 1,
    "64 bits as Python's integers": lambda b, h, i, j: far[i].to(int) == far[j].type(torch.int64),
    "64 bits as 32": lambda b, h, i, j: (far[i] + j + 5).int() > 6,
    "64 bits as 32 that overflow": lambda b, h, i, j: (far[i] + j * 1000003).int() * 65537 >= 0,
    "64 bits as int32 that overflow": lambda b, h, i, j: (far[j] + i * 77777).to(torch.int32) ** 3 > 0,
    "64 bits as int that overflow": lambda b, h, i, j: (far[j] + i * 3).to(torch.int) << 30 > 0,
    "64 bits as another's type": lambda b, h, i, j: (far[j] + i * 3).type_as(huge) * 900000000 > 0,
    "64 bits as bytes beside 32": lambda b, h, i, j: (far[j] + j * 60).to(torch.int8) + huge[0, i] + huge[0, j] > 0,
    "64 bits as shorts beside 32": lambda b, h, i, j: (far[j] + j * 9000).short() + huge[0, i] * 2 > 0,
    "64 bits as chars beside 32": lambda b, h, i, j: (far[j] + j * 60).char() * huge[1, i] > 0,
    "elements of 64 bits as 32": lambda b, h, i, j: (far + 5).int()[i] * (2**30 + j.int()) > 0,
    "a sum of 32 bits has 64": lambda b, h, i, j: huge[b].sum() > j * 400000000,
    "a sum of 32 bits with a type": lambda b, h, i, j: huge[b].sum(dtype=torch.int32) > j * 1000000,
    "64 bits, divided": lambda b, h, i, j: torch.div(far[j] - 7, -2, rounding_mode="trunc") == far[i] // -2 + 3,
    "bytes and one of them": lambda b, h, i, j: torch.minimum(signed[0], signed[j]) + torch.fmax(byte, signed[i]) > 0,
    "bytes, divided": lambda b, h, i, j: signed[j].div(3, rounding_mode="trunc") + torch.fmod(signed[j], -7) > i - 4,
    "a number beyond 32 bits": lambda b, h, i, j: far[j] == 3 * 2**32,
    "numbers beyond 32 bits": lambda b, h, i, j: (far[j] + (1 << 40) > far[i] + (1 << 40)) | (far[j] < -5_000_000_000),
    "an index and a number beyond 32 bits": lambda b, h, i, j: (i - (1 << 40)) % 7 > (j + 3_000_000_000) * 2 % 5,
    "no window": lambda b, h, i, j: (i - j < sys.maxsize) & (j - i > -sys.maxsize - 1),
    "a chosen number beyond 32 bits": lambda b, h, i, j: (
        torch.where(j > 2, far[j], 1 << 33) >= far[i].clamp(max=1 << 33)),
    "a bit beyond 32": lambda b, h, i, j: (tree[i] & (1 << 62)) != (tree[j] & -(1 << 63)),
    "the least of 32 bits": lambda b, h, i, j: huge[0, j] * 0 + i.int() > (huge[1, j] & -2**31),
    "index of 64 bits": lambda b, h, i, j: (j.long() * 1000003 * 4099 >> 10) % 3 != 1,
    "index as a byte": lambda b, h, i, j: (j * 60).to(torch.int8) >= 0,
    "index as an unsigned byte": lambda b, h, i, j: (j * 100).to(torch.uint8) < 120,
    "index as a half": lambda b, h, i, j: (j + 2049).half().float() - 2049 > j - 1,
    "index as bfloat16": lambda b, h, i, j: (j + 257).to(torch.bfloat16).float() > j + 256,
}


def change():
    """Other elements in the same tensors, and other tensors."""
    global order, lens
    with torch.no_grad():
        w.add_(0.15)
        table.mul_(-1)
        temperature.add_(0.5)
    array[:] = -array
    pos.add_(1)
    lens = lens.flip(0)
    order = order.flip(0)
    far.copy_(far.roll(1))


def reset():
    global w, table, temperature, array, pos, lens, pad, small, signed, bounds, order, tables, far, tree, \
        huge, byte
    torch.manual_seed(3)
    w = torch.nn.Parameter(torch.tensor([0.5, 0.3, -0.7, 1.2], dtype=torch.float64))
    table = torch.nn.Parameter(torch.randn(6, 6, dtype=torch.float64))
    temperature = torch.nn.Parameter(torch.tensor(1.5, dtype=torch.float64))
    array = numpy.cos(numpy.arange(36.0)).reshape(6, 6)
    pos, lens = torch.tensor(2), torch.tensor([3, 5])
    pad = torch.tensor([[0, 1, 0, 0, 1, 0], [1, 0, 0, 1, 0, 1]]).bool()
    small = torch.tensor([10, 60, 130, 200, 255, 70], dtype=torch.uint8)
    signed = torch.tensor([10, 60, 70, -100, -60, 127], dtype=torch.int8)
    far = torch.tensor([0, 1, 0, 3, -2, 1]) << 32
    tree = torch.tensor([1, 3, 5, -11, 17, -63]) << 58
    huge = torch.tensor([[2, -1, 1, 2, 0, 2], [-2, 1, -1, 1, 1, -2]], dtype=torch.int32) * 1000000000
    byte = torch.tensor(70, dtype=torch.int8)
    tables = [w, w.detach()]
    bounds, order = torch.tensor([1, 2, 5]), torch.tensor([3, 1, 0, 5, 4, 2])


def dense(q, k, v, score_mod, mask_mod):
    """Attention by the mods themselves, for one score at a time."""
    scores, rows = q @ k.mT * 8**-0.5, []
    for place in numpy.ndindex(*scores.shape):
        at = [torch.tensor(index) if not score_mod or "array" not in score_mod.__code__.co_names else index
              for index in place]
        score = scores[place] if score_mod is None else score_mod(scores[place], *at)
        if mask_mod is not None and not bool(mask_mod(*at)):
            score = torch.tensor(-torch.inf, dtype=torch.float64)
        rows.append(score)
    weights = torch.stack(rows).reshape(scores.shape).softmax(-1)
    return weights.nan_to_num(0.0) @ v


def leaves():
    return [w, table, temperature]


def check(call, score_mod, mask_mod):
    q, k, v = (torch.randn(2, 4, 6, 8, dtype=torch.float64) for _ in range(3))
    actual, expected = call(q, k, v), dense(q, k, v, score_mod, mask_mod)
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-6)
    if not expected.requires_grad:
        assert not actual.requires_grad
        return
    do = torch.randn(actual.shape, dtype=torch.float64)
    for one, other in zip(*(torch.autograd.grad(each, leaves(), do, allow_unused=True)
                            for each in (actual, expected))):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-6)


PAIRS = [
    *((name, mod, None) for name, mod in SCORES.items()),
    *((name, None, mod) for name, mod in MASKS.items()),
]


@pytest.mark.parametrize("name, score_mod, mask_mod", PAIRS)
def test_a_compiled_attention_follows_what_it_captured(name, score_mod, mask_mod):
    reset()
    f = attn.compile(score_mod=score_mod, mask_mod=mask_mod, **SIZES)
    for _ in range(2):
        check(f, score_mod, mask_mod)
        if {"lens", "order"} & {*(score_mod or mask_mod).__code__.co_names}:
            break  # other tensors are not what it captured
        change()


@pytest.mark.parametrize("name, score_mod, mask_mod", PAIRS)
def test_flex_attention_computes_with_the_tensors_of_each_call(name, score_mod, mask_mod):
    reset()
    flex._kept.clear()
    for _ in range(2):
        check(lambda *qkv: attn.torch.flex_attention(*qkv, score_mod, mask_mod=mask_mod), score_mod, mask_mod)
        change()
    assert len(flex._kept) == 1


def score_of(mod):
    reset()
    text = trace(mod, None, **SIZES).text
    return " ".join(text[text.index("  score"):text.index(";\n  outputs")].split()[1:])


def test_functions_of_elements_and_views_are_expressions():
    assert score_of(SCORES["exp"]) == "score * exp(w[h])"
    assert score_of(SCORES["transpose"]) == "score + table[kv_idx, q_idx]"
    assert score_of(SCORES["slice"]) == "score + table[q_idx, kv_idx // 3 * 2 + 1]"
    assert score_of(SCORES["new dimensions"]) == "score + table[q_idx, kv_idx]"
    assert score_of(SCORES["inverse"]) == "score * (1 / temperature[0])"


def test_a_number_beyond_32_bits_that_a_mod_makes():
    mod = lambda b, h, i, j: j * torch.tensor(1 << 31) > torch.full((), 1 << 33)  # noqa: E731
    check(attn.compile(mask_mod=mod, **SIZES), None, mod)


def test_functions_of_math_leave_integers_of_64_bits():
    rounded = lambda s, b, h, i, j: s + math.floor(far[j]) * math.trunc(far[i]) + math.ceil(s)  # noqa: E731
    assert score_of(rounded) == "score + far[kv_idx] * far[q_idx] + int(ceil(score))"


def test_a_part_beside_the_whole():
    q = torch.randn(2, 4, 6, 8, dtype=torch.float64)
    for x in (torch.tensor([1.5, 2.0, 0.5, 1.0]), torch.rand(1, 4), torch.tensor([2.0])):
        mod = lambda s, b, h, i, j, x=x: s * x[0].sum() + x.flatten()[0] * j  # noqa: E731
        o = attn.torch.flex_attention(q, q, q, mod)
        torch.testing.assert_close(o, dense(q, q, q, mod, None), atol=1e-6, rtol=1e-6)


def test_zero_has_a_sign():
    assert score_of(lambda s, b, h, i, j: s + 0.0) == "score + 0.0"
    assert score_of(lambda s, b, h, i, j: s - -0.0) == "score - -0.0"
    assert score_of(lambda s, b, h, i, j: (s + -0.0) * 2) == "score * 2"
    assert score_of(lambda s, b, h, i, j: (s - 0.0) * 2) == "score * 2"


def test_an_integer_of_unknown_size_is_not_rounded():
    with pytest.raises(TraceError, match="`float16` would round|`half` would round") as caught:
        trace(lambda s, b, h, i, j: s + lens[b].half(), None, **SIZES)
    assert "lens[b].half()" in caught.value.source_line


def test_reading_a_value_is_refused_with_its_name():
    reset()
    for mod in (
        lambda s, b, h, i, j: s * w.sum().item(),
        lambda s, b, h, i, j: s if torch.equal(w, w) else s * 2,
        lambda s, b, h, i, j: s * float(w.max()),
        lambda s, b, h, i, j: s if w.max() > 1 else s * 2,
    ):
        with pytest.raises(TraceError, match="reads the value of the captured tensor `w`") as caught:
            trace(mod, None, **SIZES)
        assert caught.value.source_line


def test_a_dict_whose_attributes_are_its_items():
    class Settings(dict):
        __getattr__ = dict.__getitem__

    settings = Settings(window=4)
    q = torch.randn(2, 4, 6, 8)

    def mod(b, h, q_idx, kv_idx):
        return (q_idx - kv_idx).abs() < settings.window

    wide = attn.torch.flex_attention(q, q, q, mask_mod=mod)
    settings["window"] = 1
    assert not torch.equal(wide, attn.torch.flex_attention(q, q, q, mask_mod=mod))
