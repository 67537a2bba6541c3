"""Jagged nested tensors [B, H, j, D], computed as packed sequences: a mod's q_idx and kv_idx count the rows and keys of
each sequence, and rows see the keys of their own sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from attn.arguments import Sizes
from attn.errors import BindingError, UnsupportedError

LEAST = 128  # of rows and keys that a plan is for


class Packed(NamedTuple):
    """q [T, Hq, D], k and v [T, Hkv, D] as packed sequences, of which the longest has so many `rows` and `keys`;
    cumulative lengths [B + 1], i32; and the offsets of q's sequences, as they are."""

    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    cumulative: dict[str, torch.Tensor]
    rows: int
    keys: int
    offsets: torch.Tensor

    @property
    def exact_sizes(self) -> Sizes:
        """Those of a plan for these lengths."""
        q, k, v = self.tensors
        return Sizes(len(self.offsets) - 1, q.shape[1], k.shape[1], self.rows, self.keys, q.shape[2], v.shape[2])

    @property
    def sizes(self) -> Sizes:
        """Those of a plan that others of about these lengths have, too: powers of two."""
        rows, keys = (max(LEAST, 1 << (length - 1).bit_length()) for length in (self.rows, self.keys))
        return self.exact_sizes._replace(Sq=rows, Skv=keys)

    def nested(self, packed: torch.Tensor) -> torch.Tensor:
        """An output [T, Hq, ..] as a nested tensor, [B, Hq, j, ..]."""
        return torch.nested.nested_tensor_from_jagged(packed, self.offsets).transpose(1, 2)


def packed(tensors: Sequence[torch.Tensor]) -> Packed:
    """q, k and v, of which one is nested. Raises BindingError if they do not fit together, UnsupportedError for nested
    tensors that are not jagged ones without gaps."""
    q, k, v = (_values(name, tensor) for name, tensor in zip(("query", "key", "value"), tensors))
    offsets = [_offsets(tensor) for tensor in tensors]
    if len(offsets[0]) != len(offsets[1]):
        raise BindingError(f"query has {len(offsets[0]) - 1} sequences, but key {len(offsets[1]) - 1}")
    if offsets[1] is not offsets[2] and not torch.equal(offsets[1], offsets[2]):
        raise BindingError("key and value are nested tensors of other lengths")
    if k.shape[0] != v.shape[0] or k.shape[1] != v.shape[1] or q.shape[2] != k.shape[2]:
        raise BindingError(f"query has values {list(q.shape)}, key {list(k.shape)} and value {list(v.shape)}",
                           ["they are [T, H, D]: H of key and value must be the same, and D of query and key"])
    if q.shape[1] % k.shape[1] != 0:
        raise BindingError(f"query has {q.shape[1]} heads, which is not a multiple of the {k.shape[1]} of key")
    cumulative = {"cu_seqlens_q": offsets[0].int(), "cu_seqlens_kv": offsets[1].int()}
    rows = _longest(offsets[0])
    keys = rows if offsets[1] is offsets[0] else _longest(offsets[1])
    return Packed((q, k, v), cumulative, rows, keys, offsets[0])


def _values(name: str, tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_nested:
        raise BindingError(f"{name} is no nested tensor, but another of query, key and value is")
    jagged: Any = tensor
    if tensor.layout != torch.jagged or jagged.lengths() is not None:
        raise UnsupportedError(f"{name} is a nested tensor with gaps, or of another layout than torch.jagged",
                               ["x.contiguous() has no gaps; torch.nested.nested_tensor(.., layout=torch.jagged)"])
    if tensor.dim() != 4 or isinstance(tensor.shape[2], int):
        raise BindingError(f"{name} has shape {list(tensor.shape)}; a nested tensor must be [B, H, j, D]",
                           ["give x.transpose(1, 2) of [B, j, H, D]"])
    return tensor.transpose(1, 2).values()


def _offsets(tensor: Any) -> torch.Tensor:
    found: torch.Tensor = tensor.offsets()
    return found


def _longest(offsets: torch.Tensor) -> int:
    """The rows of the longest sequence, at least 1. Waits for the device."""
    return max(1, int(offsets.diff().max())) if len(offsets) > 1 else 1
