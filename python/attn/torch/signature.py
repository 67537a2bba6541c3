"""What a call's tensors ask of a plan: dtype and layout."""

from __future__ import annotations

from collections.abc import Sequence

import torch

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

# The dims [B, H, S, D] of each layout in the order of its memory.
NAMED_LAYOUTS = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3)}


def dense_strides(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a tensor without gaps whose dims have this order in memory; as PyTorch's also
    where a size is 0."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def same_strides(shape: tuple[int, ...], x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    """Whether the strides address the same elements: those of dims of size 1 do not matter."""
    return all(size <= 1 or a == b for size, a, b in zip(shape, x, y))


def layout_of(tensor: torch.Tensor) -> str:
    """The layout clause's words for the strides of a 4-dimensional tensor, its last dim contiguous."""
    shape = tuple(tensor.shape)
    for name, order in NAMED_LAYOUTS.items():
        if same_strides(shape, tensor.stride(), dense_strides(shape, order)):
            return name
    strides = [step if size > 1 else 1 for size, step in zip(shape, tensor.stride())]
    return f"strides({', '.join(map(str, strides))})"


def usable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy if its strides are not those of rows that kernels can read: of contiguous
    elements, and a multiple of 16 bytes apart."""
    align = 16 // tensor.element_size()
    steps = [step for size, step in zip(tensor.shape[:-1], tensor.stride()) if size > 1]
    rows = tensor.shape[-1] <= 1 or tensor.stride(-1) == 1
    if rows and all(step > 0 and step % align == 0 for step in steps):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy with the same strides if it does not begin at a multiple of 16 bytes."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone(memory_format=torch.preserve_format)
