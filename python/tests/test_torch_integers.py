"""Integers have the bits that they have in torch: those of scalars that a mod makes, and of booleans with numbers."""

import warnings

import pytest

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")

import attn.torch  # noqa: E402
from attn.trace import trace  # noqa: E402

SIZE = 6
T = torch.tensor
# Elements of which sums and products need more than 32 bits.
huge = T([2**31 - 1, -(2**31), 2**30, 5, -7, 2**31 - 5], dtype=torch.int32)
byte = T([127, -128, 100, 5, -7, 60], dtype=torch.int8)
flag = T([True, False, True, True, False, True])

MASKS = {
    "a scalar": lambda b, h, i, j: huge[j] + T(5) > i,
    "a scalar on the left": lambda b, h, i, j: T(-5) - huge[j] > i,
    "a scalar of 32 bits": lambda b, h, i, j: huge[j] + T(5, dtype=torch.int32) > i,
    "a scalar that becomes one of 32 bits": lambda b, h, i, j: huge[j] + T(2**40 + 3).int() > i,
    "one that changes nothing": lambda b, h, i, j: (huge[j] * T(1)) * 2 + (huge[j] + T(0)) * 2 > i,
    "an element of a range": lambda b, h, i, j: huge[j] * torch.arange(9)[5] + torch.arange(9).sum() > i,
    "made by full": lambda b, h, i, j: huge[j] + torch.full((), 5) > i,
    "made by ones": lambda b, h, i, j: huge[j] * torch.ones((), dtype=torch.int64) * 2 > i,
    "made like an index": lambda b, h, i, j: huge[j] + j.new_full((), 5) + torch.full_like(j, 7) > i,
    "made like an element": lambda b, h, i, j: huge[j] + huge[i].new_full((), 5) > torch.zeros_like(huge[j]),
    "made like one of another type": lambda b, h, i, j: (
        huge[j] + torch.zeros_like(huge[j], dtype=torch.int64)) * 2 > i,
    "the smaller of both": lambda b, h, i, j: torch.minimum(huge[j], T(2**31 - 1)) * 2 > i,
    "chosen": lambda b, h, i, j: torch.where(i > j, huge[j], T(6)) * 2 > i.int(),
    "clamped": lambda b, h, i, j: huge[j].clamp(max=T(2**31 - 1)) * 2 > i.int(),
    "shifted": lambda b, h, i, j: (huge[j] << T(3)) + (huge[j] ^ T(-1)) * 2 > i,
    "divided": lambda b, h, i, j: huge[j] // T(-1) > i,
    "beside a byte": lambda b, h, i, j: byte[j] + T(100) > i + 100,
    "a largest element": lambda b, h, i, j: huge.max() + T(1) + j > i,
    "with an index first": lambda b, h, i, j: (T(5) + j) + huge[j] > i,
    "a boolean and numbers": lambda b, h, i, j: flag[j] * (2**31 - 1) * 2 > i,
    "a condition and numbers": lambda b, h, i, j: (i > j) * 2**30 * 4 + 2**40 > 2**40,
    "a boolean as an integer": lambda b, h, i, j: flag[j].int() * (2**31 - 1) * 2 > i.int(),
    "a boolean as one of 64 bits": lambda b, h, i, j: flag[j].long() * (2**31 - 1) * 2 > i,
    "a boolean of 64 bits and an element": lambda b, h, i, j: (flag[j] * 1) * huge[j] * 2 > i,
    "a boolean and an element": lambda b, h, i, j: flag[j] * huge[j] * 2 > i.int(),
    "numbers by a condition": lambda b, h, i, j: torch.where(flag[j], 2**30, 1) * 4 > i,
    "a count": lambda b, h, i, j: (flag & (torch.arange(SIZE) < j)).sum() * 2**30 * 2 > i,
    "the least of 64 bits": lambda b, h, i, j: (T(-(2**63)) + huge[j] < T(-(2**63) + 6)) & (i >= 0),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_are_those_of_flex_attention(name):
    mod = MASKS[name]
    expected = flex.create_mask(mod, 1, 1, SIZE, SIZE, device="cpu")[0, 0]
    q = torch.zeros(1, 1, SIZE, 8)
    v = torch.nn.functional.pad(torch.eye(SIZE), (0, 8 - SIZE))[None, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", attn.SpecWarning)  # 32 bits wrap, and some rows see nothing
        weights = attn.torch.flex_attention(q, q, v, mask_mod=mod)
    assert torch.equal(weights[0, 0, :, :SIZE] > 0, expected)


def test_integers_that_32_bits_hold_have_no_more():
    def mod(b, h, i, j):
        offset = torch.tensor(3)
        return (i + offset >= j) & ((i > j) * 5 + torch.where(flag[j], 2, 1) * offset < 40)

    text = trace(None, mod, B=1, Hq=1, Hkv=1, Sq=SIZE, Skv=SIZE, Dqk=8, Dv=8).text
    assert "long" not in text
