"""Mods that are graphs of operations, as Dynamo makes them: called as functions of one score, they are traced like
any other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from attn.arguments import Sizes, extent
from attn.attention import Attention
from attn.errors import TraceError
from attn.torch.private import FakeTensorMode
from attn.trace import Traced
from attn.tracing.reads import Unwatched
from attn.tracing.recipes import Source


class StandIns:
    """Tensors without elements that stand for those of a program that is traced, with the sizes of its first call."""

    def __init__(self) -> None:
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._found: dict[Hashable, torch.Tensor] = {}
        self._of: dict[int, torch.Tensor] = {}

    def of(self, key: Hashable, tensor: torch.Tensor) -> torch.Tensor:
        """The stand-in of a tensor, one for each key."""
        found = self._found.get(key)
        if found is None:
            with self._mode, torch.no_grad():
                shape, strides = (tuple(map(hint, sizes)) for sizes in (tensor.shape, tensor.stride()))
                found = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)
            found.requires_grad_(tensor.requires_grad)
            self._found[key], self._of[id(found)] = found, tensor
        return found

    def original(self, stand_in: torch.Tensor) -> torch.Tensor:
        """The tensor that it stands for, or the stand-in itself if it is none."""
        return self._of.get(id(stand_in), stand_in)

    def hold(self, traced: Traced, attention: Attention, inputs: Sequence[torch.Tensor]) -> None:
        """Tells Dynamo what the spec says of sizes that may change: numbers in it are those of all calls, names of
        dimensions those of q, k and v."""
        q, k, v = inputs
        named = dict(zip(Sizes._fields, (*q.shape[:2], k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3])))
        for name, recipe in traced.recipes.items():
            if isinstance(recipe, Source):
                shape = self.original(recipe.value).shape
                for size, text in zip(shape, attention.described.inputs[name].dims):
                    wanted = extent(text, named)
                    if size != wanted:
                        raise TraceError(f"{name} has a size of {size}, and {text} is {wanted}")


def hint(size: Any) -> int:
    """The size of the first call, of one that changes."""
    return size if type(size) is int else size.node.hint


class Joined(Unwatched):
    """A mask of graphs and of blocks."""

    def __init__(self, function: Callable[..., Any]):
        self.__name__ = function.__name__
        self._function = function

    def __call__(self, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return self._function(b, h, q_idx, kv_idx)


class GraphMod(Unwatched):
    """A mod that is a graph of operations. `count`: of its first inputs, which are those of a mod; `captured`: the
    others, stand-ins of tensors and numbers; `constant` gives the stand-ins of attributes by name.

    A size of which the graph computes is taken to be always as in the first call, of which Dynamo is told."""

    def __init__(self, graph: Any, count: int, captured: Sequence[Any], constant: Callable[[str], Any],
                 original: Callable[[torch.Tensor], torch.Tensor], name: str):
        self.__name__ = name
        self._graph, self._count, self._captured, self._constant = graph, count, captured, constant
        self._original = original

    @property
    def captures(self) -> bool:
        """Whether it reads tensors besides the indexes of a score."""
        return any(isinstance(each, torch.Tensor) for each in self._captured) or any(
            node.op == "get_attr" for node in self._graph.nodes)

    def __call__(self, *scalars: Any) -> Any:
        values: dict[Any, Any] = {}
        given = iter((*scalars, *self._captured))
        for node in self._graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "get_attr":
                values[node] = self._constant(node.target)
            elif node.op == "output":
                return torch.fx.map_arg(node.args[0], lambda each: self._value(each, values))
            elif node.users or node.op not in ("call_function", "call_method"):
                values[node] = self._computed(node, values)
        raise AssertionError("a graph without an output")

    def _of(self, graph: Any, captured: Sequence[Any]) -> GraphMod:
        """A graph within the graph, of these inputs."""
        return GraphMod(graph, 0, captured, self._constant, self._original, self.__name__)

    def _computed(self, node: Any, values: dict[Any, Any]) -> Any:
        args = torch.fx.map_arg(node.args, lambda each: self._value(each, values))
        kwargs = torch.fx.map_arg(node.kwargs, lambda each: self._value(each, values))
        try:
            if node.op == "call_method":
                return self._method(node.target, *args, **kwargs)
            if str(node.target) == "autograd_function_apply":  # gradients follow from its forward
                outputs, _ = self._of(args[0].graph, args[2:])()
                return outputs
            return node.target(*args, **kwargs)
        except TraceError as error:
            raise _placed(error, node) from None

    def _value(self, node: Any, values: dict[Any, Any]) -> Any:
        value = values[node] if isinstance(node, torch.fx.Node) else node
        if isinstance(value, torch.SymInt):
            return int(value)
        return float(value) if isinstance(value, torch.SymFloat) else value

    def _method(self, name: str, this: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(this, torch.Tensor):
            if name == "size":
                return self._original(this).size(*args)
            if name == "item" and this.dim() == 0:
                return this  # it is read at each call
        return getattr(this, name)(*args, **kwargs)


def _placed(error: TraceError, node: Any) -> TraceError:
    """The error with the line of the mod, which the graph knows."""
    lines = (node.stack_trace or "").strip().splitlines()
    message = str(error.message).partition("\n")[0]
    if len(lines) < 2:
        return TraceError(message, error.notes)
    where = lines[-2].strip().removeprefix('File "').replace('", line ', ":").partition(",")[0]
    return TraceError(f"{message}\n  --> {where}\n   |  {lines[-1].strip()}", error.notes)
