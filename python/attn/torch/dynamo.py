"""`flex_attention` within torch.compile and torch.export(strict=True), without a graph break: Dynamo follows the mods
as it does those of PyTorch's own FlexAttention, and the graphs that it makes of them are traced to a spec.

The names of Dynamo that are not public are in this file. They are those of the versions in `private.VERSIONS`; with
others, `is_supported` says no, and the call breaks the graph.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch._ops import HigherOrderOperator

from attn.attention import Attention
from attn.errors import TraceError
from attn.torch import listed_calls
from attn.torch.blocks import LISTS
from attn.torch.facts import facts_of
from attn.torch.graph_mods import GraphMod, Joined, StandIns, hint
from attn.torch.joined_blocks import WHOLE, mask_of_blocks
from attn.torch.private import VERSIONS
from attn.torch.signature import has_memory
from attn.trace import Traced
from attn.tracing.recipes import Computed, Made, Part, Recipe, Source

NAME = "attn_flex_attention"


def is_supported() -> bool:
    """Whether this PyTorch is one of `private.VERSIONS`."""
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    return VERSIONS[0] <= (major, minor) <= VERSIONS[1]


class Flex(HigherOrderOperator):
    """What Dynamo sees of a call: an operator of q, k, v, the mods and settings.

    `attention_of(examples, mods, settings)`: the trace of the mods and its attention, for q, k and v like these.
    `finish(name, names, settings, q, k, v, *captured)`: what the call returns, as Python that Dynamo follows; `name` is
    that of the attention in operators, `names` those of what it captures. `otherwise`: the call where the graph breaks.
    """

    def __init__(self, attention_of: Callable[..., tuple[Traced, Attention]], finish: Callable[..., Any],
                 otherwise: Callable[..., Any]):
        initialize: Callable[[str], None] = super().__init__
        initialize(NAME)
        self.attention_of, self.finish, self.otherwise = attention_of, finish, otherwise

    @property
    def __name__(self) -> str:
        # Dynamo looks up how an operator is traced by its name. Importing it takes seconds, so it is told no earlier.
        if "torch._dynamo.variables.higher_order_ops" in sys.modules:
            _register()
        return NAME

    @__name__.setter
    def __name__(self, name: str) -> None:
        pass

    def __call__(self, *args: Any) -> Any:
        return self.otherwise(*args)


def _register() -> None:
    from torch._dynamo.variables import higher_order_ops as operators

    known: dict[str, Any] = operators._hop_name_to_variable_class
    if NAME not in known and is_supported():
        known[NAME] = _variable_class(operators)


def _variable_class(operators: Any) -> Any:
    """What Dynamo does for a call of `Flex`."""
    def call(self: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return _Call(operators, self.value, tx).result(*args)

    base = operators.TorchHigherOrderOperatorVariable
    return type(base)("FlexVariable", (base,), {
        "_HOP_NAME": "attn.torch.flex_attention", "_ALLOW_FALLBACK_TO_EAGER": True, "_call_function": call})


class _Blocks(NamedTuple):
    """The blocks of a BlockMask. `stand_in`: of their tensor; `lists`: the variables; `size`: rows and keys of a block;
    `whole`: as `mask_of_blocks` takes it; `value`: the BlockMask, if it was made before the program."""

    stand_in: torch.Tensor
    lists: dict[str, Any]
    size: tuple[int, int]
    whole: int | None
    value: Any


def _is_real(block_mask: Any) -> bool:
    lists = [getattr(block_mask, name, None) for name in LISTS]
    return lists[0] is not None and all(x is None or has_memory(x) for x in lists)


def _is_unwritten_input(variable: Any) -> bool:
    """Whether a tensor is one that the program is given, and does not write to before."""
    node = variable.as_proxy().node
    return bool(node.op == "placeholder" and node.meta["example_value"]._version == 0)


def _everything(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> bool:
    return True


class _Call:
    """One call that Dynamo traces: `tx` is its state, arguments and results are its variables."""

    def __init__(self, operators: Any, flex: Flex, tx: Any):
        self._operators, self._flex, self._tx = operators, flex, tx
        self._stand_ins = StandIns()
        self._variables: dict[int, Any] = {}  # of captured tensors, by the ids of their stand-ins

    def result(self, q: Any, k: Any, v: Any, score_mod: Any, mask_mod: Any, settings: Any, listed: Any) -> Any:
        """The variable of what the call returns. `listed`: None, or of a BlockMask itself, its lists, how many blocks
        there are down and across, and their size; or a text, why the call is refused."""
        refusal = listed.as_python_constant() if listed.is_python_constant() else None
        if refusal is not None:
            self._refuse("the arguments do not fit", refusal, "the same call without torch.compile is refused too")
        inputs, settings = (q, k, v), self._constants(settings)
        examples = [each.as_proxy().node.meta["example_value"] for each in inputs]
        mods = [self._mod(q, mod, place) for place, mod in enumerate((score_mod, mask_mod))]
        blocks = None if self._is_none(listed) else self._blocks(listed, examples[0])
        try:
            traced, attention = self._trace(examples, mods, settings, blocks)
        except TraceError as error:
            self._refuse("a mod cannot be traced", str(error), "docs/flexattention.md of attnc says what can be traced")
        captured: dict[str, Any] = {}
        for name in traced.tensors:
            recipe = traced.recipes[name]
            if blocks is not None and isinstance(recipe, Source) and recipe.value is blocks.stand_in:
                captured |= {listed_calls.name_of(name, kind): x for kind, x in blocks.lists.items()}
            else:
                captured[name] = self._captured(recipe)
        build = self._operators.VariableTracker.build
        constants = (facts_of(attention).name, tuple(captured), settings)
        named = [build(self._tx, each) for each in constants]
        return self._inlined(self._flex.finish, [*named, *inputs, *captured.values()])

    def _refuse(self, what: str, why: str, hint: str) -> NoReturn:
        self._operators.unimplemented(gb_type=f"attn.torch.flex_attention: {what}", context=why, explanation=why,
                                      hints=[hint])
        raise AssertionError(why)

    def _trace(self, examples: list[Any], mods: list[GraphMod | None], settings: Any,
               blocks: _Blocks | None) -> tuple[Traced, Attention]:
        """The trace of a call and its attention, with the blocks of a BlockMask. If its mask_mod says what they say,
        that is noted: calls with these lists compute without them."""
        if blocks is None:
            traced, attention = self._flex.attention_of(examples, mods, settings)
            self._stand_ins.hold(traced, attention, examples)
            return traced, attention
        score_mod, mask_mod = mods
        inner = _everything if mask_mod is None else mask_mod
        joined = Joined(mask_of_blocks(blocks.stand_in, inner, blocks.size, blocks.whole))
        traced, attention = self._flex.attention_of(examples, (score_mod, joined), settings)
        self._stand_ins.hold(traced, attention, examples)
        if blocks.value is not None and not (mask_mod is not None and mask_mod.captures):
            alone, of_mask = self._flex.attention_of(examples, mods, settings)
            if set(alone.tensors) <= set(traced.tensors):
                listed_calls.note(attention, of_mask, blocks.value, [tuple(map(hint, x.shape)) for x in examples])
        return traced, attention

    def _is_none(self, variable: Any) -> bool:
        return variable.is_python_constant() and variable.as_python_constant() is None

    def _blocks(self, listed: Any, query: Any) -> _Blocks:
        block_mask, lists, grid, size = listed.realize().items
        named = {name: each for name, each in zip(LISTS, lists.realize().items) if not self._is_none(each)}
        shape = (*named[LISTS[0]].as_proxy().node.meta["example_value"].shape[:2],
                 *(self._number(each) for each in grid.realize().items))
        with self._tx.fake_mode:
            fake = torch.empty(shape, dtype=torch.uint8, device=query.device)
        value = getattr(block_mask.realize(), "value", None)
        is_given = _is_real(value) and all(map(_is_unwritten_input, named.values()))
        return _Blocks(self._stand_ins.of("blocks", fake), named, self._constants(size),
                       WHOLE if LISTS[2] in named else None, value if is_given else None)

    def _number(self, variable: Any) -> Any:
        """An integer, which may be one that changes."""
        variable = variable.realize()
        return variable.as_python_constant() if variable.is_python_constant() else variable.sym_num

    def _constants(self, variable: Any) -> Any:
        """The value of constants; of numbers that may change, that of all calls."""
        from torch._dynamo.variables.lists import TupleVariable
        from torch._dynamo.variables.tensor import SymNodeVariable

        variable = variable.realize()
        if isinstance(variable, SymNodeVariable):
            return variable.evaluate_expr(self._tx.output)
        if isinstance(variable, TupleVariable):
            return tuple(map(self._constants, variable.items))
        return variable.as_python_constant()

    def _inlined(self, function: Callable[..., Any], args: list[Any]) -> Any:
        return self._operators.VariableTracker.build(self._tx, function).call_function(self._tx, args, {})

    def _mod(self, q: Any, mod: Any, place: int) -> GraphMod | None:
        """A mod as the graph that Dynamo makes of it."""
        if self._is_none(mod):
            return None
        from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

        operators, tx = self._operators, self._tx
        with operators.discard_graph_changes(tx):
            scores = [] if place else [self._scalar(q, {"requires_grad": q.requires_grad})]
            scalars = [*scores, *(self._scalar(q, {"dtype": torch.int32}) for _ in range(4))]
        with TransformGetItemToIndex():
            _, graph, lifted = operators.speculate_subgraph(
                tx, mod, scalars, {}, description=self._flex.__name__, source_target=self._flex,
                set_subgraph_inputs="flatten_manual")
        return GraphMod(graph, len(scalars), [self._stand_in(outer) for outer in lifted],
                        self._constant, self._stand_ins.original, _name_of(mod))

    def _scalar(self, q: Any, options: dict[str, Any]) -> Any:
        build = self._operators.VariableTracker.build
        return q.call_method(self._tx, "new_empty", [build(self._tx, [])],
                             {name: build(self._tx, value) for name, value in options.items()})

    def _stand_in(self, outer: Any) -> Any:
        """What stands for a captured tensor in a trace; a number that it captures as it is."""
        from torch._dynamo.variables.builder import get_specialized_props
        from torch._dynamo.variables.tensor import TensorVariable

        example = outer.node.meta["example_value"]
        if not isinstance(example, torch.Tensor):
            return example
        found = self._stand_ins.of(outer.node, example)
        if id(found) not in self._variables:
            known = get_specialized_props(TensorVariable, self._tx, example, None)
            self._variables[id(found)] = TensorVariable(outer, **known)
        return found

    def _constant(self, name: str) -> Any:
        """The stand-in of a tensor that a mod makes, or has as an attribute of a module; a graph as it is."""
        value = self._tx.output.nn_modules[name]
        if isinstance(value, torch.nn.Module):
            return value
        found = self._stand_ins.of(name, value)
        if id(found) not in self._variables:
            self._variables[id(found)] = self._attribute(value)
        return found

    def _attribute(self, value: torch.Tensor) -> Any:
        proxy = self._tx.output.register_static_attr_and_return_proxy("attn_constant", value)
        from torch._dynamo.variables.builder import wrap_fx_proxy

        return wrap_fx_proxy(self._tx, proxy)

    def _captured(self, recipe: Recipe) -> Any:
        """The variable of a captured tensor, which may have to be computed."""
        if isinstance(recipe, Source):
            return self._variables[id(recipe.value)]
        if isinstance(recipe, Made):
            return self._attribute(torch.as_tensor(recipe.value))
        build = self._operators.VariableTracker.build
        if isinstance(recipe, Part):
            return self._captured(recipe.of).call_method(self._tx, "__getitem__", [build(self._tx, recipe.place)], {})
        function: Any = recipe.function
        first: tuple[Any, ...] = ()
        if isinstance(function, functools.partial):  # of a method's name
            function, first = function.func, function.args
        return build(self._tx, function).call_function(
            self._tx, [self._argument(each) for each in (*first, *recipe.args)],
            {name: self._argument(each) for name, each in recipe.kwargs.items()})

    def _argument(self, value: Any) -> Any:
        if isinstance(value, (Source, Made, Computed, Part)):
            return self._captured(value)
        build = self._operators.VariableTracker.build
        if isinstance(value, (list, tuple)):
            from torch._dynamo.variables.lists import ListVariable, TupleVariable

            kind = ListVariable if isinstance(value, list) else TupleVariable
            return kind([self._argument(each) for each in value])
        return build(self._tx, value)


def never_compiled(function: Callable[..., Any]) -> None:
    """Keeps Dynamo away from calls of a function, and from all that it calls, where a graph was broken."""
    evaluation = torch._C._dynamo.eval_frame
    needed = ("set_code_exec_strategy", "_FrameAction", "_FrameExecStrategy")
    if all(hasattr(evaluation, name) for name in needed):
        skip = evaluation._FrameAction.SKIP
        evaluation.set_code_exec_strategy(function.__code__, evaluation._FrameExecStrategy(skip, skip))


def _name_of(mod: Any) -> str:
    """The name of a function that Dynamo follows, for that of the spec."""
    try:
        return str(mod.get_name())
    except Exception:
        return "mod"
