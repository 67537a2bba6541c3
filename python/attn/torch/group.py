"""Process groups, as attentions on several GPUs use them."""

from __future__ import annotations

import contextlib
import copy
import datetime
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from attn.errors import ArgumentError, CompilerError, CudaError, Error, NcclError
from attn.torch.board import Board
from attn.torch.meeting import Meetings
from attn.torch.steps import Steps

_HOW_TO_BEGIN = "torchrun --nproc-per-node=8 train.py, and there torch.distributed.init_process_group(\"nccl\")"

_LONG = 3600  # seconds that a compiler may take
_USUAL = 600  # of a group that does not say how long its collectives may take
_LONGEST = 10**9
_WITHOUT_SIGNS = 30  # where ranks that have ended look as if they were slow


# What all attentions of a group share.
_known: weakref.WeakKeyDictionary[dist.ProcessGroup, tuple[Meetings, Steps]] = weakref.WeakKeyDictionary()


class Group:
    """This process in a group. All processes of the group make the same calls in the same order, `agree` first."""

    def __init__(
        self, given: Any = None, device: Any = None, timeout_seconds: float | datetime.timedelta | None = None
    ):
        """`given`: a ProcessGroup, a DeviceMesh of one dimension, or None for the default group. `device`: by
        default the current CUDA device if the group has NCCL, else the CPU. `timeout_seconds`: how long ranks
        wait for one that lives; by default as long as PyTorch's collectives. Raises ArgumentError; but if the
        device is of no use on one rank, `agree` does, on all."""
        if isinstance(timeout_seconds, datetime.timedelta):
            timeout_seconds = timeout_seconds.total_seconds()
        if timeout_seconds is not None and timeout_seconds < 1:
            raise ArgumentError(f"timeout_seconds is {timeout_seconds}; it must be at least 1")
        self.group = _process_group(given)
        self.rank = dist.get_rank(self.group)
        self.size = dist.get_world_size(self.group)
        if self.rank < 0:
            raise ArgumentError("this process is not in the group", ["call it only in those that are"])
        if self.group not in _known:
            board = Board(self.group.get_group_store(), self.rank, self.size)
            _known[self.group] = Meetings(board), Steps(board)
            weakref.finalize(self.group, board.close).atexit = False  # a board does that itself
        self._meetings, self._steps = _known[self.group]
        found, self._refused = _outcome(lambda: self._device(device))  # why this rank cannot compute
        self.device: torch.device = torch.device("cpu") if found is None else found
        usual = _timeout(self.group, self.device) if self._steps.board.shows_life else _WITHOUT_SIGNS
        self.seconds = usual if timeout_seconds is None else min(timeout_seconds, _LONGEST)

    def _device(self, given: Any) -> torch.device:
        nccl = _backend(self.group, "cuda") if torch.cuda.is_available() else None
        has_nccl = nccl is not None and type(nccl).__name__ == "ProcessGroupNCCL"
        try:
            device = torch.device(given if given is not None else "cuda" if has_nccl else "cpu")
        except RuntimeError as error:
            raise ArgumentError(str(error).splitlines()[0]) from None
        if device.type == "cuda":
            if not has_nccl:
                raise ArgumentError(
                    f"the group has no NCCL: its backend is {dist.get_backend(self.group)}",
                    ["torch.distributed.init_process_group(\"nccl\"), or \"cpu:gloo,cuda:nccl\""]
                    if torch.cuda.is_available() else ["PyTorch finds no GPU here"],
                )
            return torch.device("cuda", torch.cuda.current_device()) if device.index is None else device
        if device.type != "cpu":
            raise ArgumentError(f"attentions are computed on CUDA devices, and on the CPU, not on {device}")
        if _backend(self.group, "cpu") is None:
            raise ArgumentError(
                f"the group has no backend for the CPU: it is {dist.get_backend(self.group)}",
                ["for tensors in the CPU's memory: init_process_group(\"cpu:gloo,cuda:nccl\")"],
            )
        return device

    def of_rank_0(self, make: Callable[[], Any]) -> Any:
        """What rank 0 makes, on all, however long it takes. Raises its error on all. After another meeting, so
        that all are there."""
        made = _outcome(make) if self.rank == 0 else None
        value, error = self._meetings.hold("what rank 0 makes", made, self.seconds, _LONG)[0]
        if error is not None:
            raise error
        return value

    def agree(self, about: str, make: Callable[[], Mapping[str, Any]]) -> None:
        """Raises ArgumentError on all ranks if `make` does not give the same on all; if it raises on one, that
        error on all; NcclError if a rank does not come."""
        made = (None, self._refused) if self._refused is not None else _outcome(lambda: dict(make()))
        try:
            _same(self._meetings.hold(about, made, self.seconds))
        except Error:
            if made[1] is not None:
                raise made[1] from None  # without the number of this rank
            raise

    def holds_on_all(self, holds: bool) -> bool:
        """Whether it is true on every rank. Raises NcclError if a rank does not come."""
        return all(self._meetings.hold("what all ranks have", holds, self.seconds))

    def steps(self) -> Steps:
        """The steps of all attentions of the group."""
        self._steps.seconds = self.seconds
        return self._steps

    def communicator(self) -> int:
        """NCCL's communicator of the group, which PyTorch makes for its first collective. Raises NcclError, and
        CudaError if a rank has no memory for that."""
        backend = _backend(self.group, "cuda")
        with _on(self.device):
            found = _pointer(backend)
            if not found:
                self._connect()
                found = _pointer(backend)
        if not found:
            raise NcclError("PyTorch has no NCCL communicator for this group and device", status="nccl")
        return found

    def _connect(self) -> None:
        tokens: list[torch.Tensor] = []

        def allocate() -> dict[str, Any]:
            tokens.append(torch.zeros(1, device=self.device))
            return {}

        self.agree("the communicator", allocate)
        try:
            dist.all_reduce(tokens[0], group=self.group)
            torch.cuda.synchronize(self.device)
        except RuntimeError as error:
            raise NcclError(
                f"the group's communicator could not be made: {error}",
                ["each process needs a GPU of its own: torch.cuda.set_device(local_rank)"],
                "nccl",
            ) from error

    def abort(self) -> None:
        """Ends all that waits for the group's communicator, which is of no use afterwards. PyTorch is told, so
        that it does not wait either."""
        _backend(self.group, "cuda").abort()

    def gathered(self, tensor: torch.Tensor, counts: Sequence[int], dim: int) -> list[torch.Tensor]:
        """The tensors of all ranks, which differ only in the size of `dim`, that of each in `counts`."""
        moved = tensor.movedim(dim, 0)
        padded = moved.new_zeros((max(counts), *moved.shape[1:]))
        padded[: moved.shape[0]] = moved
        found = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(found, padded, group=self.group)
        return [each[:count].movedim(0, dim) for each, count in zip(found, counts)]


