"""The plans of calls: those of a file, those that were made before, or new ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from attn import _libattn, variants
from attn.arguments import Sizes
from attn.attention import Attention
from attn.errors import BindingError, UnsupportedError
from attn.forms import Form, LSE_GRADIENT, edits_of, places_in
from attn.torch.calls import Call
from attn.torch.facts import facts_of
from attn.torch.statistics import is_capturing
from attn.torch.launch import Launch
from attn.torch.variant import Pair
from attn.tracing.captures import type_name


def pair_of(each: Call, training: bool) -> Pair:
    """The plans of a call on CUDA tensors, compiled first if there are none and the attention allows it."""
    attention = each.attention
    return _pair(attention, each.form, training, each.tensors["q"].device, attention.builds)


def backward_of(each: Call, through_lse: bool) -> Launch:
    """The backward of a call on CUDA tensors. With `through_lse` it reads the gradient of lse: that of the pair if
    the spec has `lse` in its `grad` clause, else one that is compiled beside it when it is first needed."""
    pair = pair_of(each, True)
    assert pair.backward is not None
    if not through_lse or LSE_GRADIENT in pair.backward.inputs:
        return pair.backward
    attention, device = each.attention, each.tensors["q"].device
    facts = facts_of(attention)
    key = key_of(each.form, device, True)
    launch = facts.through_lse.get(key)
    if launch is None:
        if is_capturing():
            raise BindingError(
                "these sizes have no backward through lse yet, which cannot be loaded while a CUDA graph is captured",
                ["call it once before the capture, with a gradient of lse"],
            )
        with facts.building:
            launch = facts.through_lse.get(key)
            if launch is None:
                launch = facts.through_lse[key] = _make_backward(attention, each.form, pair, device)
    return launch


def _make_backward(attention: Attention, form: Form | None, pair: Pair, device: torch.device) -> Launch:
    """The backward through lse."""
    facts, name = facts_of(attention), attention.name
    clause = f"`grad {', '.join(facts.differentiated)}, lse;`"
    if not attention.builds:
        raise UnsupportedError(
            f"`{name}` has no plan for a backward that reaches lse, and calls may not compile one",
            [f"compile a spec with the clause {clause}", variants.HOW_TO_BUILD],
        )
    if facts.random and pair.by_cudnn:
        raise UnsupportedError(
            "cuDNN drew the random numbers of this dropout, and its kernels compute no gradients through lse",
            ['attn.compile(.., engine="native") computes both directions'],
        )
    edits = [] if form is None else edits_of(form)
    built = attention.build(
        None if form is None else form.sizes._asdict(),
        edits=[*edits, "--gradients", ",".join((*facts.differentiated, "lse"))],
        direction="bwd",
        target="native",
    )
    file, runtime = _libattn.PlanFile(built), _libattn.runtime(device.index or 0)
    return Launch(_libattn.Executable(runtime, file, places_in(file, form, runtime.describe()["sm"])["bwd"]), device)


def key_of(form: Form | None, device: torch.device, training: bool) -> tuple[Any, ...]:
    """What the facts know a pair by."""
    return form, device.index, training, training and _wants_deterministic(form)


def _pair(
    attention: Attention, form: Form | None, training: bool, device: torch.device, builds: bool
) -> Pair:
    facts, key = facts_of(attention), key_of(form, device, training)
    pair = facts.pairs.get(key)
    if pair is None:
        if is_capturing():
            raise BindingError(
                "these sizes have no plan yet, which cannot be loaded while a CUDA graph is captured",
                ["call it once before the capture, with gradients if the graph has them, or f.warm(..)"],
            )
        with facts.building:  # others wait for the first that needs it
            pair = facts.pairs.get(key)
            if pair is None:
                pair = facts.pairs[key] = _make_pair(attention, form, training, device, builds)
    return pair


def warming(
    attention: Attention,
    sizes: Mapping[str, int],
    *,
    training: bool,
    dtype: str | torch.dtype | None,
    layout: str,
    device: Any,
) -> Callable[[], None]:
    """What builds and loads the plans of calls with these sizes; see `attn.Attention.warm`."""
    facts = facts_of(attention)
    place, dtype = _cuda_device(device), type_name(dtype) if dtype else None
    form = None
    if facts.addressing is None:
        known = attention.source.described({**attention.bindings, **sizes}).sizes
        missing = [dim for dim in Sizes._fields if not isinstance(known[dim], int)]
        if missing:
            raise BindingError(f"no size is known for {', '.join(missing)}: f.warm({missing[0]}=..)")
        deterministic = torch.are_deterministic_algorithms_enabled()
        form = Form(Sizes(**known), dtype or facts.dtype, (layout,) * 3, layout, deterministic,
                    facts.said.held, facts.cache_types)

    def build() -> None:
        _pair(attention, form, training, place, True)

    return build


def _cuda_device(device: Any) -> torch.device:
    if device is None and not torch.cuda.is_available():
        raise BindingError(
            "PyTorch finds no GPU here to load a plan for",
            ["attn.compile(.., target=\"h200\") compiles one for another machine"],
        )
    found = torch.device("cuda" if device is None else device)
    if found.type != "cuda":
        raise BindingError(f"plans are for GPUs, not for the device `{found}`")
    return torch.device("cuda", torch.cuda.current_device()) if found.index is None else found


def _make_pair(
    attention: Attention, form: Form | None, training: bool, device: torch.device, builds: bool
) -> Pair:
    sm = _libattn.runtime(device.index or 0).describe()["sm"]
    found = variants.find(attention, form, training, sm, builds=builds, deterministic=_wants_deterministic(form))
    return Pair(found.file, found.places, device)


def _wants_deterministic(form: Form | None) -> bool:
    return torch.are_deterministic_algorithms_enabled() if form is None else form.deterministic
