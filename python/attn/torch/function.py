"""A compiled spec as a differentiable function of torch tensors."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from attn import layouts
from attn.arguments import INPUTS, sizes_of
from attn.attention import Attention
from attn.torch import nested, operators, private, quantized, transforms, ways
from attn.torch.calls import Call, check_kind, formed, is_intercepted, sorted_call
from attn.torch.facts import facts_of
from attn.types import Outputs


def call(attention: Attention, *args: object, layout: str | None = None, **kwargs: object) -> Outputs:
    """Calls an attention with torch tensors.

    `args` are q [B, Hq, Sq, Dqk], k [B, Hkv, Skv, Dqk] and v [B, Hkv, Skv, Dv] of any strides, with
    `layout="bshd"` q [B, Sq, Hq, Dqk], k and v [B, Skv, Hkv, ..], and o [B, Sq, Hq, Dv]; `kwargs` are
    the spec's captured tensors, lengths and params by name. Returns the output, or a tuple of the outputs in
    the order of the spec's clause `outputs`. o and lse have gradients of q, k, v and learned tensors; a backward
    that reaches another output with anything but zeros raises UnsupportedError. CPU tensors are computed by the
    reference, in double precision.

    Attentions whose q, k and v have `layout thd` also take jagged nested tensors [B, H, j, D], and return such ones.

    8-bit attention also takes its scales by name, f32 tensors of one element, and q, k and v of float8, or of
    more bits: then `attn.torch.quantized.call` rounds them, and has gradients of their type.

    Under `torch.autocast`, q, k and v are cast to its dtype. With `torch.use_deterministic_algorithms` the
    gradients are bitwise the same in every run. Raises BindingError for arguments that do not fit, and
    UnsupportedError, SpecError or CompilerError if a plan is needed that cannot be built.
    """
    if any(isinstance(tensor, torch.Tensor) and tensor.is_nested for tensor in args):
        return _call_nested(attention, args, kwargs)
    layout = layout or attention.layout
    if layout is not None and layouts.checked(layout) != "bhsd":
        return layouts.call(partial(call, attention), attention.described, args, kwargs)
    each = sorted_call(attention, args, kwargs)
    if facts_of(attention).quantized is not None:
        quantized.check(each)
        if quantized.is_wide(each):
            _check_sizes(each, layout)
            return quantized.call(each)
    if private.is_transformed() and not torch.compiler.is_dynamo_compiling():
        _check_sizes(each, layout)
        return transforms.attend(each)
    if torch.compiler.is_compiling() or is_intercepted(each.tensors.values()):
        _check_sizes(each, layout)
        return operators.apply_operator(each)
    each = formed(each)
    _check_sizes(each, layout)
    result = ways.attend(each)
    ways.remember(each, args, kwargs)
    return result


def _call_nested(attention: Attention, args: tuple[Any, ...], kwargs: dict[str, object]) -> Outputs:
    """A call of jagged nested tensors, of an attention of packed sequences."""
    addressing = facts_of(attention).addressing
    if len(args) != len(INPUTS) or addressing is None or addressing.packed != INPUTS or "layout" in kwargs:
        for name, tensor in zip(INPUTS, args):
            check_kind(name, tensor)
    packed = nested.packed(args)
    given: dict[str, Any] = {**packed.cumulative, **kwargs}
    outputs = attention(*packed.tensors, **given)
    return packed.nested(outputs) if isinstance(outputs, torch.Tensor) else tuple(map(packed.nested, outputs))


def _check_sizes(each: Call, layout: str | None) -> None:
    facts = facts_of(each.attention)
    if facts.addressing is None:
        layouts.check(facts.said, sizes_of(*(each.tensors[name] for name in INPUTS)), layout)
