"""A compiled spec as a differentiable function of torch tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch

from attn import _libattn, layouts
from attn._attnc import outside
from attn.arguments import INPUTS, Sizes, check_names, named, number, order_note, sizes_of
from attn.errors import BindingError, PlanDeviceError, SpecWarning, Unsupported
from attn.outputs import is_amax
from attn.reference import as_array, reference
from attn.torch import empty
from attn.torch.addressed import NOT_ADDRESSED, Dense, addressing_of, check_shapes
from attn.torch.signature import (
    DTYPES,
    EIGHT_BITS,
    HALF,
    IN_KERNELS,
    TORCH_DTYPES,
    aligned,
    layout_of,
    usable,
)
from attn.torch.statistics import is_capturing
from attn.torch.variant import (
    Form,
    Pair,
    Variants,
    edits_of,
    output_strides,
    places_in,
)

if TYPE_CHECKING:
    from attn.attention import Attention


class Facts:
    """What the calls of one attention share: what the compiler says of it, `said`, and what was made for them."""

    def __init__(self, attention: Attention, name: str):
        said = attention.described
        self.said = said
        self.traced = attention.source.traced
        self.name = name  # from which the operators find the attention, in another process too
        self.title = said.name
        self.declared = {each.name: each.dtype for each in said.inputs.values() if not each.optional}
        self.optional = tuple(name for name in said.inputs if name not in self.declared)
        self.addressing = addressing_of(said)
        self.quantized = said.quantized
        self.dtype = said.dtype
        self.scales = said.scales
        self.params = said.params
        self.outputs = said.outputs
        self.learned = said.learned
        self.random = said.facts["random"]
        # Also what a backward reads, shown or not.
        self.all_outputs = (*self.outputs, *(name for name in said.saved if name not in self.outputs))
        self.differentiated = (*INPUTS, *self.learned)
        self.amax_of_backward = said.amax
        self.of_backward = (*self.differentiated, *self.amax_of_backward)
        # Whether the gradient of each tensor has its type, as autograd wants.
        self.keeps_types = self.quantized is None or (
            self.quantized.o == self.quantized.do and self.quantized.gradients == self.dtype
        )
        self.defaults: dict[torch.device, dict[str, torch.Tensor]] = {}  # of scales
        self.variants = Variants()
        self.ways: dict[Any, Any] = {}  # of the operators

    def dtype_of(self, name: str, of_q: torch.dtype) -> torch.dtype:
        """The dtype of an output, of the gradient of an input ("dq") or of `do`, for q, k and v of dtype `of_q`."""
        if name in ("o", "do", *(f"d{each}" for each in INPUTS)):
            if self.quantized is None:
                return of_q
            types = self.quantized
            return TORCH_DTYPES[{"o": types.o, "do": types.do}.get(name, types.gradients)]
        return torch.float32 if of_q in IN_KERNELS else of_q

    def gradient_dtype(self, name: str, tensor: torch.Tensor) -> torch.dtype:
        """The dtype of the gradient of a tensor that a call was given."""
        return self.dtype_of(f"d{name}", tensor.dtype) if name in INPUTS else tensor.dtype


def facts_of(attention: Attention) -> Facts:
    """The facts that `operators.prepare` found: when it was compiled, or now if PyTorch was not imported."""
    if attention._torch_facts is None:
        from attn.torch.operators import prepare

        prepare(attention)
    return attention._torch_facts


class Call(NamedTuple):
    """One call, after its arguments were sorted: `tensors` by name, in a fixed order."""

    attention: Attention
    tensors: dict[str, torch.Tensor]
    params: dict[str, float]
    form: Form | None = None  # None: the spec has layouts whose rows other tensors locate


def call(attention: Attention, *args: Any, layout: str | None = None, **kwargs: Any) -> Any:
    """Calls an attention with torch tensors.

    `args` are q [B, Hq, Sq, Dqk], k [B, Hkv, Skv, Dqk] and v [B, Hkv, Skv, Dv] of any strides, with
    `layout="bshd"` q [B, Sq, Hq, Dqk], k and v [B, Skv, Hkv, ..], and o [B, Sq, Hq, Dv]; `kwargs` are
    the spec's captured tensors, lengths and params by name. Returns the output, or a tuple of the outputs in
    the order of the spec's clause `outputs`. o has gradients of q, k, v and learned tensors; a backward that
    reaches another output with anything but zeros raises Unsupported. CPU tensors are computed by the
    reference, in double precision.

    8-bit attention also takes its scales by name, f32 tensors of one element, and q, k and v of float8, or of
    more bits: then `attn.torch.quantized.call` rounds them, and has gradients of their type.

    Under `torch.autocast`, q, k and v are cast to its dtype. With `torch.use_deterministic_algorithms` the
    gradients are bitwise the same in every run. Raises BindingError for arguments that do not fit, and
    Unsupported, SpecError or CompilerError if a plan is needed that cannot be built.
    """
    from attn.torch import operators

    layout = layout or attention.layout
    if layout is not None and layouts.checked(layout) != "bhsd":
        return layouts.call(partial(call, attention), attention.described, args, kwargs)
    each = sorted_call(attention, args, kwargs)
    if facts_of(attention).quantized is not None:
        from attn.torch import quantized

        quantized.check(each)
        if quantized.is_wide(each):
            _check_sizes(each, layout)
            return quantized.call(each)
    if torch.compiler.is_compiling() or is_intercepted(each.tensors.values()):
        _check_sizes(each, layout)
        return operators.apply_operator(each)
    each = formed(each)
    _check_sizes(each, layout)
    result = operators.apply(each)
    remember(each, args, kwargs)
    return result


def _check_sizes(each: Call, layout: str | None) -> None:
    facts = facts_of(each.attention)
    if facts.addressing is None:
        layouts.check(facts.said, sizes_of(*(each.tensors[name] for name in INPUTS)), layout)


PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
count_modes = torch._C._len_torch_dispatch_stack


def is_intercepted(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether something wants to see operators: a subclass of Tensor, such as DTensor or FakeTensor, or a
    dispatch mode, such as selective checkpointing's. So do tensors without memory."""
    return count_modes() > 0 or any(type(tensor) not in PLAIN or tensor.is_meta for tensor in tensors)


