"""Rows that other tensors locate: packed sequences (`layout thd`) and pages of a cache (`layout paged`).

Packed q is [T, Hq, D], k and v are [T, Hkv, D], o is [T, Hq, Dv] and lse [T, Hq], for the T rows of all
sequences. A pool of pages is [pages, Hkv, page, D].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from attn.arguments import INPUTS
from attn.errors import BindingError
from attn.outputs import value_of_nothing
from attn.specs import Description

if TYPE_CHECKING:
    import numpy as np

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


def check_shapes(addressing: Addressing, tensors: Mapping[str, Any]) -> None:
    """Raises BindingError if q, k or v has not the number of dimensions that its layout has."""
    for name in INPUTS:
        is_packed = name in addressing.packed
        if len(tensors[name].shape) != (3 if is_packed else 4):
            wanted = "[T, H, D]" if is_packed else "[B, Hq, Sq, D]"
            if name in addressing.tables:
                wanted = "[pages, Hkv, page, D]"
            raise BindingError(f"{name} has shape {list(tensors[name].shape)}; it must be {wanted}", [_ORDER])


class Dense:
    """A call's arrays in logical order, `tensors`: [B, H, S, D], and lengths.

    `sizes` are those of the spec, as far as they are known. Raises BindingError for offsets and page tables
    that lead out of q, k or v.
    """

    def __init__(self, addressing: Addressing, given: Mapping[str, np.ndarray], sizes: Mapping[str, Any]):
        self._given = given
        self._rows: dict[str, _Rows] = {}
        self.tensors = {name: array for name, array in given.items() if name not in addressing.inputs}
        for name in addressing.packed:
            cumulative, dim = CUMULATIVE[name], "Sq" if name == "q" else "Skv"
            rows = _Rows(cumulative, given[cumulative], name, len(given[name]), dim, sizes.get(dim))
            self._rows[name], self.tensors[name] = rows, rows.padded(given[name])
            self.tensors["lengths_q" if name == "q" else "lengths_kv"] = rows.lengths
        self._tables = {name: _pages_in(table, given[table], name, given[name], self.tensors.get("lengths_kv"))
                        for name, table in addressing.tables.items()}
        for name, table in self._tables.items():
            self.tensors[name] = _of_pages(given[name], table, sizes.get("Skv"))

    def output(self, name: str, array: np.ndarray) -> np.ndarray:
        """An output in the order of q's rows."""
        return self._rows["q"].packed(array, value_of_nothing(name)) if "q" in self._rows else array

    def gradient_of_output(self, array: np.ndarray) -> np.ndarray:
        """The gradient of o, [B, Hq, Sq, Dv], or of lse, [B, Hq, Sq], with the rows of packed sequences padded.
        The same array if nothing is packed."""
        return self._rows["q"].padded(array) if "q" in self._rows else array

    def gradient(self, name: str, array: np.ndarray) -> np.ndarray:
        """The gradient of what was given, from that of the logical array: of shared pages the sum."""
        if name in self._rows:
            return self._rows[name].packed(array, 0.0)
        if name in self._tables:
            return _to_pages(array, self._tables[name], self._given[name])
        return array


def _pages_in(table: str, numbers: np.ndarray, name: str, pool: np.ndarray,
              lengths: np.ndarray | None) -> np.ndarray:
    """A page table, of which every entry is a page of the pool: those past the lengths are page 0."""
    import numpy as np

    if lengths is not None:
        first = np.arange(numbers.shape[1]) * pool.shape[2]
        numbers = np.where(first < lengths[:, None], numbers, 0)
    wrong = (numbers < 0) | (numbers >= pool.shape[0])
    if wrong.any():
        place = np.argwhere(wrong)[0].tolist()
        raise BindingError(
            f"{table}{place} is {int(numbers[tuple(place)])}, but {name} has {pool.shape[0]} pages"
        )
    return numbers.astype(np.int64)


