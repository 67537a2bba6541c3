"""Kernels of specs and mods over a paged cache: one for each sizes, compiled once."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from attn import _libattn
from attn.attention import compile as compile_attention
from attn.errors import ArgumentError, BindingError, UnsupportedError
from attn.specs import Description, Spec
from attn.torch import varlen_calls, varlen_spec
from attn.torch.signature import DTYPES
from attn.torch.statistics import is_capturing as is_capturing
from attn.torch.varlen_arguments import Capacity, Tensors, check_tensors
from attn.trace import trace
from attn.types import Mod

# What calls of any spec have; other tensors of a plan are the spec's own.
OF_CALLS = ("q", "k", "v", "o", "lse", "cu_seqlens_q", "lengths_kv", "page_table")


class Sizes(NamedTuple):
    """What decides a plan of a spec; `sequences`, `rows` of each and `keys` of each are the most that it serves."""

    sequences: int
    rows: int
    keys: int
    heads: int
    heads_kv: int
    depth: int
    depth_v: int
    dtype: str
    page: int
    lse: bool

    @property
    def columns(self) -> int:
        """Pages of a sequence."""
        return -(-self.keys // self.page)

    @property
    def dims(self) -> dict[str, int]:
        """Those of a spec."""
        return {"B": self.sequences, "Hq": self.heads, "Hkv": self.heads_kv, "Sq": self.rows, "Skv": self.keys,
                "Dqk": self.depth, "Dv": self.depth_v}


def sizes_of(tensors: Tensors, capacity: Capacity) -> Sizes:
    """Those of checked tensors."""
    page, heads_kv, depth_v = tensors.v_cache.shape[1:]
    _, heads, depth = tensors.q.shape
    return Sizes(*capacity, heads, heads_kv, depth, depth_v, DTYPES[tensors.q.dtype], page, tensors.lse_out is not None)


class Asked:
    """A spec, or mods, with parameters: what calls compute, whatever their sizes.

    Raises ArgumentError, SpecError."""

    def __init__(self, spec: Any, mods: tuple[Mod | None, Mod | None], scale: float | None,
                 parameters: Mapping[str, Any]):
        if (spec is None) == (mods == (None, None)):
            raise ArgumentError("give a spec, or score_mod, mask_mod or both, and not both of these")
        if mods != (None, None) and parameters:
            raise ArgumentError(f"mods have no parameter {next(iter(parameters))}: they capture what they read")
        if spec is not None and scale is not None:
            raise ArgumentError("a spec says its own scale", ["write `scale` in it, with a parameter if it varies"])
        self._spec = None if spec is None else Spec.of(spec).standing_alone()
        self._mods, self._scale, self.parameters = mods, scale, dict(parameters)
        # Types of keys and values that are not q's.
        self.cache: Mapping[str, str] = {} if self._spec is None else _types_of_cache(self._spec)

    def source(self, sizes: Sizes) -> tuple[Spec, Mapping[str, Any]]:
        """The spec of packed rows over pages, and the tensors that mods captured."""
        if self._spec is not None:
            return paged(self._spec, sizes), {}
        score_mod, mask_mod = self._mods
        traced = trace(score_mod, mask_mod, **sizes.dims, dtype=sizes.dtype, scale=self._scale, facts=False,
                       learn=False)
        text = traced.text
        for name, tensor in traced.tensors.items():
            text = _of_sequences(text, name, tensor, sizes.sequences)
        return paged(Spec(text, traced=True, origins=traced.origins), sizes), traced.tensors


def _types_of_cache(source: Spec) -> Mapping[str, str]:
    clauses = (clause for clause in source.tree["clauses"] if "dtype" in clause and "with" in clause)
    found = next(clauses, None)
    return {} if found is None else dict(found["with"])


def _of_sequences(text: str, name: str, tensor: Any, sequences: int) -> str:
    """The text with a tensor that mods read at `b` declared for as many sequences as the plan has, if it has fewer."""
    if len(tensor) >= sequences or not re.search(rf"\b{name}\[b[],]", text):
        return text
    return re.sub(rf"(\b(?:tensor|learn)\s+{name}: \w+\[){len(tensor)}\b", r"\1B", text)


def paged(source: Spec, sizes: Sizes) -> Spec:
    """The spec with the layouts, lengths and outputs of calls. Its rows are the last of each sequence."""
    own = [word for clause in source.tree["clauses"] for word in ("values", "gather") if word in clause]
    if own:
        raise UnsupportedError(f"VarlenAttention takes no spec with the clause `{own[0]}`",
                               ["attn.compile(spec) does, with the layout paged"])
    pages = f"paged(page = {sizes.page}, strides = bound)"
    rows = "thd(strides = bound)"
    edited = source.edited("--dtype", sizes.dtype, "--layout", f"q: {rows}, o: {rows}, k: {pages}, v: {pages}",
                           "--lengths", "q,kv", "--outputs", "o,lse" if sizes.lse else "o")
    tree = edited.tree
    tree["clauses"] = [clause for clause in tree["clauses"] if "align" not in clause] + [{"align": "bottom_right"}]
    return Spec(json.dumps(tree), source.filename, source.traced)


class Kernels:
    """A loaded plan, and what its calls give beside q, k, v and lengths: `tensors` and `params`, by name. `captured`
    are the tensors of mods."""

    def __init__(self, asked: Asked, sizes: Sizes, device: int):
        if is_capturing():
            raise BindingError("this attention has no plan yet, which cannot be compiled while a CUDA graph is"
                               " captured", ["call it once before the capture, or make a schedule, which compiles it"])
        source, self.captured = asked.source(sizes)
        bindings = {**sizes.dims, **asked.parameters}
        said = source.described(bindings)
        _check(said, sizes)
        contents = compile_attention(source, engine="native", **bindings).build(
            direction="fwd", target=varlen_spec._TARGET)
        self.sizes = sizes
        self.executable = _libattn.Executable(_libattn.runtime(device), _libattn.PlanFile(contents), 0)
        self.tensors = {info.name: info for info in self.executable.tensors if info.name not in OF_CALLS}
        self.params = tuple(info.name for info in self.executable.params)
        self.takes_schedule = _takes_schedule(self.executable)
        # Those with an element or a row for each sequence.
        self._of_sequences = {name for name in self.tensors if said.inputs[name].dims[:1] == ("B",)}
        self._padded: dict[str, torch.Tensor] = {}

    def split(self, given: Mapping[str, Any], count: int) -> tuple[dict[str, torch.Tensor], tuple[float, ...]]:
        """The spec's own tensors, as kernels read them, and the params in the plan's order, of a batch of `count`
        sequences. Raises BindingError."""
        named_here = {**self.captured, **given}
        for name in given:
            if name not in self.tensors and name not in self.params:
                known = [*self.tensors, *self.params]
                raise BindingError(f"the attention has no input `{name}`",
                                   [f"it has {', '.join(known)}" if known else "it has none beside q, k and v"])
        for name in (*self.tensors, *self.params):
            if name not in named_here:
                raise BindingError(f"`{name}` is missing: give it by name", [f"it is {self._words(name)}"])
        tensors = {name: self._ready(name, named_here[name], count) for name in self.tensors}
        return tensors, tuple(float(named_here[name]) for name in self.params)

    def _words(self, name: str) -> str:
        info = self.tensors.get(name)
        return "a number" if info is None else f"{info.dtype} {list(info.dims)}"

    def _ready(self, name: str, tensor: Any, count: int) -> torch.Tensor:
        info = self.tensors[name]
        if not isinstance(tensor, torch.Tensor):
            raise BindingError(f"{name} is a {type(tensor).__name__}, not a torch.Tensor")
        fewer = name in self._of_sequences and len(tensor.shape) > 0 and len(tensor) < info.dims[0]
        dims = (len(tensor), *info.dims[1:]) if fewer else info.dims
        if DTYPES.get(tensor.dtype) != info.dtype or tuple(tensor.shape) != dims:
            raise BindingError(f"{name} is {DTYPES.get(tensor.dtype)} {list(tensor.shape)}; it must be"
                               f" {self._words(name)}")
        if fewer and len(tensor) < count:
            raise BindingError(f"{name} is {list(tensor.shape)}, of {len(tensor)} sequences, but the batch has {count}",
                               ["it has an element or a row for each sequence"])
        if not tensor.is_contiguous() or tensor.data_ptr() % info.alignment != 0:
            raise BindingError(f"{name} has strides {list(tensor.stride())}; it must be contiguous, and begin at a"
                               f" multiple of {info.alignment} bytes")
        return self._padding(name, tensor) if fewer else tensor

    def _padding(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor with elements for as many sequences as the plan has, in memory that CUDA graphs read."""
        if name not in self._padded:
            require_no_capture(f"{name} has no memory yet for as many sequences as the plan has")
            dims = self.tensors[name].dims
            memory = varlen_calls._memory(math.prod(dims) * tensor.element_size(), tensor.device)
            self._padded[name] = memory.view(tensor.dtype).view(dims).zero_()
        self._padded[name][:len(tensor)].copy_(tensor)
        return self._padded[name]


