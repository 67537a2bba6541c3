"""Calls of any length by the plans of a few: tensors are padded, and lengths hide what was added."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import torch

from attn import layouts
from attn._libattn import Shapes
from attn.arguments import order_note, sizes_of
from attn.attention import Attention
from attn.errors import ArgumentError, BindingError
from attn.specs import Description
from attn.types import Outputs

_ROWS, _COLUMNS = "Sq", "Skv"
_ONE = {"B": 1, _ROWS: 1, _COLUMNS: 1}


class Bucketed:
    """An attention whose calls of all lengths share plans: see `attn.Attention.bucketed`.

    attention  the attention of the padded tensors, which has `lengths q, kv`
    buckets    the lengths that Sq and Skv are padded to, in increasing order
    layout     the order of dimensions of calls, as of an attention
    """

    def __init__(
        self, attention: Attention, buckets: Mapping[str, Sequence[int]], layout: str | None = None
    ):
        self.attention = attention
        self.layout = layout
        self.buckets = {name: _checked(name, lengths) for name, lengths in buckets.items()}
        # The least work of any rows and columns has the least rows, and the least columns.
        self._shapes = {
            name: Shapes([{**_ONE, name: length} for length in lengths])
            for name, lengths in self.buckets.items()
        }
        # Lengths that come again do not ask again.
        self._bucket = torch.compiler.disable(functools.lru_cache(4096)(self._choose))
        self._axes = {
            name: [axis if axis in (_ROWS, _COLUMNS) else None for axis in tensor.dims]
            for name, tensor in attention.described.inputs.items()
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return Bucketed, (self.attention, self.buckets, self.layout)

    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, layout: str | None = None, **inputs: object
    ) -> Outputs:
        """What the attention returns for these tensors, with gradients. Raises BindingError if a length
        exceeds the largest bucket, and what `attn.torch.call` raises."""
        layout = layout or self.layout
        if layout is not None and layouts.checked(layout) != "bhsd":
            return layouts.call(self, self.attention.described, (q, k, v), inputs)
        sizes = sizes_of(q, k, v)
        padded = {_ROWS: self._bucket(_ROWS, sizes.Sq), _COLUMNS: self._bucket(_COLUMNS, sizes.Skv)}
        tensors = [_padded(q, {2: padded[_ROWS]}), *(_padded(x, {2: padded[_COLUMNS]}) for x in (k, v))]
        for name, value in inputs.items():
            places = {place: padded[axis] for place, axis in enumerate(self._axes.get(name, ())) if axis}
            inputs[name] = _padded(torch.as_tensor(value, device=q.device), places) if places else value
        for name, length in (("lengths_q", sizes.Sq), ("lengths_kv", sizes.Skv)):
            if name not in inputs:
                inputs[name] = torch.full((sizes.B,), length, dtype=torch.int32, device=q.device)
        given: dict[str, Any] = inputs
        outputs = self.attention(*tensors, **given)
        if isinstance(outputs, tuple):  # amax has no rows
            return tuple(x[:, :, : sizes.Sq] if x.dim() > 1 else x for x in outputs)
        return outputs[:, :, : sizes.Sq]

    def warm(self, *, background: bool = False, **options: object) -> list[Future[None]]:
        """`attn.Attention.warm` for each bucket: those of Sq with those of Skv, or each with itself if they
        are the same. `options`: those of `warm`, and the other sizes."""
        given: dict[str, Any] = options
        return [
            self.attention.warm(background=background, **{**given, _ROWS: rows, _COLUMNS: columns})
            for rows, columns in self._pairs()
        ]

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={list(lengths)}" for name, lengths in self.buckets.items())
        return f"<attn.torch.Bucketed {self.attention.name}({listed})>"

    def _pairs(self) -> Iterator[tuple[int, int]]:
        rows, columns = self.buckets[_ROWS], self.buckets[_COLUMNS]
        if rows == columns:
            return zip(rows, columns)
        return ((row, column) for row in rows for column in columns)

    def _choose(self, name: str, length: int) -> int:
        padded = self._shapes[name].choose({**_ONE, name: length})
        if padded is not None:
            return padded[name]
        raise BindingError(
            f"{name} is {length}, and the largest bucket of `{self.attention.name}` {self.buckets[name][-1]}",
            [order_note("bhsd")],
        )


def bucketed(attention: Attention, buckets: Mapping[str, Sequence[int]]) -> Bucketed:
    """Raises ArgumentError if the attention is not the same for padded tensors."""
    if attention.described.located:
        raise ArgumentError(
            f"the plans of `{attention.name}` serve all lengths, since its rows are located by tensors"
        )
    said = attention.described
    if said.held or said.gathers or said.cache:
        raise ArgumentError(
            f"`{attention.name}` has a cache of its own form, which is not padded",
            ["compile exact sizes: f.warm(..); or keep keys in pages, whose plans serve all lengths"],
        )
    padded = attention.source.edited("--lengths", "q,kv")
    bindings = {name: size for name, size in attention.bindings.items() if name not in (_ROWS, _COLUMNS)}
    if attention.captured:
        raise ArgumentError(
            "tensors that a traced function captured have the sizes of one length",
            ["compile the spec's text, attn.compile(f.spec), and give them at each call"],
        )
    _check(padded.described(bindings))
    # Rows and keys may be padded to different lengths, whatever the spec says.
    made = Attention(padded, bindings, layout="bhsd", engine=attention.engine, cache=attention._cache,
                     builds=attention.builds)
    return Bucketed(made, buckets, attention.layout)


def _check(said: Description) -> None:
    """Padding changes Sq and Skv: nothing but shapes may depend on them. It adds elements to tensors, which
    are equal to the last: a run of them may become longer."""
    for name in (_ROWS, _COLUMNS):
        shapes = [axis for tensor in said.inputs.values() for axis in tensor.dims]
        if name not in said.facts["padded"] or any(name in axis != name for axis in shapes):
            raise ArgumentError(
                f"`{said.name}` reads {name} in an expression, which padding would change",
                ["write the length as a param, or compile exact sizes: f.warm(..)"],
            )
    for tensor in said.inputs.values():
        if tensor.limited:
            raise ArgumentError(
                f"{tensor.name} has runs of a limited length, which padding may exceed",
                ["declare only how many runs there are"],
            )


def _checked(name: str, lengths: Sequence[int]) -> list[int]:
    found = sorted({*lengths})
    if not found or not all(isinstance(length, int) and length > 0 for length in found):
        raise ArgumentError(f"{name} must have buckets, which are positive integers, not {list(lengths)}")
    return found


def _padded(tensor: torch.Tensor, lengths: Mapping[int, int]) -> torch.Tensor:
    """The tensor with rows added to the end of each axis: floats with zeros, which have no gradient; integers and
    booleans with the last element, which keeps what is sorted sorted."""
    for axis, length in lengths.items():
        size = tensor.shape[axis]
        if size >= length:
            continue
        shape = [length - size if place == axis else each for place, each in enumerate(tensor.shape)]
        sorts = size > 0 and not tensor.is_floating_point()
        added = tensor.narrow(axis, size - 1, 1).expand(shape) if sorts else tensor.new_zeros(shape)
        tensor = torch.cat([tensor, added], axis)
    return tensor
