"""One attention on several GPUs, over a process group: context parallelism for any mask.

    sharded = attn.torch.distribute("document_causal", B=1, Sq=131072)
    q, k, v = (sharded.shard(x) for x in (q, k, v))   # or made of the tokens `sharded.rows` at once
    o, lse = sharded(q, k, v, doc=doc)                # this rank's rows, with gradients
"""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from attn import _attnc
from attn import plan as plans
from attn.arguments import INPUTS, Sizes
from attn.attention import Attention
from attn.errors import ArgumentError, BindingError, UnsupportedError
from attn.outputs import is_amax
from attn.reference import as_array
from attn.specs import Spec
from attn.torch.distributed_operators import apply_operator, register
from attn.torch.autograd import Gradient, Params, Saved, recorded
from attn.torch.calls import Call, is_intercepted, sorted_call
from attn.torch.facts import facts_of
from attn.torch.group import Group
from attn.torch.statistics import is_capturing
from attn.torch.ranked import Kernels, Reference, cotangents, numbers, whole_of
from attn.torch.signature import DTYPES, HALF, TORCH_DTYPES
from attn.tracing.captures import type_name
from attn.tracing.recipes import identities
from attn.types import Outputs

_known: weakref.WeakValueDictionary[Any, Distributed] = weakref.WeakValueDictionary()