def _outcome(make: Callable[[], Any]) -> tuple[Any, Error | None]:
    """What it makes, or its error, for other processes: none may be left waiting."""
    try:
        return make(), None
    except Error as error:
        return None, error
    except torch.OutOfMemoryError as error:
        return None, CudaError(str(error), failure="out_of_memory")
    except Exception as error:
        return None, CompilerError(f"{type(error).__name__}: {error}")


def _same(answers: Sequence[tuple[Any, Error | None]]) -> None:
    for rank, (_, error) in enumerate(answers):
        if error is not None:
            named = copy.copy(error)  # its rank raises its own, without a number
            named.args = (f"rank {rank}: {error}",)
            raise named
    first = answers[0][0]
    for rank, (other, _) in enumerate(answers):
        differing = [name for name in first if first[name] != other[name]]
        if differing:
            raise ArgumentError(
                f"all ranks must ask for the same attention, but {' and '.join(differing)} of rank {rank}"
                " and of rank 0 differ",
                [f"{name}: {first[name]} on rank 0, {other[name]} on rank {rank}" for name in differing],
            )


def _timeout(group: dist.ProcessGroup, device: torch.device) -> float:
    """The timeout of PyTorch's own collectives, in seconds."""
    options = getattr(_backend(group, device.type), "options", None)
    given = getattr(options, "_timeout", None)
    return _USUAL if given is None else min(max(1.0, given.total_seconds()), _LONGEST)


def _process_group(given: Any) -> dist.ProcessGroup:
    if not dist.is_available() or not dist.is_initialized():
        raise ArgumentError("torch.distributed is not initialized", [_HOW_TO_BEGIN])
    if given is None:
        whole = dist.group.WORLD
        assert whole is not None  # it is initialized
        return whole
    if isinstance(given, DeviceMesh):
        if given.ndim != 1:
            names = given.mesh_dim_names
            example = f"mesh[\"{names[-1]}\"]" if names else "mesh[\"context\"]"
            raise ArgumentError(
                f"the mesh has {given.ndim} dimensions; an attention is divided along one",
                [f"give it alone: {example}"],
            )
        return given.get_group()
    if given is dist.GroupMember.NON_GROUP_MEMBER:
        raise ArgumentError("this process is not in the group", ["call it only in those that are"])
    if not isinstance(given, dist.ProcessGroup):
        raise ArgumentError(
            f"a group is a torch.distributed.ProcessGroup or DeviceMesh, not {type(given).__name__}"
        )
    return given


def _backend(group: dist.ProcessGroup, device: str) -> Any:
    try:
        return group._get_backend(torch.device(device))
    except RuntimeError:
        return None


def _pointer(backend: Any) -> int:
    """0 if there is no communicator yet."""
    try:
        return int(backend._comm_ptr())
    except RuntimeError:
        return 0


def _on(device: torch.device) -> Any:
    """Makes the device current: there collectives of objects have their tensors."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