def _of_pages(pool: np.ndarray, table: np.ndarray, length: Any) -> np.ndarray:
    batches = table.shape[0]
    rows: np.ndarray = pool[table].swapaxes(1, 2).reshape(batches, pool.shape[1], -1, pool.shape[3])
    return rows[:, :, :length] if isinstance(length, int) else rows


def _to_pages(rows: np.ndarray, table: np.ndarray, pool: np.ndarray) -> np.ndarray:
    import numpy as np

    count, heads, page, depth = pool.shape
    missing = table.shape[1] * page - rows.shape[2]
    padded = np.pad(rows, ((0, 0), (0, 0), (0, missing), (0, 0)))
    pages = padded.reshape(len(rows), heads, -1, page, depth).swapaxes(1, 2).reshape(-1, heads, page, depth)
    summed: np.ndarray = np.zeros((count, heads, page, depth), rows.dtype)
    np.add.at(summed, table.ravel(), pages)
    return summed


class _Rows:
    """The rows of packed sequences, each in a batch of its own, padded to the longest.

    `name`, `count`: of q, k or v, which has so many rows. `dim`, `length`: the size of the longest sequence, if
    it is known.
    """

    def __init__(self, offsets: str, cumulative: np.ndarray, name: str, count: int, dim: str, length: Any):
        import numpy as np

        _check_offsets(offsets, cumulative, name, count)
        first, last = cumulative[:-1].astype(np.int64), cumulative[1:].astype(np.int64)
        longest = int((last - first).max()) if len(first) else 0
        if isinstance(length, int) and longest > length:
            raise BindingError(f"{offsets} has a sequence of {longest} rows, but {dim} is {length}",
                               [f"{dim} is the longest: attn.compile(.., {dim}={longest})"])
        longest = length if isinstance(length, int) else longest
        self.lengths = (last - first).astype(np.int32)
        self._count, self._end = count, int(cumulative[-1])
        position = np.arange(longest)
        self._used = position < self.lengths[:, None]
        self._places = np.where(self._used, first[:, None] + position, 0)

    def padded(self, array: np.ndarray) -> np.ndarray:
        """[B, H, S, D] of [T, H, D], or [B, H, S] of [T, H]."""
        import numpy as np

        used = self._used[(..., *(None,) * (array.ndim - 1))]
        found = array[self._places] if len(array) else np.zeros((*self._places.shape, *array.shape[1:]), array.dtype)
        return np.where(used, found, array.dtype.type(0)).swapaxes(1, 2)

    def packed(self, array: np.ndarray, beyond: float) -> np.ndarray:
        """[T, H, D] of [B, H, S, D], or [T, H] of [B, H, S]; `beyond` is in rows past the last sequence."""
        import numpy as np

        used = array.swapaxes(1, 2)[self._used]
        made = np.full((self._count, *used.shape[1:]), beyond, array.dtype)
        made[: self._end] = used
        return made


def _check_offsets(offsets: str, cumulative: np.ndarray, name: str, count: int) -> None:
    import numpy as np

    if cumulative.ndim != 1 or len(cumulative) == 0 or cumulative[0] != 0:
        raise BindingError(
            f"{offsets} must be [B + 1] offsets, of which the first is 0: it is {_shown(cumulative)}"
        )
    falls = np.flatnonzero(cumulative[1:] < cumulative[:-1])
    if len(falls):
        at = int(falls[0])
        raise BindingError(
            f"{offsets} falls from {int(cumulative[at])} to {int(cumulative[at + 1])}, at [{at + 1}]",
            ["it has where each sequence begins, and where the last one ends"],
        )
    if cumulative[-1] > count:
        raise BindingError(f"{offsets} ends at {int(cumulative[-1])}, but {name} has {count} rows")


def _shown(values: np.ndarray) -> str:
    return f"of shape {list(values.shape)}" if values.ndim != 1 else f"{values[:4].tolist()}"
