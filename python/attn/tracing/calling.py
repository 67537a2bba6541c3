"""One call of a mod, with values that record what is done to them."""
from __future__ import annotations

import contextlib
import random
import sys
from types import MethodDescriptorType, WrapperDescriptorType
from typing import Any, Callable, Iterator

from attn.errors import TraceError
from attn.tracing import functions, tables
from attn.tracing.expressions import BOOL, INT, Node
from attn.tracing.places import is_library, is_within_jax, of_exception, of_function, refusal, signature_error
from attn.tracing.reads import Unwatched
from attn.tracing.rows import Row
from attn.tracing.tracer import Tracer
from attn.tracing.values import Value, has_values, tensors_in
from attn.tracing.watching import Watch

_INDEXES = ("b", "h", "q_idx", "kv_idx")


def traced_score(tracer: Tracer, watch: Watch) -> Node:
    """What the score_mod returns: `score`, if there is none."""
    score, mod = tracer.graph.var("score"), watch.mods[0]
    if mod is None:
        watch.mod(0)
        return score
    node = _result(tracer, watch, 0, "score_mod", ("score", *_INDEXES))
    if node.type == BOOL:
        raise refusal("a score_mod returns a number, this one returns a condition",
                      ["pass it as mask_mod, or write `torch.where(condition, score, -float('inf'))`"],
                      at=of_function(mod))
    return node


def traced_mask(tracer: Tracer, watch: Watch) -> list[Node]:
    """What the mask_mod returns, if it hides anything."""
    mod = watch.mods[1]
    if mod is None:
        watch.mod(1)
        return []
    node = _result(tracer, watch, 1, "mask_mod", _INDEXES)
    if node.type != BOOL:
        kind = "an integer" if node.type == INT else "a real number"
        raise refusal(f"a mask_mod returns a condition, this one returns {kind}",
                      ["write `x != 0`, or `.bool()` of a captured tensor"], at=of_function(mod))
    return [] if node.op == "const" and node.value else [node]


def _result(tracer: Tracer, watch: Watch, place: int, what: str, parameters: tuple[str, ...]) -> Node:
    """What the mod returns for one score."""
    mod = watch.mods[place]
    if not callable(mod):
        raise TraceError(f"a {what} is a function, not a `{type(mod).__name__}`")
    wrong = signature_error(mod, parameters, what)
    if wrong:
        raise wrong
    values = [tracer.wrap(tracer.graph.var(name)) for name in parameters]

    def run(copy: Callable[[], Callable[..., Any]]) -> Node:
        with _watching_torch(tracer, watch), _watching_calls(tracer, watch):
            return _returned(tracer, _called(copy(), values), mod, what)

    try:
        return run(lambda: watch.mod(place))
    except TraceError:
        try:
            found = run(lambda: mod)
        except TraceError:
            found = None
        if found is None:
            raise
        watch.is_opaque("it does not run with stand-ins of what it reads")
        return found


def _called(mod: Callable[..., Any], values: list[Value]) -> Any:
    try:
        return mod(*values)
    except TraceError:
        raise
    except RecursionError as error:
        raise refusal("the mod's expression is nested too deeply", at=of_exception(error.__traceback__)) \
            from error
    except Exception as error:
        notes = ["a mod is called once, with stand-ins for score, b, h, q_idx and kv_idx"]
        if "infer dtype" in str(error):
            notes = ["a value of one score need not be made a tensor: compute with it"]
        elif is_within_jax(error.__traceback__):
            notes = ["values of one score are no arrays of JAX: `x.astype(jnp.float32)` is written for `jnp.float32(x)`"]
        raise refusal(f"the mod failed while it was traced: {type(error).__name__}: {error}", notes,
                      at=of_exception(error.__traceback__)) from error


