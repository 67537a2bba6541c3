"""FlexAttention's call, computed by attnc."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from attn import hints
from attn.arguments import Sizes, sizes_of
from attn.errors import BindingError
from attn.specs import Spec
from attn.torch import blocks
from attn.torch.known_mods import KnownMods
from attn.torch.recall import Recalled, Texts
from attn.torch.signature import DTYPES, HALF
from attn.trace import trace, unwrapped

MOST_KEPT = 256  # traces, and attentions: least recently used dropped first

_kept = KnownMods(MOST_KEPT)
_texts = Texts(MOST_KEPT)


def flex_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Callable | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    mask_mod: Callable | None = None,
    dropout_p: float = 0.0,
    **others: Any,
) -> Any:
    """`torch.nn.attention.flex_attention.flex_attention`, with dropout.

    query [B, Hq, Sq, D], key [B, Hkv, Skv, D], value [B, Hkv, Skv, Dv]. The mask is `mask_mod`, or that of
    `block_mask`, whose blocks are not needed: the compiler finds which can be skipped. They are compared with
    its mask_mod once, and a BindingError says where they hide or show something else. `kernel_options` are
    ignored: they tune other kernels. Returns o, or (o, lse) with the natural logarithm's lse. Captured
    tensors that require a gradient get one, and backwards may go through lse.
    `others` are arguments of other attentions, which are refused.

    A pair of mods is traced once: again only if what they read changes, other than the elements of tensors
    and arrays; at each call if they read what cannot be compared (docs/flexattention.md). Raises TraceError for
    mods that cannot be traced, and what `attn.torch.call` raises.
    """
    del kernel_options
    hints.refuse("flex_attention", others)
    options = (scale, return_lse, float(dropout_p))
    arguments = ((query, key, value), (score_mod, mask_mod), block_mask, options, enable_gqa)
    if torch.compiler.is_compiling():
        return _outside_of_the_graph(*arguments)
    return _attend(*arguments)


_Options = tuple[float | None, bool, float]  # scale, return_lse, dropout_p


def _attend(
    tensors: tuple[torch.Tensor, ...],
    mods: tuple[Callable | None, Callable | None],
    block_mask: Any,
    options: _Options,
    enable_gqa: bool,
) -> Any:
    query, key, value = tensors
    score_mod, mask_mod = mods
    sizes = sizes_of(query, key, value, note="tensors are [B, H, S, D]: give x.transpose(1, 2) of others")
    if block_mask is not None:
        if mask_mod is not None:
            raise BindingError("block_mask and mask_mod were both given: the mask of a block_mask is its own")
        mask_mod = blocks.mask_of(block_mask, sizes)
    if sizes.Hq != sizes.Hkv and not enable_gqa:
        raise BindingError(
            f"query has {sizes.Hq} heads and key {sizes.Hkv}: pass enable_gqa=True, if that is meant"
        )
    attention, captured = _attention_of(query, unwrapped(score_mod, mask_mod), sizes, options)
    if block_mask is not None:
        blocks.check(block_mask, query, sizes, attention, captured)
    return attention(query, key, value, **captured)


def _attention_of(
    query: torch.Tensor, mods: tuple[Any, ...], sizes: Sizes, options: _Options
) -> tuple[Any, Mapping[str, Any]]:
    """The attention of the mods, and the tensors that they capture."""
    default = torch.get_default_dtype()  # of what the mods make
    group = (sizes, query.dtype, query.device.type, options, default)
    found, values = _kept.find(group, mods)
    if found is not None:
        return found.attention, found.tensors(values)
    scale, return_lse, dropout_p = options
    traced = trace(
        *mods,
        **sizes._asdict(),
        dtype=DTYPES[query.dtype] if query.dtype in HALF else "bf16",
        layout="bhsd",
        scale=scale,
        outputs=("o", "lse") if return_lse else ("o",),
        dropout=dropout_p,
        facts=False,  # the next call may capture other elements
    )
    attention = _texts.attention(Spec(traced.text, traced=True, origins=traced.origins), query)
    if traced.steps is not None:
        _kept.put(group, traced.steps, Recalled(attention, traced.recipes))
    return attention, traced.tensors


def _outside_of_the_graph(*arguments: Any) -> Any:
    return torch.compiler.disable(_attend)(*arguments)


# What `torch.compiler.disable` sets. It imports the compiler, which takes seconds: here only programs that are
# compiled pay for it, when they call this.
_outside_of_the_graph._torchdynamo_disable = True  # type: ignore[attr-defined]
_outside_of_the_graph._torchdynamo_disable_msg = (  # type: ignore[attr-defined]
    "attn.torch.flex_attention traces Python functions: call an attention of"
    " attn.compile(score_mod=.., mask_mod=.., B=.., ..) in programs without graph breaks"
)