def remember(each: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Keeps a short way for calls like this one, which ran."""
    from attn.torch.recent import Recent

    facts = facts_of(each.attention)
    device = each.tensors["q"].device
    if device.type != "cuda" or len(args) != len(INPUTS):
        return
    for training in (True, False):
        pair = facts.variants.find(key_of(each.form, device, training))
        if pair is not None:
            each.attention._recent = Recent(each, pair, kwargs)
            return


def sorted_call(attention: Attention, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """Raises BindingError for missing, unknown and unusable arguments."""
    facts = facts_of(attention)
    if facts.quantized is not None and facts.quantized.by == "mxfp8":
        raise Unsupported(
            f"`{facts.title}` has scales of blocks (`quantize mxfp8`), which attn.torch does not take yet",
            ["`quantize per_tensor` works; `attnc run` and attn.hpp take scales of blocks"],
        )
    given = named(attention.captured, args, kwargs)
    wanted = (*INPUTS, *facts.declared, *facts.params)
    check_names(facts.title, given, wanted, (*facts.optional, *facts.amax_of_backward))
    q, k, v = (_cast(given[name], name) for name in INPUTS)
    tensors = dict(zip(INPUTS, (q, k, v)))
    for name in given:
        if name not in INPUTS and name not in facts.params:
            dtype = facts.said.inputs[name].dtype if name in facts.said.inputs else "f32"
            tensors[name] = _as_tensor(name, given[name], dtype, q.device)
    if facts.scales:
        _check_scales(facts, tensors)
        _add_scales(facts, tensors)
    if facts.random:
        add_random(tensors, q.device)
    for name, tensor in tensors.items():
        if tensor.device != q.device:
            raise BindingError(f"{name} is on {tensor.device}, but q on {q.device}: move it there")
    _warn_of_lost_gradients(facts, tensors)
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
        return each
    tensors = dict(each.tensors)
    return each._replace(tensors=tensors, form=_form(facts, tensors))


def _cast(tensor: Any, name: str) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise BindingError(f"{name} is a {type(tensor).__name__}, not a torch.Tensor")
    device = tensor.device.type
    if device != "meta" and torch.is_autocast_enabled(device) and tensor.dtype == torch.float32:
        return tensor.to(torch.get_autocast_dtype(device))
    return tensor


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
        made = {name: torch.full((1,), facts.scales[name], device=device) for name in missing}
    else:
        made = facts.defaults.setdefault(device, {})
        for name in missing:
            if name not in made:
                made[name] = torch.full((1,), facts.scales[name], device=device)
    tensors.update({name: made[name] for name in missing})


# Numbers of PyTorch's generator, so that torch.manual_seed repeats them and CUDA graphs draw new ones.
def add_random(tensors: dict[str, torch.Tensor], device: torch.device) -> None:
    """Adds what random dropout draws by, where it is not given: a random `seed` in 0 .. 2^53 - 1, from
    PyTorch's generator, and `offset` 0. Both are int64 tensors of one element on the device."""
    if "seed" not in tensors:
        tensors["seed"] = torch.randint(1 << 53, (1,), dtype=torch.int64, device=device)
    if "offset" not in tensors:
        tensors["offset"] = torch.zeros(1, dtype=torch.int64, device=device)


def _check_dtypes(facts: Facts, tensors: Mapping[str, torch.Tensor]) -> None:
    dtypes = {name: tensors[name].dtype for name in INPUTS}
    if len(set(dtypes.values())) > 1:
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
    if tensors["q"].is_cuda:
        tensors.update({name: usable(tensors[name]) for name in INPUTS})
    dtype = tensors["q"].dtype
    layouts = tuple(layout_of(tensors[name]) for name in INPUTS)
    deterministic = torch.are_deterministic_algorithms_enabled()
    return Form(sizes, DTYPES[dtype] if dtype in IN_KERNELS else facts.dtype, layouts, deterministic)


def pair_of(each: Call, training: bool) -> Pair:
    """The plans of a call on CUDA tensors, compiled first if there are none and the attention allows it."""
    attention = each.attention
    return _pair(attention, each.form, training, each.tensors["q"].device, attention.builds)


def key_of(form: Form | None, device: torch.device, training: bool) -> tuple[Any, ...]:
    """What `Variants` knows a pair by."""
    return form, device.index, training, training and _wants_deterministic(form)


def _pair(
    attention: Attention, form: Form | None, training: bool, device: torch.device, builds: bool
) -> Pair:
    variants = facts_of(attention).variants
    key = key_of(form, device, training)
    pair = variants.find(key)
    if pair is None:
        if is_capturing():
            raise BindingError(
                "these sizes have no plan yet, which cannot be loaded while a CUDA graph is captured",
                ["call it once before the capture, with gradients if the graph has them, or f.warm(..)"],
            )
        pair = variants.get(key, lambda: _make_pair(attention, form, training, device, builds))
    return pair


def warming(
    attention: Attention,
    sizes: Mapping[str, int],
    *,
    training: bool,
    dtype: str | None,
    layout: str,
    device: Any,
) -> Callable[[], None]:
    """What builds and loads the plans of calls with these sizes; see `attn.Attention.warm`."""
    facts = facts_of(attention)
    place = _cuda_device(device)
    form = None
    if facts.addressing is None:
        known = attention.source.described({**attention.bindings, **sizes}).sizes
        missing = [dim for dim in Sizes._fields if not isinstance(known[dim], int)]
        if missing:
            raise BindingError(f"no size is known for {', '.join(missing)}: f.warm({missing[0]}=..)")
        deterministic = torch.are_deterministic_algorithms_enabled()
        form = Form(Sizes(**known), dtype or facts.dtype, (layout,) * 3, deterministic)

    def build() -> None:
        _pair(attention, form, training, place, True)

    return build


def _cuda_device(device: Any) -> torch.device:
    if device is None and not torch.cuda.is_available():
        raise BindingError(
            "PyTorch finds no GPU here to load a plan for",
            ["attn.compile(.., target=\"h200\") compiles one for another machine"],
        )
    found = torch.device("cuda" if device is None else device)
    if found.type != "cuda":
        raise BindingError(f"plans are for GPUs, not for the device `{found}`")
    return torch.device("cuda", torch.cuda.current_device()) if found.index is None else found


def _make_pair(
    attention: Attention, form: Form | None, training: bool, device: torch.device, builds: bool
) -> Pair:
    sm = _libattn.runtime(device.index or 0).describe()["sm"]
    plan = attention._contents  # what was not compiled yet may be of no use
    repeatable = not training or facts_of(attention).said.facts["deterministic"]
    if plan and (repeatable or not _wants_deterministic(form)):
        places = _fixed_places(plan, sm) if form is None else places_in(plan, form, sm)
        if places and (not training or "bwd" in places):
            return Pair(plan, places, device)
    name = attention.name
    if form is None:
        return _make_addressed_pair(attention, training, sm, device, builds)
    if not builds:
        _check_target(attention, sm)
        what = "training (forward and backward)" if training else "a forward"
        raise Unsupported(
            f"`{name}` has no plan for {what} with these sizes, strides and dtype on this"
            f" GPU (sm_{sm})",
            [
                f"asked for: {form.sizes._asdict()}, {form.dtype},{' deterministic,' * form.deterministic}"
                f" q {form.layouts[0]}, k {form.layouts[1]}, v {form.layouts[2]}",
                order_note("bhsd"),
                _HOW_TO_BUILD,
            ],
        )
    built = attention.build(
        form.sizes._asdict(),
        edits=edits_of(form),
        direction="both" if training else "fwd",
        target="native",
    )
    places = places_in(built, form, sm)
    if places is None:
        raise Unsupported(f"`{name}` was compiled, but not for these strides: {form.layouts}")
    return Pair(built, places, device)


_HOW_TO_BUILD = (
    "f.warm(..) compiles it before the call; attn.compile(.., builds=True) and attn.load(..,"
    " recompile=True) allow calls to"
)


def _make_addressed_pair(
    attention: Attention, training: bool, sm: int, device: torch.device, builds: bool
) -> Pair:
    """The pair of plans for the sizes that the spec and the bindings give: those of q, k and v say less."""
    said, name = attention.described, attention.name
    if _wants_deterministic(None) and training and not said.facts["deterministic"]:
        raise Unsupported(
            f"the gradients of `{name}` are not bitwise the same in every run",
            ["add the clause `deterministic` to the spec"],
        )
    if said.open:
        raise Unsupported(
            f"`{name}` has no plan for this GPU (sm_{sm}), and q, k and v do not give all sizes of its"
            " layout",
            [f"give {', '.join(said.open)} to attn.compile"],
        )
    if not builds:
        _check_target(attention, sm)
        raise Unsupported(
            f"`{name}` has no plan for this GPU (sm_{sm}), and calls may not compile one", [_HOW_TO_BUILD]
        )
    built = attention.build(direction="both" if training else "fwd", target="native")
    return Pair(built, _fixed_places(built, sm), device)


def _check_target(attention: Attention, sm: int) -> None:
    """Raises PlanDeviceError if all plans of a file are for other GPUs."""
    targets = {f"{info.target} (sm_{info.sm})" for info in attention.plans}
    if targets and all(info.sm != sm for info in attention.plans):
        raise PlanDeviceError(
            f"the plan file of `{attention.name}` is for {' and '.join(sorted(targets))}, and this GPU is"
            f" sm_{sm}",
            ["attn.load(path, recompile=True) compiles its spec again"],
            "plan_device",
        )


def _wants_deterministic(form: Form | None) -> bool:
    return torch.are_deterministic_algorithms_enabled() if form is None else form.deterministic


def _fixed_places(plan: bytes, sm: int) -> dict[str, int]:
    places: dict[str, int] = {}
    for place, info in enumerate(_libattn.PlanFile(plan).plans):
        if info.sm == sm:
            places.setdefault(info.direction, place)
    return places


def run_forward(each: Call, training: bool) -> tuple[torch.Tensor, ...]:
    """The outputs in the order of the facts' `all_outputs` if training, else of `outputs`."""
    facts = facts_of(each.attention)
    names = facts.all_outputs if training else facts.outputs
    if empty.is_empty(each):
        return empty.run_forward(each, facts, names)
    if each.tensors["q"].device.type == "cpu":
        outputs = _run_reference(each, names)
    else:
        with torch.cuda.device(each.tensors["q"].device):
            tensors = {name: aligned(tensor) for name, tensor in each.tensors.items()}
            outputs = pair_of(each, training).run_forward(tensors, each.params)
    return tuple(outputs[name] for name in names)


def run_backward(
    each: Call, outputs: Sequence[torch.Tensor], d_o: torch.Tensor
) -> dict[str, torch.Tensor]:
    """What the facts' `of_backward` names: the gradients of q, k, v and learned tensors, and amax."""
    facts = facts_of(each.attention)
    if empty.is_empty(each):
        return empty.run_backward(each, facts)
    if each.tensors["q"].device.type == "cpu":
        return _run_reference_backward(each, d_o)
    tensors = {**each.tensors, **dict(zip(facts.all_outputs, outputs))}
    strides = output_strides(each.form) if each.form else tensors["o"].stride()
    if d_o.stride() != strides:
        d_o = torch.empty_strided(d_o.shape, strides, dtype=d_o.dtype, device=d_o.device).copy_(d_o)
    with torch.cuda.device(each.tensors["q"].device):
        return pair_of(each, True).run_backward({**tensors, "do": aligned(d_o)}, each.params)


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        refuse_second_derivative()


def refuse_second_derivative() -> NoReturn:
    """Raises Unsupported: a backward cannot be differentiated."""
    raise Unsupported(
        "second derivatives of an attention are not computed",
        ["call backward or torch.autograd.grad without create_graph=True"],
    )


def differentiable_once(
    gradients: Sequence[torch.Tensor | None], saved: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor | None]:
    """The gradients; their own derivatives, which depend on what was saved, are refused: otherwise they
    would be taken for zero."""
    if not torch.is_grad_enabled():  # without create_graph=True
        return gradients
    found = [gradient for gradient in gradients if gradient is not None]
    guarded = iter(_Once.apply(len(found), *found, *saved))
    return [None if gradient is None else next(guarded) for gradient in gradients]


def _dense(each: Call) -> tuple[Dense, dict[str, Any]]:
    """The tensors in logical order, and the sizes and parameters."""
    facts, bindings = facts_of(each.attention), each.attention.bindings
    tensors = {name: _widened(tensor) for name, tensor in each.tensors.items()}
    found = Dense(facts.addressing or NOT_ADDRESSED, tensors, facts.said.sizes)
    sizes = sizes_of(*(found.tensors[name] for name in INPUTS))
    return found, {**{name: value for name, value in bindings.items() if name != "D"}, **sizes._asdict()}


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, as f32 if it has 8 bits, which PyTorch can only copy and convert."""
    return tensor.detach().float() if tensor.dtype in EIGHT_BITS else tensor


def _numpy(tensor: torch.Tensor) -> Any:
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype in IN_KERNELS else tensor).contiguous().numpy()


def _run_reference(each: Call, names: Sequence[str]) -> dict[str, torch.Tensor]:
    found, bindings = _dense(each)
    facts, dtype = facts_of(each.attention), each.tensors["q"].dtype
    values = reference(
        each.attention.source,
        bindings,
        {**{name: _numpy(tensor) for name, tensor in found.tensors.items()}, **each.params},
        outputs=names,
        unrounded=dtype not in IN_KERNELS,
        dtype=DTYPES[dtype] if dtype in HALF else None,
    )
    made = {name: torch.from_numpy(value) for name, value in values.items()}
    return {
        name: (value if is_amax(name) else found.output(name, value)).to(facts.dtype_of(name, dtype))
        for name, value in made.items()
    }


def _run_reference_backward(each: Call, d_o: torch.Tensor) -> dict[str, torch.Tensor]:
    facts, dtype = facts_of(each.attention), each.tensors["q"].dtype
    wanted = facts.differentiated
    found, bindings = _dense(each)
    values = reference(
        each.attention.source,
        bindings,
        {**{name: _numpy(tensor) for name, tensor in found.tensors.items()}, **each.params},
        outputs=(),
        gradients={
            "do": _numpy(found.gradient_of_output(_widened(d_o))),
            "of": wanted,
            "amax": facts.amax_of_backward,
        },
        unrounded=dtype not in IN_KERNELS,
        dtype=DTYPES[dtype] if dtype in HALF else None,
    )
    made = {name: torch.from_numpy(values[name]) for name in facts.of_backward}
    for name in wanted:
        made[name] = found.gradient(name, made[name]).to(facts.gradient_dtype(name, each.tensors[name]))
    return made