class Distributed:
    """One rank of an attention that the processes of a group compute together; see `distribute`.

    sizes     of the whole attention: B, Hq, Hkv, Sq, Skv, Dqk, Dv
    rank      of this process in the group, of `ranks`
    rows      the numbers of the rows (of q, o, lse) that this rank has, ascending, on the device
    keys      those of the keys (of k and v): the same tokens, if Sq = Skv
    sharding  how the attention is divided, in words
    training  whether calls may require gradients
    """

    def __init__(
        self,
        group: Group,
        attention: Attention,
        how: Kernels | Reference,
        contents: bytes | None,
        values: tuple[str, ...],
    ):
        self.attention = attention
        self.sizes = Sizes(**attention.described.sizes)
        self.rank, self.ranks, self.device = group.rank, group.size, group.device
        self.sharding, self.family, self.device_bytes = how.sharding, how.family, how.device_bytes
        self.training = "bwd" in how.directions
        self._group = group
        self._how: Kernels | Reference | None = how
        self._steps = how.steps
        self._contents = contents
        self._values = values
        self.key = register(self)
        self._homes = how.homes(group.size)
        self.rows, self.keys = (each.to(group.device) for each in self._homes[group.rank])

    def __repr__(self) -> str:
        sizes = ", ".join(f"{dim}={size}" for dim, size in self.sizes._asdict().items())
        return f"<attn.torch.Distributed {self.attention.name}({sizes}): rank {self.rank} of {self.ranks}>"

    def __call__(self, *args: object, **kwargs: object) -> Outputs:
        """Computes this rank's rows. Collective: all ranks make the same calls, and backwards, in the same
        order.

        q [B, Hq, rows, Dqk] of the rows `self.rows`, k [B, Hkv, keys, Dqk] and v [B, Hkv, keys, Dv] of the
        keys `self.keys`, of any strides; captured tensors and lengths whole, the same on every rank, and
        params, by name. Returns the spec's outputs of these rows, with gradients of q, k, v and learned
        tensors; those of learned tensors are sums over all ranks. Enqueues on the current stream and on one
        of its own beside it. In `torch.compile` it is an operator, without a graph break.

        Raises BindingError for what does not fit, and NcclError if NCCL failed, a rank does not answer, or the
        call failed on another rank alone: then outputs of calls before are not valid, and the process group
        is of no more use. After an error of all ranks they can make other calls."""
        each = self._checked(args, kwargs)
        how = self._open()
        tensors = tuple(each.tensors.values())
        facts = facts_of(self.attention)
        training = _needs_gradients(each)
        if torch.compiler.is_compiling() or is_intercepted(tensors):
            outputs = apply_operator(self, list(each.tensors), list(tensors), list(each.params.values()))
        elif training:
            outputs = recorded(_Way(self, each), tuple(each.params.values()), *tensors)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        else:
            found = how.forward(each.tensors, each.params)
            outputs = tuple(found[name] for name in facts.outputs)
        outputs = outputs[: len(facts.outputs)]
        return outputs[0] if len(outputs) == 1 else outputs

    def shard(self, tensor: torch.Tensor, dim: int = 2, of: str | None = None) -> torch.Tensor:
        """This rank's part of a whole tensor, along the dimension of its rows or keys: `of` is "rows" or
        "keys", by default what the size says. Differentiable. Not collective."""
        which = self._which(tensor, dim, of, lambda which: (self.sizes.Sq, self.sizes.Skv)[which])
        return tensor.index_select(dim, (self.rows, self.keys)[which].to(tensor.device))

    def unshard(self, tensor: torch.Tensor, dim: int = 2, of: str | None = None) -> torch.Tensor:
        """The whole of a tensor of which every rank has the rows or keys that are its own. Collective. Without
        a gradient: compute losses of a rank's own rows."""
        self._open()
        # What all ranks must decide alike cannot follow from this rank's sizes.
        if of is None and not all(torch.equal(*home) for home in self._homes):
            raise ArgumentError("rows and keys are not divided alike: give of=\"rows\" or \"keys\"")
        which = self._which(tensor, dim, of, lambda which: len((self.rows, self.keys)[which]))
        homes = [home[which] for home in self._homes]
        return whole_of(self._group, tensor.detach(), homes, dim)

    def synchronize(self) -> None:
        """Waits for the current stream. Raises NcclError if an exchange failed: then outputs are not valid."""
        self._open().check()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file of all ranks, which `attn.torch.load_distributed` reads."""
        if self._contents is None:
            raise ArgumentError(f"`{self.attention.name}` is computed by the reference, without plans")
        plans.write(path, self._contents)

    def close(self) -> None:
        """Frees device memory, after waiting for what uses it: not while another thread calls this. CUDA graphs
        with its calls must not be replayed any more. Call it before
        `torch.distributed.destroy_process_group`; when Python ends, it is called."""
        how, self._how = self._how, None
        if how is not None:
            how.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called: every call then raises."""
        return self._how is None

    def _open(self) -> Kernels | Reference:
        if self._how is None:
            raise ArgumentError(f"{self!r} was closed")
        return self._how

    def _which(self, tensor: torch.Tensor, dim: int, of: str | None, size: Any) -> int:
        """0 for rows, 1 for keys."""
        names = ("rows", "keys")
        if of is not None and of not in names:
            raise ArgumentError(f"`of` is {of!r}; it must be \"rows\" or \"keys\"")
        found = tensor.shape[dim]
        fitting = [which for which in (0, 1) if found == size(which) and of in (None, names[which])]
        if not fitting:
            sizes = {name: size(which) for which, name in enumerate(names) if of in (None, name)}
            wanted = " or ".join(f"{size} ({name})" for name, size in sizes.items())
            raise ArgumentError(f"dimension {dim} has size {found}; it must be {wanted}")
        if len(fitting) == 2 and not torch.equal(*self._homes[self.rank]):
            raise ArgumentError("this rank's rows and keys are not the same: give of=\"rows\" or \"keys\"")
        return fitting[0]

    def _checked(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        if torch.compiler.is_compiling():
            return self._sorted(args, kwargs)
        with self.told():
            self._open()
            return self._sorted(args, kwargs)

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Tells the other ranks what fails within, before a call, or backward, does anything else."""
        try:
            yield
        except Exception as error:
            if self.device.type == "cpu" or not is_capturing():
                self._steps.refuse(error)
            raise

    def _sorted(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        for name in kwargs:
            if name in self._values:
                raise BindingError(
                    f"the attention was divided for the values of {name} that distribute got",
                    ["calls cannot change them: leave it out, or distribute without values"],
                )
        each = sorted_call(self.attention, args, kwargs)
        for name, tensor in each.tensors.items():
            if hasattr(tensor, "to_local"):
                raise BindingError(f"{name} is a DTensor: give this rank's part, {name}.to_local()")
        self._check(each)
        if _needs_gradients(each) and not self.training:
            raise UnsupportedError(
                f"`{facts_of(self.attention).title}` was distributed for forwards alone, but a tensor requires"
                " a gradient",
                ["distribute(.., training=True), or call it under torch.no_grad()"],
            )
        return each

    def _check(self, each: Call) -> None:
        sizes, q = self.sizes, each.tensors["q"]
        counts = {"q": len(self.rows), "k": len(self.keys), "v": len(self.keys)}
        for name, count in counts.items():
            tensor = each.tensors[name]
            heads = sizes.Hq if name == "q" else sizes.Hkv
            shape = (sizes.B, heads, count, sizes.Dv if name == "v" else sizes.Dqk)
            if tuple(tensor.shape) != shape:
                what = "rows" if name == "q" else "keys"
                raise BindingError(
                    f"{name} has shape {list(tensor.shape)}; on rank {self.rank} it must be {list(shape)}:"
                    f" its {count} of {sizes.Sq if name == 'q' else sizes.Skv} {what}",
                    [
                        f"sharded.shard({name}) picks them of the whole, sharded.{what} has their numbers",
                        "tensors are [B, H, S, D], whatever the spec's `layout` says of memory",
                    ],
                )
        if q.device != self.device:
            raise BindingError(f"q is on {q.device}, but the attention was distributed on {self.device}")
        dtype = TORCH_DTYPES[facts_of(self.attention).dtype]
        for name in INPUTS:
            found = each.tensors[name].dtype
            if found != dtype and (q.is_cuda or found in HALF):
                raise BindingError(
                    f"{name} is {found}, but the attention was distributed for {dtype}",
                    [f"cast it, or distribute(.., dtype=\"{DTYPES.get(found, 'f16')}\")"],
                )


def _needs_gradients(each: Call) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in each.tensors.values())


class _Way:
    """Calls of a distributed attention like `each`, of tensors and params in its order."""

    def __init__(self, sharded: Distributed, each: Call):
        self._sharded, self._facts = sharded, facts_of(sharded.attention)
        self._names, self._params = tuple(each.tensors), tuple(each.params)
        self.told = sharded.told
        self.outputs = self._facts.all_outputs
        self.amax = tuple(place for place, name in enumerate(self.outputs) if is_amax(name))

    def forward(self, tensors: Sequence[torch.Tensor], params: Params) -> Sequence[torch.Tensor]:
        found = self._sharded._open().forward(dict(zip(self._names, tensors)), dict(zip(self._params, params)))
        return [found[name] for name in self.outputs]

    def gradients(self, saved: Saved, d_o: Gradient, reached: list[str], d_reached: list[torch.Tensor],
                  params: Params) -> Sequence[Gradient]:
        """The gradient of each tensor. All ranks compute it, also one whose loss depends on nothing."""
        tensors = dict(zip((*self._names, *self.outputs), saved))
        with self.told():
            how = self._sharded._open()
            given = cotangents(self._facts, tensors, d_o, reached, d_reached)
        with torch.no_grad():
            found = how.backward({**tensors, **given}, dict(zip(self._params, params)))
        return [found.get(name) for name in self._names]


def distribute(
    attention: object,
    group: dist.ProcessGroup | DeviceMesh | None = None,
    *,
    training: bool = True,
    dtype: str | torch.dtype | None = None,
    values: Mapping[str, object] | None = None,
    device: torch.device | str | int | None = None,
    timeout_seconds: float | datetime.timedelta | None = None,
    **sizes: int,
) -> Distributed:
    """Divides an attention among the processes of a group, each with a GPU of its own. Collective: all call it
    with the same arguments, and all get the same error if one of them fails.

    `attention`: what `attn.compile` returned, or a spec that it takes. `group`: a ProcessGroup with NCCL, a
    DeviceMesh of one dimension, or None for the default group. `training`: whether calls may require
    gradients. `dtype`: "bf16" or "f16", or torch's, instead of the spec's. `values`: captured tensors by name for whose
    values the attention is divided, so that no rank gets keys that they hide; calls then cannot change them
    (rank 0's count). `timeout_seconds`: how long a rank may wait for another one, by default as long as the
    group's own collectives (`init_process_group(timeout=..)`; 10 minutes with NCCL); but one whose process
    has ended, or stands still, is given up within 30 s. Sizes that the attention does not have are given by
    name: Sq=131072.

    Rank 0 compiles the plans of all ranks, or finds them in the folder of cached plans. The same arguments
    (and the same tensors that a traced function captured) give the same object again while there is one, but
    not with `values`. On the CPU (a gloo group), every rank gathers everything and the reference computes: for
    tests.

    Raises what `attn.compile` does, NcclError if NCCL fails or a rank does not come, CudaError if memory is
    exhausted, on this rank or another."""
    where = Group(group, device, timeout_seconds)
    made: list[Attention] = []

    def request() -> dict[str, Any]:
        made.append(_divided(attention, sizes, type_name(dtype) if dtype else None, where))
        one = made[0]
        return {
            "the spec": one.source.text,
            "sizes": {**one.bindings},
            "training": training,
            "engine": one.engine,
            "names of values": sorted(values or ()),
            "the device": where.device.type,
        }

    where.agree("the attention to distribute", request)
    one = made[0]
    captured = identities(one.captured)  # what was found keeps its captured tensors
    key = (where.group, where.device, where.seconds, one.source.text, tuple(one.bindings.items()), captured,
           training, one.engine, one.target)
    known = None if values else _known.get(key)
    # A rank may have closed it, or failed to make it.
    if not where.holds_on_all(known is not None and not known.closed) or known is None:
        known = _distributed(where, one, training, values or {})
        if not values:
            _known[key] = known
    return known


def _divided(attention: Any, sizes: Mapping[str, int], dtype: str | None, where: Group) -> Attention:
    """The attention that is divided: with all sizes, and one dtype."""
    if not isinstance(attention, Attention):
        attention = Attention(Spec.of(attention), sizes)
    if attention.layout not in (None, "bhsd"):
        raise ArgumentError(
            f"`{attention.name}` was compiled for tensors [B, S, H, D]; those of several GPUs are [B, H, S, D]",
            ["compile it without layout=, and give x.transpose(1, 2)"],
        )
    if dtype is not None and dtype not in ("bf16", "f16"):
        raise ArgumentError(f"dtype is {dtype!r}; it must be \"bf16\" or \"f16\"")
    replaced = ("Dqk", "Dv") if "D" in sizes else ()
    bindings = {**{name: size for name, size in attention.bindings.items() if name not in replaced}, **sizes}
    said = attention.source.described(bindings)
    name = said.name
    if said.located:
        raise UnsupportedError(
            f"`{name}` has packed sequences or pages, which are not divided among GPUs",
            ["a spec with a tensor of document numbers says the same of packed sequences"],
        )
    if said.open:
        example = ", ".join(f"{dim}=.." for dim in said.open)
        raise ArgumentError(
            f"`{name}` has no size for {', '.join(said.open)}", [f"give them: distribute(.., {example})"]
        )
    known = said.sizes
    lists = [dim for dim, size in known.items() if not isinstance(size, int)]
    if lists:
        raise ArgumentError(f"`{name}` has no single size for {', '.join(lists)}")
    edits = ["--dtype", dtype] if dtype is not None else []
    if torch.are_deterministic_algorithms_enabled():
        edits.append("--deterministic")
    return Attention(
        attention.source.edited(*edits),
        {**{name: value for name, value in bindings.items() if name not in (*known, "D")}, **known},
        target=attention.target,
        engine=attention.engine,
        cache=attention._cache,
        captured=attention.captured,
        builds=False,
    )


def _distributed(
    where: Group, attention: Attention, training: bool, values: Mapping[str, Any]
) -> Distributed:
    source, bindings = attention.source, attention.bindings
    if values:
        unknown = set(values) - set(attention.described.inputs)
        names, given = tuple(values), where.of_rank_0(lambda: _arrays(attention.name, values, unknown))
        attention.captured.update(
            {name: torch.as_tensor(array).to(where.device) for name, array in given.items()})
    else:
        names, given = (), {}
    direction = "both" if training else "fwd"
    if where.device.type == "cpu":
        found = where.of_rank_0(lambda: plans.homes(source, bindings, where.size, given))
        homes = [tuple(numbers(rank[which]) for which in ("rows", "keys")) for rank in found]
        how: Reference | Kernels = Reference(where, attention, homes, training, where.steps())
        return Distributed(where, attention, how, None, names)
    contents = where.of_rank_0(
        lambda: plans.build_ranks(
            source, bindings, where.size, attention.target or "native", engine=attention.engine,
            direction=direction, cache=attention._cache, values=given,
        )
    )
    how = Kernels(where, contents, where.steps())
    return Distributed(where, attention, how, contents, names)


def _arrays(title: str, values: Mapping[str, Any], unknown: set[str]) -> dict[str, Any]:
    if unknown:
        raise BindingError(f"`{title}` has no tensor {' and '.join(sorted(unknown))} to be divided for")
    # Copies: what is written into the tensors later must not count.
    return {name: _copied(name, value) for name, value in values.items()}


def _copied(name: str, value: Any) -> Any:
    tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(as_array(name, value))
    return tensor.detach().clone().cpu().numpy()


def load_distributed(
    path: str | os.PathLike[str],
    group: dist.ProcessGroup | DeviceMesh | None = None,
    *,
    device: torch.device | str | int | None = None,
    timeout_seconds: float | datetime.timedelta | None = None,
) -> Distributed:
    """Loads a file of `attnc compile --ranks` or `Distributed.save`: nothing is compiled. Collective. With
    `--split-files`, `path` is what was given to attnc, and each rank reads its own file. **A plan is code:
    load only plans you trust.**

    A file that was made for values of captured tensors is right for those alone, which calls must give: a tensor
    with others is a BindingError when it is first seen, or at another address, except during a capture. What
    is written into it later is not noticed. Comparing waits for the device, so give the same tensor again.
    Raises ArgumentError if the file is not of ranks, or of another number of them."""
    where = Group(group, device, timeout_seconds)
    read: list[tuple[bytes, Attention]] = []

    def request() -> dict[str, Any]:
        read.append(_read(pathlib.Path(path), where))
        return {}

    where.agree("the file to load", request)
    contents, attention = read[0]
    return Distributed(where, attention, Kernels(where, contents, where.steps()), contents, ())


def _read(path: pathlib.Path, where: Group) -> tuple[bytes, Attention]:
    if where.device.type != "cuda":
        raise ArgumentError("a file of ranks is computed on GPUs", ["distribute computes on the CPU too"])
    own = path.with_name(f"{path.name}.{where.rank}")
    file = own if not path.exists() and own.exists() else path
    contents = plans.read(file)
    said = _attnc.run(["inspect", str(file)])
    if "ranks" not in said:
        raise ArgumentError(
            f"{file} is the plan of one GPU", ["attnc compile --ranks N makes one of several GPUs"]
        )
    ranks = len(said["ranks"]["homes"])
    if ranks != where.size:
        raise ArgumentError(f"{file} is for {ranks} GPUs, and the group has {where.size}")
    known = said["ranks"]["dims"]
    manifest = said["plans"][0]
    bindings = {one["name"]: plans.number(one["value"]) for one in manifest["bindings"]}
    bindings = {**{name: value for name, value in bindings.items() if name not in (*known, "D")}, **known}
    return contents, Attention(Spec(manifest["spec"]["text"]), bindings, None, builds=False)
