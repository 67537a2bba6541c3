"""FlexAttention's call, computed by attnc."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from attn import hints
from attn.arguments import sizes_of
from attn.errors import BindingError, TraceError
from attn.torch import blocks
from attn.torch.meaning import meaning_of
from attn.torch.signature import DTYPES, HALF

MOST_KEPT = 256  # attentions, least recently used dropped first


class _Kept:
    """Attentions by what their mods mean."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, Any] = OrderedDict()

    def find(self, key: Any) -> Any:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: Any, value: Any) -> None:
        with self._lock:
            self._kept[key] = value
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)


_kept = _Kept()


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
    tensors that require a gradient get one; lse has none, and a backward that reaches it raises Unsupported.
    `others` are arguments of other attentions, which are refused.

    A pair of mods is traced once: again only if what they read changes, other than the elements of tensors
    and arrays. Raises TraceError for mods that cannot be traced, and what `attn.torch.call` raises.
    """
    del kernel_options
    hints.refuse("flex_attention", others)
    arguments = (query, key, value, score_mod, block_mask, scale, enable_gqa, return_lse, mask_mod, dropout_p)
    if torch.compiler.is_compiling():
        return _outside_of_the_graph(*arguments)
    return _attend(*arguments)


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Callable | None,
    block_mask: Any,
    scale: float | None,
    enable_gqa: bool,
    return_lse: bool,
    mask_mod: Callable | None,
    dropout_p: float,
) -> Any:
    sizes = sizes_of(query, key, value, note="tensors are [B, H, S, D]: give x.transpose(1, 2) of others")
    if block_mask is not None:
        if mask_mod is not None:
            raise BindingError("block_mask and mask_mod were both given: the mask of a block_mask is its own")
        mask_mod = blocks.mask_of(block_mask, sizes)
    if sizes.Hq != sizes.Hkv and not enable_gqa:
        raise BindingError(
            f"query has {sizes.Hq} heads and key {sizes.Hkv}: pass enable_gqa=True, if that is meant"
        )
    meaning, captured = meaning_of(score_mod, mask_mod)
    options = (query.dtype, query.device.type, scale, return_lse, float(dropout_p))
    found = _kept.find((meaning, sizes, options))
    if found is None:
        found = _traced(query, score_mod, mask_mod, sizes, scale, return_lse, dropout_p, captured)
        _kept.put((meaning, sizes, options), found)
    attention, places = found
    tensors = {name: _element(captured[place]) for name, place in places.items()}
    if block_mask is not None:
        blocks.check(block_mask, query, sizes, attention.source, tensors)
    return attention(query, key, value, **tensors)


def _outside_of_the_graph(*arguments: Any) -> Any:
    return torch.compiler.disable(_attend)(*arguments)


# What `torch.compiler.disable` sets. It imports the compiler, which takes seconds: here only programs that are
# compiled pay for it, when they call this.
_outside_of_the_graph._torchdynamo_disable = True  # type: ignore[attr-defined]
_outside_of_the_graph._torchdynamo_disable_msg = (  # type: ignore[attr-defined]
    "attn.torch.flex_attention traces Python functions: call an attention of"
    " attn.compile(score_mod=.., mask_mod=.., B=.., ..) in programs without graph breaks"
)


def _traced(
    query: torch.Tensor,
    score_mod: Callable | None,
    mask_mod: Callable | None,
    sizes: Any,
    scale: float | None,
    return_lse: bool,
    dropout_p: float,
    captured: list[Any],
) -> tuple[Any, dict[str, int]]:
    from attn.attention import Attention
    from attn.specs import Spec
    from attn.trace import trace

    traced = trace(
        score_mod,
        mask_mod,
        **sizes._asdict(),
        dtype=DTYPES[query.dtype] if query.dtype in HALF else "bf16",
        layout="bhsd",
        scale=scale,
        outputs=("o", "lse") if return_lse else ("o",),
        dropout=dropout_p,
        facts=False,  # the next call may capture other elements
    )
    places = {name: _place(tensor, captured) for name, tensor in traced.tensors.items()}
    return Attention(Spec(traced.text, traced=True, origins=traced.origins), {}), places


def _place(tensor: Any, captured: list[Any]) -> int:
    """Which of the captured tensors and arrays a spec's tensor is."""
    for place, each in enumerate(captured):
        if each is tensor or (each.ndim == 0 and _address(each) == _address(tensor)):
            return place
    raise TraceError(
        "a mod reads a tensor that is found neither in its closure nor in its globals",
        ["read it through a variable of the function around the mod"],
    )


def _address(tensor: Any) -> int:
    return tensor.data_ptr() if isinstance(tensor, torch.Tensor) else tensor.ctypes.data


def _element(tensor: Any) -> Any:
    """Specs have no tensors without dimensions."""
    return tensor.reshape(1) if tensor.ndim == 0 else tensor
