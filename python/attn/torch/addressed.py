"""Rows that other tensors locate: packed sequences (`layout thd`) and pages of a cache (`layout paged`).

Packed q is [T, Hq, D], k and v are [T, Hkv, D], o is [T, Hq, Dv] and lse [T, Hq], for the T rows of all
sequences. A pool of pages is [pages, Hkv, page, D].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from attn.arguments import INPUTS
from attn.errors import BindingError
from attn.outputs import value_of_nothing
from attn.specs import Description

CUMULATIVE = {"q": "cu_seqlens_q", "k": "cu_seqlens_kv", "v": "cu_seqlens_kv"}


_ORDER = "T are the rows of all sequences; where tensors have a batch, they are [B, H, S, D]"


class Addressing(NamedTuple):
    """`packed`: those of q, k and v whose layout is thd. `tables`: the page tables of k and v, if they are paged."""

    packed: tuple[str, ...]
    tables: dict[str, str]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tensors that locate rows, all i32: cumulative lengths [B + 1], page tables [B, n]."""
        located = (*(CUMULATIVE[name] for name in self.packed), *self.tables.values())
        return tuple(dict.fromkeys(located))


NOT_ADDRESSED = Addressing((), {})


def addressing_of(said: Description) -> Addressing | None:
    """How rows are addressed; None if all lie where strides say."""
    return Addressing(said.packed, said.tables) if said.located else None


def check_shapes(addressing: Addressing, tensors: Mapping[str, torch.Tensor]) -> None:
    """Raises BindingError if q, k or v has not the number of dimensions that its layout has."""
    for name in INPUTS:
        is_packed = name in addressing.packed
        if tensors[name].dim() != (3 if is_packed else 4):
            wanted = "[T, H, D]" if is_packed else "[B, Hq, Sq, D]"
            if name in addressing.tables:
                wanted = "[pages, Hkv, page, D]"
            raise BindingError(f"{name} has shape {list(tensors[name].shape)}; it must be {wanted}", [_ORDER])


