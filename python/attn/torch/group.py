"""Process groups, as attentions on several GPUs use them."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import pickle
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from attn.errors import ArgumentError, CompilerError, CudaError, Error, NcclError

_HOW_TO_BEGIN = "torchrun --nproc-per-node=8 train.py, and there torch.distributed.init_process_group(\"nccl\")"

_LONG = 3600  # seconds that a compiler may take
_PART = 4 << 20  # bytes that a store takes at once
_counters: weakref.WeakKeyDictionary[dist.ProcessGroup, Any] = weakref.WeakKeyDictionary()


class Group:
    """This process in a group. All processes of the group make the same calls in the same order."""

    def __init__(self, given: Any = None, device: Any = None, timeout_seconds: int = 30):
        """`given`: a ProcessGroup, a DeviceMesh of one dimension, or None for the default group. `device`: by
        default the current CUDA device if the group has NCCL, else the CPU. Raises ArgumentError."""
        if timeout_seconds < 1:
            raise ArgumentError(f"timeout_seconds is {timeout_seconds}; it must be at least 1")
        self.timeout_seconds = timeout_seconds
        self.group = _process_group(given)
        self.rank = dist.get_rank(self.group)
        self.size = dist.get_world_size(self.group)
        if self.rank < 0:
            raise ArgumentError("this process is not in the group", ["call it only in those that are"])
        self.device = self._device(device)

    def _device(self, given: Any) -> torch.device:
        nccl = _backend(self.group, "cuda") if torch.cuda.is_available() else None
        has_nccl = nccl is not None and type(nccl).__name__ == "ProcessGroupNCCL"
        device = torch.device(given if given is not None else "cuda" if has_nccl else "cpu")
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
        """What rank 0 makes, on all, however long it takes. Raises its error on all."""
        meeting = self._meeting()
        if self.rank == 0:
            meeting.say(0, _outcome(make))
        value, error = meeting.hear(0, _LONG)
        if error is not None:
            raise error
        return value

    def agree(self, make: Callable[[], Mapping[str, Any]]) -> None:
        """Raises ArgumentError on all ranks if `make` does not give the same on all; if it raises on one, that
        error on all; NcclError if a rank does not come."""
        meeting = self._meeting()
        meeting.say(self.rank, _outcome(lambda: dict(make())))
        answers = [meeting.hear(rank, self.timeout_seconds) for rank in range(self.size)]
        for rank, (_, error) in enumerate(answers):
            if error is not None:
                if rank != self.rank:
                    error.args = (f"rank {rank}: {error}",)
                raise error
        first = answers[0][0]
        for rank, (other, _) in enumerate(answers):
            differing = [name for name in first if first[name] != other[name]]
            if differing:
                raise ArgumentError(
                    f"all ranks must ask for the same attention, but {' and '.join(differing)} of rank {rank}"
                    " and of rank 0 differ",
                    [f"{name}: {first[name]} on rank 0, {other[name]} on rank {rank}" for name in differing],
                )

    def holds_on_all(self, holds: bool) -> bool:
        """Whether it is true on every rank. Raises NcclError if a rank does not come."""
        meeting = self._meeting()
        meeting.say(self.rank, holds)
        return all([meeting.hear(rank, self.timeout_seconds) for rank in range(self.size)])

    def _meeting(self) -> _Meeting:
        return _Meeting(self.group.get_group_store(), next(_counters.setdefault(self.group, itertools.count())))

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

        self.agree(allocate)
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


class _Meeting:
    """What ranks tell each other once, through the store by which they found each other: so one that does not
    come is noticed, which a collective would wait for."""

    def __init__(self, store: dist.Store, number: int):
        self._store, self._name = store, f"attn/{number}"

    def say(self, rank: int, value: Any) -> None:
        contents = pickle.dumps(value)
        parts = [contents[at : at + _PART] for at in range(0, len(contents), _PART)]
        for place, part in enumerate(parts):
            self._store.set(f"{self._name}/{rank}/{place}", part)
        self._store.set(f"{self._name}/{rank}", str(len(parts)))

    def hear(self, rank: int, seconds: int) -> Any:
        key = f"{self._name}/{rank}"
        try:
            self._store.wait([key], datetime.timedelta(seconds=seconds))
        except RuntimeError as error:
            raise NcclError(
                f"rank {rank} did not come within {seconds} s",
                ["all ranks of the group must make the same calls"],
                "nccl",
            ) from error
        count = int(self._store.get(key))
        return pickle.loads(b"".join(self._store.get(f"{key}/{place}") for place in range(count)))


def _process_group(given: Any) -> dist.ProcessGroup:
    if not dist.is_available() or not dist.is_initialized():
        raise ArgumentError("torch.distributed is not initialized", [_HOW_TO_BEGIN])
    if given is None:
        return dist.group.WORLD
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
        return backend._comm_ptr()
    except RuntimeError:
        return 0


def _on(device: torch.device) -> Any:
    """Makes the device current: there collectives of objects have their tensors."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


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
