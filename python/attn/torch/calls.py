"""The arguments of a call, sorted, and checked against the spec."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from attn._attnc import outside
from attn.addressed import check_shapes
from attn.arguments import INPUTS, check_names, first_columns, named, number, sizes_of, width_of_values
from attn.attention import Attention
from attn.errors import BindingError, SpecWarning, UnsupportedError
from attn.forms import Form, layout_of
from attn.reference import as_array
from attn.torch.facts import Facts, facts_of
from attn.torch.private import count_modes
from attn.torch.signature import DTYPES, EIGHT_BITS, IN_KERNELS, PLAIN, TORCH_DTYPES, readable_strides, usable
from attn.torch.variant import output_layout


class Call(NamedTuple):
    """One call, after its arguments were sorted: `tensors` by name, in a fixed order."""

    attention: Attention
    tensors: dict[str, torch.Tensor]
    params: dict[str, float]
    form: Form | None = None  # None: the spec has layouts whose rows other tensors locate


def is_intercepted(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether something wants to see operators: a subclass of Tensor, such as FakeTensor, or a
    dispatch mode, such as selective checkpointing's. So do tensors without memory."""
    return count_modes() > 0 or any(type(tensor) not in PLAIN or tensor.is_meta for tensor in tensors)


def sorted_call(attention: Attention, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """Raises BindingError for missing, unknown and unusable arguments."""
    facts = facts_of(attention)
    if facts.quantized is not None and facts.quantized.by == "mxfp8":
        raise UnsupportedError(
            f"`{facts.title}` has scales of blocks (`quantize mxfp8`), which attn.torch does not take yet",
            ["`quantize per_tensor` works; `attnc run` and attn.hpp take scales of blocks"],
        )
    if facts.said.token_scales and facts.said.located:
        raise UnsupportedError(
            f"`{facts.title}` has scales of each key beside pages or packed sequences, which attn.torch does not take"
            " yet",
            ["`kv(head)` works, and so do scales of each key with dense layouts; attn.hpp takes both"],
        )
    if facts.said.rows:
        raise UnsupportedError(
            f"`{facts.title}` has rows of keys in several types (`rows = {facts.said.rows}`), which attn.torch does not"
            " take yet",
            ["attn.hpp takes them, and a cache of bf16 works: leave out `rows`"],
        )
    given = named(attention.captured, args, kwargs)
    width = width_of_values(facts.title, facts.said.sizes, given) if facts.said.held else None
    inputs = INPUTS if width is None else INPUTS[:2]
    wanted = (*inputs, *facts.declared, *facts.params)
    check_names(facts.title, given, wanted, (*facts.optional, *facts.amax_of_backward))
    tensors = {name: _cast(given[name], name) for name in inputs}
    q = tensors["q"]
    if width is not None:
        tensors["v"] = first_columns(tensors["k"], width)  # no input of plans: what sizes are read from
    for name in given:
        if name not in INPUTS and name not in facts.params:
            dtype = facts.said.inputs[name].dtype if name in facts.said.inputs else "f32"
            tensor = _as_tensor(name, given[name], dtype, q.device)
            check_kind(name, tensor)
            tensors[name] = beside(tensor, q.device) if facts.traced else tensor
    if facts.scales:
        _check_scales(facts, tensors)
        _add_scales(facts, tensors)
    if facts.random:
        add_random(tensors, q.device)
    for name, tensor in tensors.items():
        if tensor.device != q.device:
            raise BindingError(f"{name} is on {tensor.device}, but q on {q.device}: move it there")
    _warn_of_lost_gradients(facts, tensors)
    _check_untrained(facts, tensors)
    params = {name: float(number(name, given[name])) for name in facts.params}
    return Call(attention, tensors, params)


def _warn_of_lost_gradients(facts: Facts, tensors: Mapping[str, torch.Tensor]) -> None:
    if not torch.is_grad_enabled() or torch.compiler.is_compiling() or facts.traced:
        return
    for name in facts.declared:
        each = facts.said.inputs[name]
        if each.learned or not each.differentiable or not tensors[name].requires_grad:
            continue
        warnings.warn(
            f"{name} requires a gradient and gets none: the spec declares it as `tensor`; write"
            f" `learn {name}: ..`, or give {name}.detach()",
            SpecWarning,
            stacklevel=outside(),
        )


def formed(each: Call) -> Call:
    """The call with its form, and with copies of tensors that kernels cannot read by their strides.

    Raises BindingError if q, k and v do not fit together.
    """
    facts = facts_of(each.attention)
    _check_dtypes(facts, each.tensors)
    if facts.addressing is not None:
        check_shapes(facts.addressing, each.tensors)
        return each._replace(tensors={name: _usable(facts, name, x) for name, x in each.tensors.items()})
    tensors = dict(each.tensors)
    return each._replace(tensors=tensors, form=_form(facts, tensors))


def check_kind(name: str, tensor: torch.Tensor) -> None:
    """Raises UnsupportedError for tensors that are several in one."""
    if type(tensor) in PLAIN and not tensor.is_nested:
        return
    if tensor.is_nested:
        raise UnsupportedError(
            f"{name} is a nested tensor, and this attention takes dense ones",
            ["flex_attention takes jagged ones, but not within torch.compile; packed sequences are dense: `layout thd`,"
             " for x.values() and x.offsets()"],
        )
    if type(tensor).__name__ == "DTensor":
        raise UnsupportedError(
            f"{name} is a DTensor: which part of it b and h count is not known",
            ["flex_attention takes those divided by batches and heads, but not within torch.compile; else, where nothing"
             " reads b and h, give x.to_local() of q, k and v",
             "sharded by rows: attn.torch.distribute divides the work by what the mask shows"],
        )


def _usable(facts: Facts, name: str, tensor: torch.Tensor, key: torch.Tensor | None = None) -> torch.Tensor:
    """A tensor other than q, k and v as kernels read it, row-major: a copy if it is not, unless strides are bound.
    Scales of each key are in the order of `key`."""
    if not tensor.is_cuda or name in (*INPUTS, *facts.said.bound):
        return tensor
    if key is not None and name in ("k_scale", "v_scale") and tensor.dim() == 3 and key.stride(1) < key.stride(2):
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    return tensor.contiguous()


def _cast(tensor: Any, name: str) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise BindingError(f"{name} is a {type(tensor).__name__}, not a torch.Tensor")
    check_kind(name, tensor)
    device = tensor.device.type
    if device != "meta" and torch.is_autocast_enabled(device) and tensor.dtype == torch.float32:
        return tensor.to(torch.get_autocast_dtype(device))
    return tensor


def beside(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A number that a mod captured, where q is, as PyTorch takes numbers of the CPU beside tensors of a GPU; other
    tensors as they are."""
    is_number = tensor.numel() == 1 and tensor.device.type == "cpu" and device.type != "cpu"
    return tensor.to(device) if is_number else tensor


def _as_tensor(name: str, value: Any, dtype: str, device: torch.device) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (bool, int, float)):
        raise BindingError(f"{name} is a number, but the spec declares a tensor of {dtype}")
    array = as_array(name, value) if type(value).__module__ == "numpy" else value
    return torch.as_tensor(array, dtype=TORCH_DTYPES[dtype], device=device)


def _check_scales(facts: Facts, tensors: Mapping[str, torch.Tensor]) -> None:
    for name in (*facts.scales, *facts.amax_of_backward):
        tensor = tensors.get(name)
        if tensor is not None and (tensor.dtype != torch.float32 or tuple(tensor.shape) != (1,)):
            raise BindingError(
                f"{name} is {tensor.dtype} of shape {list(tensor.shape)}; it must be torch.float32 of shape"
                " [1]"
            )


def _add_scales(facts: Facts, tensors: dict[str, torch.Tensor]) -> None:
    """Adds the scales that were not given, which are the spec's."""
    device = tensors["q"].device
    missing = [name for name in facts.scales if name not in tensors]
    if torch.compiler.is_compiling() or is_intercepted(tensors.values()):
        made = {name: _full(facts.scales[name], device) for name in missing}
    else:
        made = facts.defaults.setdefault(device, {})
        for name in missing:
            if name not in made:
                made[name] = _full(facts.scales[name], device)
    tensors.update({name: made[name] for name in missing})


def _full(scale: float | None, device: torch.device) -> torch.Tensor:
    assert scale is not None  # of those that must be given, one is missing
    return torch.full((1,), scale, device=device)


# Numbers of PyTorch's generator, so that torch.manual_seed repeats them and CUDA graphs draw new ones.
def add_random(tensors: dict[str, torch.Tensor], device: torch.device) -> None:
    """Adds what random dropout draws by, where it is not given: a random `seed` in 0 .. 2^53 - 1, from
    PyTorch's generator, and `offset` 0. Both are int64 tensors of one element on the device."""
    if "seed" not in tensors:
        tensors["seed"] = torch.randint(1 << 53, (1,), dtype=torch.int64, device=device)
    if "offset" not in tensors:
        tensors["offset"] = torch.zeros(1, dtype=torch.int64, device=device)


def _check_untrained(facts: Facts, tensors: Mapping[str, torch.Tensor]) -> None:
    if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in tensors.values()):
        return
    if facts.cache:
        raise UnsupportedError(
            f"`{facts.title}` has keys and values of 8 bits beside queries of 16, which have no gradients",
            ["call it under torch.no_grad(), or use `dtype bf16;` without `quantize`"],
        )
    if facts.said.held or facts.said.gathers:
        raise UnsupportedError(
            f"`{facts.title}` has no gradients: " + ("v is a part of k" if facts.said.held else "keys are gathered"),
            ["call it under torch.no_grad(); " + ("leave out `values` to train" if facts.said.held else
                                                  "a `mask` says which keys rows see, and has gradients")],
        )


def _check_cache(facts: Facts, dtypes: Mapping[str, torch.dtype]) -> None:
    for name, wanted in facts.cache.items():
        if dtypes[name] != TORCH_DTYPES[wanted]:
            raise BindingError(f"{name} is {dtypes[name]}, but `{facts.title}` has {wanted}: {TORCH_DTYPES[wanted]}")
    if dtypes["q"] in EIGHT_BITS:
        raise BindingError(f"q is {dtypes['q']}; beside keys and values of 8 bits it must be torch.bfloat16 or"
                           " torch.float16")


def _check_dtypes(facts: Facts, tensors: Mapping[str, torch.Tensor]) -> None:
    dtypes = {name: tensors[name].dtype for name in INPUTS}
    if facts.cache:
        _check_cache(facts, dtypes)
    elif len(set(dtypes.values())) > 1:
        listed = ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items())
        raise BindingError(f"q, k and v must have the same dtype, not {listed}")
    device, dtype = tensors["q"].device, dtypes["q"]
    _check_8_bits(facts, tensors, dtype)
    if device.type not in ("cpu", "cuda", "meta"):
        raise BindingError(f"q is on {device}: attentions are computed on CUDA devices, and on the CPU")
    if device.type != "cuda" and dtype not in (*IN_KERNELS, torch.float32, torch.float64):
        raise BindingError(f"q, k and v are {dtype}; they must be of 16, 32 or 64 bit floats")
    if device.type == "cuda" and dtype not in IN_KERNELS:
        raise BindingError(
            f"q, k and v are {dtype}; kernels read torch.bfloat16 and torch.float16: cast them, or use"
            " torch.autocast"
        )


