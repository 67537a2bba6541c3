"""DTensors [B, H, S, D] that are divided by batches and heads: each process computes its part, with mods that count the
batches and heads of the whole."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from attn.errors import BindingError, UnsupportedError
from attn.torch.blocks import LISTS, lists_of
from attn.types import Mod

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Placement

_BATCHES, _HEADS = 0, 1
_WORDS = {_BATCHES: "batches", _HEADS: "heads"}


def is_distributed(tensor: Any) -> bool:
    """Whether it is a DTensor, without importing what is slow to import."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


class Part(NamedTuple):
    """This process's part of a call: where q, k and v are divided, along which dimensions of the mesh, and the first
    batch and head that are here."""

    mesh: DeviceMesh
    placements: tuple[Placement, ...]  # of q, and of o
    local: tuple[torch.Tensor, ...]
    first: tuple[int, int]

    @property
    def divides(self) -> bool:
        """Whether processes have different parts."""
        return any(not placement.is_replicate() for placement in self.placements)

    def whole(self, output: torch.Tensor) -> torch.Tensor:
        """An output of all processes, of this one's."""
        from torch.distributed.tensor import DTensor

        found: torch.Tensor = DTensor.from_local(output, self.mesh, self.placements, run_check=False)
        return found

    def shifted(self, mods: tuple[Mod | None, Mod | None]) -> tuple[Mod | None, Mod | None]:
        """Mods that count the batches and heads that are here as those of the whole."""
        score_mod, mask_mod = mods
        return _score_of(score_mod, self.first), _mask_of(mask_mod, self.first)

    def summed(self, captured: Mapping[str, Any]) -> Mapping[str, Any]:
        """Captured tensors, of DTensors the whole, whose gradients are the sums of those of all processes that have
        other parts. Raises UnsupportedError for DTensors of another mesh."""
        records = torch.is_grad_enabled() and self.divides
        return {name: self._summed(name, x) if is_distributed(x) or (
            records and isinstance(x, torch.Tensor) and x.requires_grad) else x for name, x in captured.items()}

    def _summed(self, name: str, tensor: Any) -> torch.Tensor:
        from torch.distributed.tensor import DTensor, Partial, Replicate

        if not is_distributed(tensor):
            tensor = DTensor.from_local(tensor, self.mesh, [Replicate()] * len(self.placements), run_check=False)
        elif tensor.device_mesh != self.mesh:
            raise UnsupportedError(f"{name}, which a mod captures, is a DTensor of another mesh than query")
        found: torch.Tensor = tensor.full_tensor(
            grad_placements=[one if one.is_replicate() else Partial() for one in self.placements])
        return found

    def block_mask(self, block_mask: Any) -> Any:
        """The part of a BlockMask, which shares the memory of its lists: the same one as long as those are the same."""
        lists = lists_of(block_mask)
        given = tuple(map(id, lists.values())), block_mask.mask_mod, self.first, self.local[0].shape[:2]
        known = _parts.get(block_mask)
        if known is None or known[0] != given:
            known = _parts[block_mask] = given, self._part_of(block_mask, lists)
        return known[1]

    def _part_of(self, block_mask: Any, lists: dict[str, torch.Tensor | None]) -> Any:
        from torch.nn.attention.flex_attention import BlockMask

        counts = self.local[0].shape[:2]
        slices = [slice(first, first + count) for first, count in zip(self.first, counts)]
        here: dict[str, Any] = {"mask_mod": _mask_of(block_mask.mask_mod, self.first)}
        for name in LISTS:
            x = lists[name]
            here[name] = None if x is None else x[tuple(
                slice(None) if size == 1 else part for size, part in zip(x.shape, slices))]
        return BlockMask.from_kv_blocks(**here, BLOCK_SIZE=block_mask.BLOCK_SIZE, seq_lengths=block_mask.seq_lengths,
                                        compute_q_blocks=False)