class Dense:
    """A call's tensors in logical order, `tensors`: [B, H, S, D], and lengths.

    `sizes` are those of the spec, as far as they are known. Raises BindingError for offsets and page tables
    that lead out of q, k or v.
    """

    def __init__(self, addressing: Addressing, given: Mapping[str, torch.Tensor], sizes: Mapping[str, Any]):
        self._given = given
        self._rows: dict[str, _Rows] = {}
        self.tensors = {name: tensor for name, tensor in given.items() if name not in addressing.inputs}
        for name in addressing.packed:
            cumulative, dim = CUMULATIVE[name], "Sq" if name == "q" else "Skv"
            rows = _Rows(cumulative, given[cumulative], name, len(given[name]), dim, sizes.get(dim))
            self._rows[name], self.tensors[name] = rows, rows.padded(given[name])
            self.tensors["lengths_q" if name == "q" else "lengths_kv"] = rows.lengths
        self._tables = {name: _pages_in(table, given[table], name, given[name], self.tensors.get("lengths_kv"))
                        for name, table in addressing.tables.items()}
        for name, table in self._tables.items():
            self.tensors[name] = _of_pages(given[name], table, sizes.get("Skv"))

    def output(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """An output in the order of q's rows."""
        return self._rows["q"].packed(tensor, value_of_nothing(name)) if "q" in self._rows else tensor

    def gradient_of_output(self, tensor: torch.Tensor) -> torch.Tensor:
        """The gradient of o, [B, Hq, Sq, Dv], or of lse, [B, Hq, Sq], with the rows of packed sequences padded.
        The same tensor if nothing is packed."""
        return self._rows["q"].padded(tensor) if "q" in self._rows else tensor

    def gradient(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """The gradient of what was given, from that of the logical tensor: of shared pages the sum."""
        if name in self._rows:
            return self._rows[name].packed(tensor, 0.0)
        if name in self._tables:
            return _to_pages(tensor, self._tables[name], self._given[name])
        return tensor


def _pages_in(table: str, numbers: torch.Tensor, name: str, pool: torch.Tensor,
              lengths: torch.Tensor | None) -> torch.Tensor:
    """A page table, of which every entry is a page of the pool: those past the lengths are page 0."""
    if lengths is not None:
        first = torch.arange(numbers.shape[1], device=numbers.device) * pool.shape[2]
        numbers = torch.where(first < lengths[:, None], numbers, 0)
    wrong = (numbers < 0) | (numbers >= pool.shape[0])
    if wrong.any():
        place = wrong.nonzero()[0].tolist()
        raise BindingError(
            f"{table}{place} is {int(numbers[tuple(place)])}, but {name} has {pool.shape[0]} pages"
        )
    return numbers.long()


def _of_pages(pool: torch.Tensor, table: torch.Tensor, length: Any) -> torch.Tensor:
    batches = table.shape[0]
    rows = pool[table].transpose(1, 2).reshape(batches, pool.shape[1], -1, pool.shape[3])
    return rows[:, :, :length] if isinstance(length, int) else rows


def _to_pages(rows: torch.Tensor, table: torch.Tensor, pool: torch.Tensor) -> torch.Tensor:
    _, heads, page, depth = pool.shape
    missing = table.shape[1] * page - rows.shape[2]
    padded = torch.nn.functional.pad(rows, (0, 0, 0, missing))
    pages = padded.unflatten(2, (-1, page)).transpose(1, 2).reshape(-1, heads, page, depth)
    return torch.zeros_like(pool).index_add_(0, table.flatten(), pages.to(pool.dtype))


class _Rows:
    """The rows of packed sequences, each in a batch of its own, padded to the longest.

    `name`, `count`: of q, k or v, which has so many rows. `dim`, `length`: the size of the longest sequence, if
    it is known.
    """

    def __init__(self, offsets: str, cumulative: torch.Tensor, name: str, count: int, dim: str, length: Any):
        _check_offsets(offsets, cumulative, name, count)
        first, last = cumulative[:-1].long(), cumulative[1:].long()
        longest = int((last - first).max()) if len(first) else 0
        if isinstance(length, int) and longest > length:
            raise BindingError(f"{offsets} has a sequence of {longest} rows, but {dim} is {length}",
                               [f"{dim} is the longest: attn.compile(.., {dim}={longest})"])
        longest = length if isinstance(length, int) else longest
        self.lengths = (last - first).int()
        self._count, self._end = count, int(cumulative[-1])
        position = torch.arange(longest, device=cumulative.device)
        self._used = position < self.lengths[:, None]
        self._places = torch.where(self._used, first[:, None] + position, 0)

    def padded(self, tensor: torch.Tensor) -> torch.Tensor:
        """[B, H, S, D] of [T, H, D], or [B, H, S] of [T, H]."""
        used = self._used[(..., *(None,) * (tensor.dim() - 1))]
        return torch.where(used, tensor[self._places], 0).transpose(1, 2)

    def packed(self, tensor: torch.Tensor, beyond: float) -> torch.Tensor:
        """[T, H, D] of [B, H, S, D], or [T, H] of [B, H, S]; `beyond` is in rows past the last sequence."""
        used = tensor.transpose(1, 2)[self._used]
        made = used.new_full((self._count, *used.shape[1:]), beyond)
        made[: self._end] = used
        return made


def _check_offsets(offsets: str, cumulative: torch.Tensor, name: str, count: int) -> None:
    if cumulative.dim() != 1 or len(cumulative) == 0 or cumulative[0] != 0:
        raise BindingError(
            f"{offsets} must be [B + 1] offsets, of which the first is 0: it is {_shown(cumulative)}"
        )
    falls = (cumulative[1:] < cumulative[:-1]).nonzero()
    if len(falls):
        at = int(falls[0])
        raise BindingError(
            f"{offsets} falls from {int(cumulative[at])} to {int(cumulative[at + 1])}, at [{at + 1}]",
            ["it has where each sequence begins, and where the last one ends"],
        )
    if cumulative[-1] > count:
        raise BindingError(f"{offsets} ends at {int(cumulative[-1])}, but {name} has {count} rows")


def _shown(values: torch.Tensor) -> str:
    return f"of shape {list(values.shape)}" if values.dim() != 1 else f"{values[:4].tolist()}"
