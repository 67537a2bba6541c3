"""The names of PyTorch that are not public, but for those of Dynamo, which are in dynamo.py.

They are those of the versions in `VERSIONS`, with which the package is tested (python/tests/test_torch_private.py).
With older and newer ones it imports if they are there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

VERSIONS = ((2, 11), (2, 11))  # the first and the last one

_functorch = torch._C._functorch

# How many dispatch modes see operators, such as FakeTensorMode and selective checkpointing's.
count_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack

# Whether a transformation of torch.func is under way.
is_transformed: Callable[[], bool] = torch._C._are_functorch_transforms_active

# Whether torch.func wraps a tensor; whether in one that a gradient is wanted of; what is wrapped.
is_wrapped: Callable[[torch.Tensor], bool] = _functorch.is_functorch_wrapped_tensor
is_tracking: Callable[[torch.Tensor], bool] = _functorch.is_gradtrackingtensor
unwrapped: Callable[[torch.Tensor], torch.Tensor] = _functorch.get_unwrapped

# The address of the current stream of a CUDA device, by its number; None in a PyTorch without CUDA.
current_stream: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)

# Checks on the device that a tensor of one element is true, without waiting.
assert_later: Callable[[torch.Tensor, str], None] = torch._assert_async


def apply_of(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` without what that does for setup_context and torch.func."""
    bases: Any = super(torch.autograd.Function, function)
    found: Callable[..., Any] = bases.apply
    return found


def exchange_capsule() -> Any:
    """The capsule of PyTorch's DLPackExchangeAPI; None before PyTorch 2.10."""
    return getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


def graph_state(device: torch.device) -> str | None:
    """What the CUDA graphs of torch.compile do with a device now, such as "WARMUP"; None if there are none. Raises
    whatever a version does that has them elsewhere."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    manager = None if trees is None else trees.get_manager(device.index or 0, create_if_none_exists=False)
    return None if manager is None else manager.path_state.name


# --- kernels of operators for autograd

KeySet = torch._C.DispatchKeySet

_BELOW = torch._C._after_autograd_keyset
_BACKENDS = _BELOW.remove(torch._C.DispatchKey.ADInplaceOrView)
_PLAIN = (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA)
_plain: dict[int, bool] = {}  # by the numbers of key sets


def is_plain(keys: KeySet) -> bool:
    """Whether an operator that is called with these keys goes from autograd to the kernel of the CPU or of CUDA, and
    nothing in between sees it."""
    number = keys.raw_repr()
    found = _plain.get(number)
    if found is None:
        found = _plain[number] = (keys & _BACKENDS).highestPriorityTypeId() in _PLAIN
    return found


def below_autograd() -> AbstractContextManager[None]:
    """In this context, operators are called without autograd."""
    return torch._C._AutoDispatchBelowAutograd()


def redispatched(operator: Any, keys: KeySet, *args: Any) -> list[torch.Tensor]:
    """An operator's result, from the kernels below autograd on."""
    with below_autograd():
        found: list[torch.Tensor] = operator.redispatch(keys & _BELOW, *args)
        return found
