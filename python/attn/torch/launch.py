"""One executable, run with torch tensors."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence

import torch

from attn import _libattn
from attn.arguments import order_note
from attn.errors import BindingError
from attn.forms import dense_strides, same_strides
from attn.outputs import value_of_nothing
from attn.torch import direct
from attn.torch.signature import DTYPES, TORCH_DTYPES
from attn.torch.statistics import is_capturing as is_capturing

# The strides that are bound of some calls; of more than this, the oldest are forgotten.
MOST_VIEWS = 256

# A workspace up to this size is kept with its binding; a larger one is allocated for each call, so that
# the layers of a model share it.
KEPT_WORKSPACE = 1 << 16


# Dims and strides of tensors with bound strides, by name.
_Views = tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]


class _Bound:
    """A binding and the memory that it uses."""

    def __init__(self, binding: _libattn.Binding, workspace: torch.Tensor | None):
        self.binding = binding
        self.workspace = workspace
        self.params: tuple[float, ...] | None = None


def _never(tensors: tuple[torch.Tensor, ...], params: tuple[float, ...]) -> None:
    """A direct call that applies to nothing."""


class Launch:
    """An executable whose inputs are torch tensors of its device and whose outputs are new ones.

    `inputs` and `outputs` are the names of its tensors in the order of `run`. May be called by several
    threads at once: each thread has a binding for each stream.
    """

    def __init__(self, executable: _libattn.Executable, device: torch.device, most_kept: int = KEPT_WORKSPACE):
        self._executable = executable
        self._most_kept = most_kept
        self._device = device
        self._infos = [info for info in executable.tensors if not info.is_output]
        self._made = [info for info in executable.tensors if info.is_output]
        self.inputs = tuple(info.name for info in self._infos)
        self.outputs = tuple(info.name for info in self._made)
        self.params = tuple(info.name for info in executable.params)
        # Strides of the inputs whose rows no other tensor locates.
        self.strides = {info.name: tuple(info.strides) for info in self._infos if not info.addressed_by}
        self._bound: dict[tuple[int, int, _Views], _Bound] = {}
        self._adding = threading.Lock()  # of `_bound`, which forgets the oldest
        self._captured: list[_Bound] = []  # CUDA graphs use them for as long as they are replayed
        order = {info.name: place for place, info in enumerate(executable.tensors)}
        self._places = [order[name] for name in self.inputs + self.outputs]
        # `run` in one native step; None where it does not apply.
        self.run_direct: direct.Run = direct.make(executable, device, most_kept) or _never

    @functools.cached_property
    def lent(self) -> Launch:
        """The same executable, keeping no memory between calls: in programs that PyTorch captures into CUDA graphs
        itself, all memory is the graphs'."""
        return Launch(self._executable, self._device, 0)

    def run(self, tensors: Sequence[torch.Tensor], params: Sequence[float]) -> Sequence[torch.Tensor]:
        """Enqueues the kernels on the current stream. `tensors` in the order of `inputs`.

        Raises BindingError if a tensor is not as the plan expects it.
        """
        found = self.run_direct(tuple(tensors), tuple(params))
        if found is not None:
            return found
        for info, tensor in zip(self._infos, tensors):
            check(info, tensor, self._device)
        rows = {info.addressed_by: tensor for info, tensor in zip(self._infos, tensors)}
        outputs = [self._allocate(info, rows.get(info.addressed_by)) for info in self._made]
        addresses = [0] * len(self._places)
        for place, tensor in zip(self._places, (*tensors, *outputs)):
            addresses[place] = tensor.data_ptr()
        stream = torch.cuda.current_stream(self._device).cuda_stream
        workspace = self._workspace() if self._executable.workspace_bytes > self._most_kept else None
        views = tuple(
            (info.name, *view_of(info, tensor))
            for info, tensor in zip((*self._infos, *self._made), (*tensors, *outputs))
            if info.bound_strides
        )
        bound = self._binding(stream, addresses, params, workspace, views)
        bound.binding.set_addresses(addresses)
        if workspace is not None:
            bound.binding.set_workspace(workspace.data_ptr())
        if bound.params != tuple(params):
            for name, value in zip(self.params, params):
                bound.binding.set_param(name, value)
            bound.params = tuple(params)
        bound.binding.execute(stream)
        return outputs

    def _allocate(self, info: _libattn.TensorInfo, located: torch.Tensor | None) -> torch.Tensor:
        """`located`: an input whose rows or pages are found as those of this output are."""
        dtype = TORCH_DTYPES[info.dtype]
        if not info.addressed_by:
            return torch.empty_strided(info.dims, info.strides, dtype=dtype, device=self._device)
        assert located is not None
        made = torch.empty(addressed_shape(info, located.shape[0]), dtype=dtype, device=self._device)
        # Kernels write no rows past those of the last sequence.
        return made.fill_(value_of_nothing(info.name)) if is_packed(info) else made

    def _workspace(self) -> torch.Tensor:
        return torch.empty(self._executable.workspace_bytes, dtype=torch.uint8, device=self._device)

    def _binding(
        self,
        stream: int,
        addresses: Sequence[int],
        params: Sequence[float],
        workspace: torch.Tensor | None,
        views: _Views,
    ) -> _Bound:
        key = (threading.get_ident(), stream, views)
        capturing = is_capturing()
        if not capturing and (known := self._bound.get(key)) is not None:
            return known
        kept = self._workspace() if workspace is None and self._executable.workspace_bytes > 0 else None
        memory = workspace if workspace is not None else kept
        viewed = {name: view for name, *view in views}
        bound = _Bound(
            self._executable.bind(
                {
                    info.name: (address, info.dtype, *viewed.get(info.name, (info.dims, info.strides)))
                    for info, address in zip(self._executable.tensors, addresses)
                },
                dict(zip(self.params, params)),
                workspace=None if memory is None else memory.data_ptr(),
                kept_addresses=64,
                stream=stream,
            ),
            kept,
        )
        if capturing:
            self._captured.append(bound)
        else:
            with self._adding:
                if len(self._bound) >= MOST_VIEWS:
                    del self._bound[next(iter(self._bound))]
                self._bound[key] = bound
        return bound