def _returned(tracer: Tracer, result: Any, mod: Callable[..., Any], what: str) -> Node:
    wanted = "a condition" if what == "mask_mod" else "a score"
    if result is None or isinstance(result, (bool, str, tuple, list, dict)):
        shown = repr(result) if result is None or isinstance(result, bool) else f"a {type(result).__name__}"
        raise refusal(f"a {what} returns {wanted}, this one returns {shown}", at=of_function(mod))
    if isinstance(result, Row) and len(result.shape) > 1:
        raise refusal(f"a {what} returns one value for each score; this tensor has "
                      f"{len(result.shape)} dimensions without index", at=of_function(mod))
    node = tracer.node(result)
    if node.size:
        raise refusal(f"a {what} returns one value for each score, this one returns {node.size}",
                      ["index the captured tensor, or reduce the row with `.any()` or `.sum()`"],
                      at=of_function(mod))
    return node


@contextlib.contextmanager
def _watching_calls(tracer: Tracer, watch: Watch) -> Iterator[None]:
    """Learns what the mod's variables are called, and sees what is called; not while a profiler runs, because
    there can be only one, nor of mods that nobody watches."""
    if sys.getprofile() is not None or any(isinstance(mod, Unwatched) for mod in watch.mods):
        watch.is_opaque("a profiler runs, or nobody watches it")
        yield
        return

    def at_event(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            watch.calls(frame)
        elif event == "c_call":
            if isinstance(getattr(arg, "__self__", None), random.Random):
                raise functions.random_error()
            watch.calls_builtin(frame, arg)
        elif event == "return" and not is_library(frame.f_code):
            for name, value in frame.f_locals.items():
                if type(value) is Value:
                    tracer.local_names[id(value.node)] = name

    sys.setprofile(at_event)
    try:
        yield
    finally:
        sys.setprofile(None)


def _watching_torch(tracer: Tracer, watch: Watch) -> contextlib.AbstractContextManager[Any]:
    """Follows captured tensors through torch's functions. Needs torch only if the mod has it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return contextlib.nullcontext()
    from torch.overrides import TorchFunctionMode

    outside = torch.is_grad_enabled()

    class Follow(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if has_values([*args, *kwargs.values()]):
                return Value.__torch_function__(func, types, args, kwargs)
            return _ordinary(tracer, watch, func, args, kwargs, outside)

    return Follow()


_METADATA = frozenset(
    "shape dtype ndim device requires_grad is_cuda is_cpu itemsize size dim numel ndimension "
    "__len__ nelement is_floating_point is_complex is_signed element_size get_device is_tensor "
    "result_type promote_types can_cast".split())


def _ordinary(tracer: Tracer, watch: Watch, func: Callable[..., Any], args: Any, kwargs: Any, outside: bool) -> Any:
    """A function of torch that takes no traced value, within a mod. `outside`: whether autograd records
    around the mod, which makes no difference to what the mod means."""
    import torch

    name = functions.name_of(func)
    if name == "__get__":  # a property of tensors
        name = getattr(getattr(func, "__self__", None), "__name__", name)
        func = tables.property_of(name)
    elif isinstance(func, (MethodDescriptorType, WrapperDescriptorType)):
        func = tables.method(func.__name__)  # which torch.compile follows
    if functions.is_random(name):
        raise functions.random_error()
    given = tensors_in([*args, *kwargs.values()])
    if any(tracer.rows.known(tensor) is None for tensor in given):
        watch.is_opaque("it reads a tensor of unknown origin")
    if name in _METADATA:
        return func(*args, **kwargs)
    given = [row for row in map(tracer.rows.of, given) if row.is_captured]
    if given and name in functions.READS_VALUES:
        raise functions.reading_error(given[0].name)
    if given and functions.is_in_place(name):
        raise functions.in_place_error(name)
    records = torch.is_grad_enabled() == outside
    with torch.set_grad_enabled(records):
        result = func(*args, **kwargs)
    if not tensors_in([result]):
        watch.is_opaque(f"it asks for `{name}` of a tensor")
        return result
    with watch.pause():
        return tracer.rows.derive(func, name, args, kwargs, result, records)
