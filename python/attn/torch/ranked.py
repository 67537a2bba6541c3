"""What computes one rank's share of an attention: plans of the GPU, or the reference on the CPU."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from attn import _distributed, _libattn
from attn.arguments import RANDOM
from attn.attention import Attention
from attn.errors import BindingError, UnsupportedError
from attn.forms import LSE_GRADIENT, NAMED_LAYOUTS, dense_strides, differentiated, layout_of, same_strides
from attn.torch.calls import Call, formed
from attn.torch.execute import run_backward, run_forward
from attn.torch.facts import Facts, facts_of
from attn.torch.group import Group
from attn.torch.statistics import is_capturing
from attn.torch.signature import DTYPES, TORCH_DTYPES, usable
from attn.torch.statistics import refuse
from attn.torch.steps import Steps

# Roles of tensors that ranks have parts of: they may have any strides, if rows are contiguous.
ROLES_AT_HOME = ("query", "key", "value", "output", "stats", "saved", "cotangent", "gradient")

Homes = list[tuple[torch.Tensor, ...]]  # the numbers of rows and of keys of each rank, on the CPU


def check_graphs() -> None:
    """Raises UnsupportedError where NCCL would take memory of several segments for that of the first one: it maps what
    captured exchanges send and receive into other processes."""
    settings = ",".join(os.environ.get(name, "") for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"))
    expands = "expandable_segments:true" in settings.replace(" ", "").lower()
    if expands and os.environ.get("NCCL_GRAPH_REGISTER") != "0":
        raise UnsupportedError(
            "exchanges between GPUs cannot be captured into a CUDA graph while PyTorch's memory has"
            " expandable_segments",
            ["NCCL would wait forever, or read other memory: set NCCL_GRAPH_REGISTER=0 before the group is made"],
        )


def numbers(intervals: Iterable[Sequence[int]]) -> torch.Tensor:
    """The numbers in intervals [begin, end), ascending."""
    return torch.cat([torch.arange(0), *(torch.arange(begin, end) for begin, end in intervals)])


class Kernels:
    """The execution on a GPU. For any number of threads, one after the other."""

    def __init__(self, group: Group, contents: bytes, steps: Steps):
        self._device = group.device
        runtimes: list[_libattn.Runtime] = []

        def prepare() -> dict[str, Any]:
            torch.cuda.empty_cache()  # libattn allocates beside PyTorch
            _distributed.library()
            runtimes.append(_libattn.runtime(group.device.index))
            return {}

        # This comes before any rank waits in a communicator for one that lacks a library.
        group.agree("the libraries", prepare)
        self.steps = steps

        def abort() -> None:
            try:
                group.abort()
            finally:
                steps.end("an exchange failed, or did not end in time")

        with steps.opening():
            self._rank = _distributed.Distributed(
                runtimes[0],
                contents,
                group.communicator(),
                timeout_seconds=math.ceil(group.seconds),
                abort=abort,
                lost=steps.in_vain,
            )
        steps.add(self._rank.abort)
        self.sharding = self._rank.sharding
        self.family = self._rank.family
        self.directions = self._rank.directions
        self.device_bytes = self._rank.device_bytes
        self._lock = threading.Lock()
        self._bound: dict[Any, _distributed.Binding] = {}
        self._captured: dict[Any, _distributed.Binding] = {}  # CUDA graphs use them while they are replayed
        self._stream: torch.cuda.Stream | None = None  # of the last execute

    def homes(self, ranks: int) -> Homes:
        """The rows and keys that are at home on each rank, (rows, keys) for each: int64 tensors, ascending."""
        which = (_distributed.ROWS, _distributed.KEYS)
        return [tuple(numbers(self._rank.home(rank, each)) for each in which) for rank in range(ranks)]

    def forward(
        self, tensors: Mapping[str, torch.Tensor], params: Mapping[str, float]
    ) -> dict[str, torch.Tensor]:
        """Runs this rank's forward on the current stream. `tensors` are those of this rank, by name. Returns
        its outputs by name. Collective."""
        return self._run("fwd", tensors, params)

    def backward(
        self, tensors: Mapping[str, torch.Tensor], params: Mapping[str, float]
    ) -> dict[str, torch.Tensor]:
        """`tensors`: those of the forward, its outputs, and `cotangents`. Gradients by the tensors' names."""
        found = self._run("bwd", tensors, params)
        return {differentiated(name): tensor for name, tensor in found.items()}

    def check(self) -> None:
        """Waits for the current stream. Raises the error of an exchange that failed, if there is one."""
        torch.cuda.current_stream(self._device).synchronize()
        self._rank.check()

    def close(self) -> None:
        """Releases the bindings and the loaded plans. Thread-safe."""
        with self._lock:
            self._bound.clear()
            self._captured.clear()
            self._rank.close()

    def _run(
        self, direction: str, tensors: Mapping[str, torch.Tensor], params: Mapping[str, float]
    ) -> dict[str, torch.Tensor]:
        with torch.cuda.device(self._device), self._lock, self.steps.call(counts=not is_capturing()):
            used, outputs = {}, {}
            for info in self._rank.tensors[direction]:
                if info.is_output:
                    like = tensors.get("q" if info.name == "o" else info.name[1:])
                    used[info.name] = outputs[info.name] = self.empty_like(
                        info.name, info.dims, like, TORCH_DTYPES[info.dtype])
                else:
                    used[info.name] = _readable(info, tensors[info.name], self._device)
            names = [param.name for param in self._rank.params[direction]]
            self._execute(direction, used, {name: params[name] for name in names})
        return outputs

    def empty_like(
        self, name: str, shape: Sequence[int], like: torch.Tensor | None, dtype: torch.dtype
    ) -> torch.Tensor:
        """An output that was not written yet. `like`: q for o, and for a gradient the tensor that it is of; the output
        has the order of its memory, if that has no gaps."""
        device = self._device if like is None else like.device
        if name not in ("o", "dq", "dk", "dv"):
            return torch.empty(shape, dtype=dtype, device=device)
        layout = "bshd" if like is None else layout_of(like.shape, like.stride())
        order = NAMED_LAYOUTS[layout if layout in NAMED_LAYOUTS else "bshd"]
        return torch.empty_strided(shape, dense_strides(shape, order), dtype=dtype, device=device)

    def _execute(
        self, direction: str, tensors: Mapping[str, torch.Tensor], params: Mapping[str, float]
    ) -> None:
        stream = torch.cuda.current_stream(self._device)
        capturing = is_capturing()
        if capturing:
            check_graphs()
        else:
            if self._stream is not None and self._stream != stream:
                stream.wait_stream(self._stream)  # executes share memory
            self._stream = stream
        binding = self._binding(direction, capturing, tensors, params)
        # What a file was divided for is compared with tensors at other addresses, but not during a capture.
        binding.set_addresses(
            [tensor.data_ptr() for tensor in tensors.values()], checked=capturing, stream=stream.cuda_stream)
        # So that no other tensor is at an address whose values were compared, also if this call fails.
        binding.kept = [tensors[info.name] for info in self._rank.tensors[direction] if info.role == "captured"]
        for name, value in params.items():
            binding.set_param(name, value)
        self.steps.exchanges(counts=not capturing)
        binding.execute(stream.cuda_stream)

    def _binding(
        self,
        direction: str,
        capturing: bool,
        tensors: Mapping[str, torch.Tensor],
        params: Mapping[str, float],
    ) -> _distributed.Binding:
        """One for each set of strides. A capture takes the one that a call before it has left, because
        binding allocates memory."""
        key = (direction, *(tensor.stride() for tensor in tensors.values()))
        if capturing and key not in self._captured:
            if key not in self._bound:
                raise BindingError(
                    "no call with such tensors was before this one, which a CUDA graph needs",
                    ["call it once before the capture, with tensors of the same strides"],
                )
            self._captured[key] = self._bound.pop(key)
        kept = self._captured if capturing else self._bound
        if key not in kept:
            given = {
                name: (tensor.data_ptr(), DTYPES[tensor.dtype], tensor.shape, tensor.stride())
                for name, tensor in tensors.items()
            }
            kept[key] = self._rank.bind(direction, given, params)
        return kept[key]