def check(info: _libattn.TensorInfo, tensor: torch.Tensor, device: torch.device) -> None:
    """Raises BindingError if the tensor is not what the plan reads."""
    if tensor.device != device:
        raise BindingError(f"{info.name} is on {tensor.device}, but q on {device}: move it there")
    if DTYPES.get(tensor.dtype) != info.dtype:
        raise BindingError(
            f"{info.name} has dtype {tensor.dtype}, but the spec declares {info.dtype}:"
            f" pass {info.name}.to({TORCH_DTYPES[info.dtype]})"
        )
    if info.addressed_by:
        check_addressed(info, tensor)
        return
    if tuple(tensor.shape) != tuple(info.dims):
        raise BindingError(
            f"{info.name} has shape {list(tensor.shape)}, but the plan expects {list(info.dims)}",
            [order_note("bhsd")],
        )
    if info.bound_strides:  # a page table
        if info.dims[1] > 1 and tensor.stride(1) != 1 or info.dims[0] > 1 and tensor.stride(0) < info.dims[1]:
            raise BindingError(
                f"{info.name} has strides {list(tensor.stride())}; entries of a row must be adjacent, and rows"
                " must not overlap"
            )
        return
    if not same_strides(info.dims, tensor.stride(), info.strides):
        raise BindingError(
            f"{info.name} has strides {list(tensor.stride())}, but the plan expects {list(info.strides)}",
            [f"pass {info.name}.contiguous()"] if is_row_major(info) else [],
        )


def is_row_major(info: _libattn.TensorInfo) -> bool:
    """Whether the plan reads the tensor as PyTorch makes one, without gaps."""
    return same_strides(info.dims, info.strides, dense_strides(info.dims, range(len(info.dims))))


def is_packed(info: _libattn.TensorInfo) -> bool:
    """Whether the tensor is one of packed sequences, [T, H, D]. Otherwise it is a pool of pages."""
    return info.addressed_by.startswith("cu_seqlens")


def addressed_shape(info: _libattn.TensorInfo, count: int) -> tuple[int, ...]:
    """The shape of packed rows [T, H, D] or [T, H], or of a pool [pages, Hkv, page, D]. `count`: T or pages."""
    if is_packed(info):
        return (count, info.dims[1], *info.dims[3:])
    return (count, *info.dims[1:])


def check_addressed(info: _libattn.TensorInfo, tensor: torch.Tensor) -> None:
    """Raises BindingError unless the tensor has the shape of packed rows, or of a pool with no more pages than
    the plan is for."""
    what = "T" if is_packed(info) else "pages"
    count = tensor.shape[0] if tensor.dim() > 0 else 0
    shape = addressed_shape(info, count)
    if tuple(tensor.shape) != shape:
        listed = ", ".join([what, *map(str, shape[1:])])
        raise BindingError(f"{info.name} has shape {list(tensor.shape)}, but the plan expects [{listed}]")
    if info.bound_strides:
        check_rows(info.name, tensor)
        return
    if not is_packed(info) and count > info.dims[0]:
        raise BindingError(
            f"{info.name} has {count} pages, but the plan is for at most {info.dims[0]}:"
            f" write layout paged(.., pages = {count})"
        )
    if not tensor.is_contiguous():
        raise BindingError(f"{info.name} must be contiguous: pass {info.name}.contiguous()")


def check_rows(name: str, tensor: torch.Tensor) -> None:
    """Raises BindingError unless kernels can read the tensor in place: elements of a row are adjacent, and rows
    begin at multiples of 16 bytes."""
    align = 16 // tensor.element_size()
    steps = [step for size, step in zip(tensor.shape[:-1], tensor.stride()) if size > 1]
    adjacent = tensor.shape[-1] <= 1 or tensor.stride(-1) == 1
    if adjacent and tensor.data_ptr() % 16 == 0 and all(step > 0 and step % align == 0 for step in steps):
        return
    raise BindingError(
        f"{name} has strides {list(tensor.stride())} and begins at a multiple of"
        f" {_power_of_two(tensor.data_ptr())} bytes; kernels read it in place",
        [f"elements of a row must be adjacent, other strides multiples of {align} elements (16 bytes), above 0,"
         " and it must begin at a multiple of 16 bytes"],
    )


def _power_of_two(address: int) -> int:
    return min(address & -address, 16) or 16


def view_of(info: _libattn.TensorInfo, tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dims and strides of a tensor with bound strides, as a binding takes them: of packed rows [T, H, D] those of
    batches, whose own stride means nothing."""
    if not is_packed(info):
        return tuple(tensor.shape), tensor.stride()
    row, head, element = tensor.stride()
    if info.dims[1] == 1:
        head = info.strides[1]
    return info.dims, (info.strides[0], head, row if tensor.shape[0] > 1 else info.strides[2], element)