_parts: weakref.WeakKeyDictionary[Any, tuple[Any, Any]] = weakref.WeakKeyDictionary()


def _score_of(mod: Mod | None, first: tuple[int, int]) -> Mod | None:
    if mod is None or first == (0, 0):
        return mod
    batch, head = first

    def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return mod(score, b + batch, h + head, q_idx, kv_idx)

    return score_mod


def _mask_of(mod: Mod | None, first: tuple[int, int]) -> Mod | None:
    if mod is None or first == (0, 0):
        return mod
    batch, head = first

    def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return mod(b + batch, h + head, q_idx, kv_idx)

    return mask_mod


def part_of(tensors: Sequence[Any]) -> Part:
    """This process's part of q, k and v. Raises BindingError if they are not all DTensors of one mesh, UnsupportedError
    if they are divided otherwise than by batches and heads, in equal parts."""
    for name, tensor in zip(("query", "key", "value"), tensors):
        if not is_distributed(tensor):
            raise BindingError(f"{name} is no DTensor, but another of query, key and value is",
                               ["DTensor.from_local(x, mesh, placements) makes one"])
    q, k, v = tensors
    if not q.device_mesh == k.device_mesh == v.device_mesh:
        raise BindingError("query, key and value are DTensors of different meshes")
    first, local = _first(q), [q.to_local()]
    for name, tensor in (("key", k), ("value", v)):
        local.append(tensor.to_local(grad_placements=_gradients(name, tensor, q.placements)))
    return Part(q.device_mesh, tuple(q.placements), tuple(local), first)


def _gradients(name: str, tensor: DTensor, of_query: Sequence[Placement]) -> list[Placement]:
    """The placements of the gradient of k or v, for those of q."""
    from torch.distributed.tensor import Partial

    found: list[Placement] = []
    for own, wanted in zip(tensor.placements, of_query):
        dim = getattr(wanted, "dim", None)
        if own == wanted:
            found.append(own)
        elif own.is_replicate() and dim in _WORDS and tensor.shape[dim] == 1:  # one for all batches, or heads
            found.append(Partial())
        else:
            raise UnsupportedError(f"query is placed {tuple(of_query)}, but {name} {tuple(tensor.placements)}",
                                   [f"redistribute it: {name}.redistribute(placements=query.placements)"])
        if dim in _WORDS and own == wanted:
            _check_even(name, tensor, dim, _count(tensor.device_mesh, tensor.placements, dim))
    return found


def _first(query: DTensor) -> tuple[int, int]:
    """The first batch and head of this process."""
    mesh = query.device_mesh
    at = mesh.get_coordinate()
    if at is None:
        raise BindingError("this process is not in the mesh of query, key and value")
    first, sizes = [0, 0], list(query.shape[:2])
    for place, count, coordinate in zip(query.placements, mesh.shape, at):
        if place.is_replicate():
            continue
        dim = getattr(place, "dim", None)
        if type(place).__name__ != "Shard" or dim not in _WORDS:
            raise UnsupportedError(
                f"query is placed {tuple(query.placements)}: attention is divided by batches, Shard(0), and heads,"
                " Shard(1)",
                ["divided by rows: attn.torch.distribute divides the work by what the mask shows",
                 "else redistribute query, key and value"])
        _check_even("query", query, dim, _count(mesh, query.placements, dim))
        sizes[dim] //= count
        first[dim] += coordinate * sizes[dim]
    return first[0], first[1]


def _count(mesh: DeviceMesh, placements: Sequence[Placement], dim: int) -> int:
    """In how many parts a dimension is."""
    return math.prod(count for count, place in zip(mesh.shape, placements) if getattr(place, "dim", None) == dim)


def _check_even(name: str, tensor: torch.Tensor, dim: int, count: int) -> None:
    if tensor.shape[dim] % count != 0:
        raise UnsupportedError(f"{name} has {tensor.shape[dim]} {_WORDS[dim]}, which are no {count} equal parts")
