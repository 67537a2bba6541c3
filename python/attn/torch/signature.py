"""What a call's tensors ask of a plan: dtype and strides."""

from __future__ import annotations

import torch

from attn.forms import dense_strides, same_strides
from attn.torch.private import is_wrapped

DTYPES = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "bool",
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
    torch.float8_e8m0fnu: "e8m0",
}
TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}
HALF = (torch.bfloat16, torch.float16)
EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)
IN_KERNELS = (*HALF, *EIGHT_BITS)  # of q, k and v
PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))

def order_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The dims in the order of the tensor's memory, the last dim at the end, as FlexAttention orders its outputs by
    those of the query."""
    strides = tensor.stride()
    rest = sorted(range(tensor.dim() - 1), key=strides.__getitem__)
    return (*reversed(rest), tensor.dim() - 1)


def readable_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides by which kernels read q, k or v: its own if rows are of contiguous elements, and a multiple of 16
    bytes apart; else those of a copy without gaps, in the same order."""
    align = 16 // tensor.element_size()
    steps = [step for size, step in zip(tensor.shape[:-1], tensor.stride()) if size > 1]
    rows = tensor.shape[-1] <= 1 or tensor.stride(-1) == 1
    if rows and all(step > 0 and step % align == 0 for step in steps):
        return tensor.stride()
    return copied_strides(tensor)


def copied_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides of a copy without gaps, in the tensor's order; row-major where elements share memory."""
    shape = tuple(tensor.shape)
    shares = any(step == 0 and size > 1 for size, step in zip(shape, tensor.stride()))
    return dense_strides(shape, range(len(shape)) if shares else order_of(tensor))


def with_strides(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The tensor, or a copy that has these strides."""
    if same_strides(tuple(tensor.shape), tensor.stride(), strides):
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def usable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that kernels can read: whose strides are those of `readable_strides`, and which, if it has
    memory, begins at a multiple of 16 bytes."""
    readable = with_strides(tensor, readable_strides(tensor))
    if not has_memory(readable) or readable.data_ptr() % 16 == 0:
        return readable
    strides = copied_strides(readable)
    return torch.empty_strided(readable.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(readable)


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor is an ordinary one, and neither a stand-in of a program that is traced nor one that torch.func
    wraps."""
    return type(tensor) in PLAIN and not tensor.is_meta and not is_wrapped(tensor)


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy with the same strides if it does not begin at a multiple of 16 bytes."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone(memory_format=torch.preserve_format)