def require_no_capture(missing: str) -> None:
    """Raises BindingError while a CUDA graph is captured: it would fill memory that later calls use when it is
    launched, and not before."""
    if is_capturing():
        raise BindingError(f"{missing}, and none is made while a CUDA graph is captured",
                           ["call it once before the capture, with tensors of the same sizes and strides"])


def _check(said: Description, sizes: Sizes) -> None:
    """Raises UnsupportedError for a spec that does not mean the same in a plan for larger sizes, or has more than o."""
    if said.quantized is not None:
        raise UnsupportedError("caches of 8 bits are not read by queries of 8 bits over pages yet",
                               ["queries of 16 bits read them: `dtype bf16, k: e4m3, v: e4m3;` with"
                                " `quantize kv(head);`"])
    if said.facts["random"]:
        raise UnsupportedError("dropout is for training, which has no cache")
    needed = {"B": sizes.sequences, "Sq": sizes.rows, "Skv": sizes.keys}
    reads = [dim for dim, size in needed.items() if size > 1 and dim not in said.facts["padded"]]
    if reads:
        raise UnsupportedError(
            f"`{said.name}` reads the size {' and '.join(reads)}, which is the most that a plan serves, and not a"
            " sequence's own",
            ["a sequence has lengths_q[b] rows and lengths_kv[b] keys; the keys before its rows are q_idx - q_raw"])


def _takes_schedule(executable: _libattn.Executable) -> bool:
    try:
        # One part: no memory for results.
        _libattn.Schedule(executable, max_parts=1)
    except UnsupportedError:
        return False
    return True


def placed_tensors(tensors: Tensors, extras: Mapping[str, torch.Tensor], starts: torch.Tensor,
                   lengths: torch.Tensor) -> dict[str, torch.Tensor]:
    """All tensors of a call by the plan's names."""
    found = {"q": tensors.q, "k": tensors.k_cache, "v": tensors.v_cache, "o": tensors.out, "lse": tensors.lse_out,
             "cu_seqlens_q": starts, "lengths_kv": lengths, "page_table": tensors.block_table, **extras}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def check_inputs(given: Mapping[str, Any], device: torch.device) -> None:
    """Raises BindingError unless the tensors among them are on the device."""
    check_tensors({name: value for name, value in given.items() if isinstance(value, torch.Tensor)}, device)


def addresses_of(executable: _libattn.Executable, tensors: Mapping[str, torch.Tensor]) -> Sequence[int]:
    """In the plan's order."""
    return [tensors[info.name].data_ptr() for info in executable.tensors]