def _check_8_bits(facts: Facts, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype) -> None:
    if facts.quantized is None:
        if dtype in EIGHT_BITS:
            raise BindingError(
                f"q, k and v are {dtype}, but `{facts.title}` has no scales for 8 bits",
                ["write `dtype e4m3;` and `quantize per_tensor;` in the spec"],
            )
        return
    if dtype != TORCH_DTYPES[facts.dtype]:
        raise BindingError(f"q, k and v are {dtype}, but `{facts.title}` has {facts.dtype}")


def _form(facts: Facts, tensors: dict[str, torch.Tensor]) -> Form:
    sizes = sizes_of(*(tensors[name] for name in INPUTS))
    output = output_layout(tensors["q"], sizes)
    if tensors["q"].is_cuda:
        tensors.update({name: usable(tensors[name]) for name in INPUTS})
        tensors.update({name: _usable(facts, name, x, tensors["k"]) for name, x in tensors.items()})
    dtype = tensors["q"].dtype
    q, k, v = (layout_of(tensors[name].shape, readable_strides(tensors[name])) for name in INPUTS)
    deterministic = torch.are_deterministic_algorithms_enabled()
    of_q = DTYPES[dtype] if dtype in IN_KERNELS else facts.dtype
    return Form(sizes, of_q, (q, k, v), output, deterministic, facts.said.held, facts.cache_types)