def cotangents(
    facts: Facts,
    tensors: Mapping[str, torch.Tensor],
    d_o: torch.Tensor | None,
    reached: Sequence[str],
    d_reached: Sequence[torch.Tensor],
) -> dict[str, torch.Tensor]:
    """What a backward reads beside the tensors and outputs of its forward, by name: `do`, and `dlse` if the spec has
    `lse` in its `grad` clause, so that all ranks know it; zeros for those that this rank's loss did not reach. Raises
    UnsupportedError if the gradient of another statistic is not zero."""
    made = {"do": torch.zeros_like(tensors["o"]) if d_o is None else d_o}
    others = dict(zip(reached, d_reached))
    if facts.said.facts["grad_of_lse"]:
        of_lse = others.pop("lse", None)
        made[LSE_GRADIENT] = torch.zeros_like(tensors["lse"]) if of_lse is None else of_lse
    refuse(list(others), list(others.values()))
    return made


def _readable(info: _libattn.TensorInfo, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The tensor, or a copy of it where kernels cannot read its strides. Raises BindingError."""
    if DTYPES.get(tensor.dtype) != info.dtype:
        raise BindingError(
            f"{info.name} has dtype {tensor.dtype}, but the plan has {info.dtype}:"
            f" pass {info.name}.to({TORCH_DTYPES[info.dtype]})"
        )
    if tuple(tensor.shape) != tuple(info.dims):
        raise BindingError(
            f"{info.name} has shape {list(tensor.shape)}, but the plan expects {list(info.dims)}"
        )
    tensor = tensor.detach()
    if info.role in ROLES_AT_HOME and len(info.dims) == 4:
        tensor = usable(tensor)
    elif not same_strides(info.dims, tensor.stride(), info.strides):
        made = torch.empty_strided(info.dims, info.strides, dtype=tensor.dtype, device=device)
        return made.copy_(tensor)
    if tensor.data_ptr() % info.alignment == 0:
        return tensor
    return tensor.clone(memory_format=torch.preserve_format)


class Reference:
    """The execution on the CPU: every rank gathers all rows and keys, and computes everything. For small sizes."""

    sharding = "the reference on the CPU: every rank computes everything"
    family = ""
    device_bytes = 0

    def __init__(
        self,
        group: Group,
        attention: Attention,
        homes: Homes,
        training: bool,
        steps: Steps,
    ):
        self.steps = steps
        self.directions = ("fwd", "bwd") if training else ("fwd",)
        self._group = group
        self._attention = attention
        self._homes = homes
        facts = facts_of(attention)
        self._rows = ("q", "do", LSE_GRADIENT, *facts.all_outputs)

    def homes(self, ranks: int) -> Homes:
        """The rows and keys that are at home on each rank, as Kernels.homes."""
        return self._homes

    def forward(
        self, tensors: Mapping[str, torch.Tensor], params: Mapping[str, float]
    ) -> dict[str, torch.Tensor]:
        """This rank's outputs by name. Every rank computes the whole attention. Collective."""
        names = facts_of(self._attention).all_outputs
        with self.steps.call():
            self.steps.exchanges()
            return self._mine(dict(zip(names, run_forward(self._whole(tensors, params), True))))

    def backward(
        self, tensors: Mapping[str, torch.Tensor], params: Mapping[str, float]
    ) -> dict[str, torch.Tensor]:
        """This rank's gradients by name, of what the forward was given, its outputs and `cotangents`. Collective."""
        facts = facts_of(self._attention)
        given = {name: tensors[name] for name in tensors if name not in self._rows[1:]}
        with self.steps.call():
            self.steps.exchanges()
            each = self._whole(given, params)
            outputs = [self._gathered(name, tensors[name]) for name in facts.all_outputs]
            d_o, d_lse = (
                self._gathered(name, tensors[name]) if name in tensors else None for name in ("do", LSE_GRADIENT)
            )
            assert d_o is not None
            found = run_backward(each, outputs, d_o, d_lse)
            return self._mine(dict(zip(facts.of_backward, found)))

    @staticmethod
    def empty_like(
        name: str, shape: Sequence[int], like: torch.Tensor, dtype: torch.dtype
    ) -> torch.Tensor:
        """A new tensor on the same device, as `Kernels.empty_like`."""
        return torch.empty(shape, dtype=dtype, device=like.device)

    def check(self) -> None:
        """Everything is done when a call returns."""

    def close(self) -> None:
        """There is nothing to free."""

    def _whole(self, tensors: Mapping[str, torch.Tensor], params: Mapping[str, float]) -> Call:
        whole = {name: self._gathered(name, tensor.detach()) for name, tensor in tensors.items()}
        return formed(Call(self._attention, whole, dict(params)))

    def _which(self, name: str) -> int | None:
        return 0 if name in self._rows else 1 if name in ("k", "v") else None

    def _gathered(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        which = self._which(name)
        if which is None:
            # Each rank computes what the others draw, too.
            return self._group.gathered(tensor, [1] * self._group.size, 0)[0] if name in RANDOM else tensor
        return whole_of(self._group, tensor, [home[which] for home in self._homes], 2)

    def _mine(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        home = self._homes[self._group.rank]
        found = {}
        for name, tensor in tensors.items():
            which = self._which(name)
            found[name] = tensor if which is None else tensor[:, :, home[which]].contiguous()
        return found


def whole_of(group: Group, tensor: torch.Tensor, homes: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    """The whole of a tensor of which each rank has the elements of `homes` along `dim`. Collective."""
    parts = torch.cat(group.gathered(tensor, [len(home) for home in homes], dim), dim)
    return parts.index_select(dim, torch.argsort(torch.cat(list(homes))).to(tensor.device))
