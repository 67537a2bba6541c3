"""FlexAttention's call, computed by attnc."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Union, overload

import torch

from attn import hints
from attn.arguments import Sizes, sizes_of
from attn.errors import BindingError
from attn.specs import Spec
from attn.torch import blocks, dynamo, nested, sharded
from attn.torch.blocks import Adds
from attn.torch.calls import add_random, beside, check_kind
from attn.torch.graph_mods import GraphMod, hint
from attn.torch.joined_blocks import joined
from attn.torch.known_mods import KnownMods
from attn.torch.recall import Recalled, Texts
from attn.torch.signature import DTYPES, HALF, PLAIN
from attn.trace import Traced, trace, unwrapped
from attn.tracing.recipes import sources
from attn.types import Mod, Outputs

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import AuxOutput, AuxRequest, BlockMask

_Options = tuple[Union[float, None], tuple[str, ...], float]  # scale, outputs, dropout_p

MOST_KEPT = 256  # traces, and attentions: least recently used dropped first

MOST_GROUPS = 4096


class _Group:
    """Calls whose q, k and v are of the same shapes, types and devices, with the same options."""

    __slots__ = ("sizes", "options", "expands", "layout")

    def __init__(self, sizes: Sizes, options: _Options, expands: bool = False, layout: str = "bhsd"):
        self.sizes = sizes
        self.options = options
        self.expands = expands  # k and v of one batch
        self.layout = layout  # of q, k and v in memory: "thd", if they are packed


_groups: dict[Any, _Group] = {}
_kept = KnownMods(MOST_KEPT)
_texts = Texts(MOST_KEPT)


@overload
def flex_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Mod | None = None,
    block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False,
    return_lse: Literal[False] = False, kernel_options: object = None, *, return_aux: None = None,
    mask_mod: Mod | None = None, dropout_p: float = 0.0, **others: object,
) -> torch.Tensor: ...


@overload
def flex_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Mod | None = None,
    block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False,
    return_lse: bool = False, kernel_options: object = None, *, return_aux: AuxRequest,
    mask_mod: Mod | None = None, dropout_p: float = 0.0, **others: object,
) -> tuple[torch.Tensor, AuxOutput]: ...


@overload
def flex_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Mod | None = None,
    block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False,
    *, return_lse: Literal[True], kernel_options: object = None, return_aux: None = None,
    mask_mod: Mod | None = None, dropout_p: float = 0.0, **others: object,
) -> tuple[torch.Tensor, torch.Tensor]: ...


def flex_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Mod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: object = None,
    *,
    return_aux: AuxRequest | None = None,
    mask_mod: Mod | None = None,
    dropout_p: float = 0.0,
    **others: object,
) -> Outputs:
    """`torch.nn.attention.flex_attention.flex_attention`, with dropout.

    query [B, Hq, Sq, D], key [B or 1, Hkv, Skv, D], value [B or 1, Hkv, Skv, Dv]; those of one batch are those of
    all batches, for each of which they are copied; heads that are one by `expand` are copied only if they have
    gradients. The mask is `mask_mod`, or that of `block_mask`, as PyTorch computes it: what its mask_mod shows of the
    blocks that it lists, and its full blocks whole. Blocks that follow from the mask_mod, as those of
    `create_block_mask`, are not needed: they are compared with it once. `kernel_options` are ignored: they tune other
    kernels. Returns o, or (o, lse) with the natural logarithm's lse, or with `return_aux`
    (o, AuxOutput) with lse and max_scores, float32 [B, Hq, Sq], as far as they are asked for. Captured
    tensors that require a gradient get one, and backwards may go through lse.
    `others` are arguments of other attentions, which are refused.

    Jagged nested tensors [B, H, j, D] are packed sequences: mods count the rows and keys of each, and outputs are
    nested. DTensors may be divided by batches and heads in equal parts: mods count those of the whole.

    A pair of mods is traced once: again only if what they read changes, other than the elements of tensors
    and arrays; at each call if they read what cannot be compared (docs/flexattention.md). Raises TraceError for
    mods that cannot be traced, and what `attn.torch.call` raises.
    """
    del kernel_options
    if others:
        hints.refuse("flex_attention", others)
    outputs: tuple[str, ...] = ("o", "lse") if return_lse else ("o",)
    if return_aux is not None:
        outputs = _outputs_of(return_aux, return_lse)
    options = (scale, outputs, float(dropout_p))
    run = _attend_in_graph if torch.compiler.is_dynamo_compiling() else _attend
    found = run((query, key, value), (score_mod, mask_mod), block_mask, options, enable_gqa)
    return found if return_aux is None else _with_aux(outputs, found)


def _outputs_of(request: AuxRequest, return_lse: bool) -> tuple[str, ...]:
    """The outputs of the spec that a request needs."""
    if return_lse:
        raise BindingError("return_lse and return_aux were both given: return_aux=AuxRequest(lse=True) has lse")
    return ("o", *(("lse",) if request.lse else ()), *(("max",) if request.max_scores else ()))


def _with_aux(outputs: tuple[str, ...], found: Any) -> tuple[torch.Tensor, AuxOutput]:
    """o and what was asked for beside it, of what an attention returned."""
    from torch.nn.attention.flex_attention import AuxOutput

    named = dict(zip(outputs, found if isinstance(found, tuple) else (found,)))
    largest = named.get("max")  # which has no gradient, there as here
    return named["o"], AuxOutput(lse=named.get("lse"), max_scores=None if largest is None else largest.detach())


def _attend(
    tensors: tuple[torch.Tensor, ...],
    mods: tuple[Mod | None, Mod | None],
    block_mask: BlockMask | None,
    options: _Options,
    enable_gqa: bool,
    changed: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
) -> Any:
    """`changed`: what becomes of captured tensors before the call."""
    if tensors[0].is_nested or tensors[1].is_nested or tensors[2].is_nested:
        return _attend_nested(tensors, mods, block_mask, options, enable_gqa)
    if type(tensors[0]) not in PLAIN and sharded.is_distributed(tensors[0]):
        part = sharded.part_of(tensors)
        block_mask = None if block_mask is None else part.block_mask(block_mask)
        found = _attend(part.local, part.shifted(mods), block_mask, options, enable_gqa, part.summed)
        return part.whole(found) if isinstance(found, torch.Tensor) else tuple(map(part.whole, found))
    tensors, group = _grouped(tensors, options, enable_gqa)
    if tensors[1].stride(1) == 0 and _share_a_head(tensors):
        one_head = (tensors[0], *(x[:, :1] for x in tensors[1:]))
        return _attend(one_head, mods, block_mask, options, True, changed)
    query, sizes = tensors[0], group.sizes
    score_mod, mask_mod = mods
    known = None
    if block_mask is not None:
        if mask_mod is not None:
            _refuse_both()
        known = blocks.unwritten(block_mask, sizes)
        mask_mod = blocks.checked_mask(block_mask, sizes) if known is None else block_mask.mask_mod
    attention, captured, reads = _attention_of(query, unwrapped(score_mod, mask_mod), group)
    if block_mask is not None and (known is None or not known.follows(attention, captured)):
        adds = blocks.added(block_mask, query, sizes, attention, reads)
        if adds is not Adds.NOTHING:
            mask_mod = joined(block_mask, unwrapped(mask_mod)[0], query, sizes, adds)
            attention, captured, _ = _attention_of(query, unwrapped(score_mod, mask_mod), group)
    if changed is not None:
        captured = changed(captured)
    recent = attention._recent
    found = None if recent is None else recent.call(tensors, captured)
    return attention(*tensors, **captured) if found is None else found


def _share_a_head(tensors: tuple[torch.Tensor, ...]) -> bool:
    """Whether k and v of several heads are one, by strides of 0: kernels need no copies of it.

    Not where their gradients are recorded: each head has its own."""
    _, key, value = tensors
    records = torch.is_grad_enabled() and (key.requires_grad or value.requires_grad)
    return key.shape[1] > 1 and key.stride(1) == 0 == value.stride(1) and not records


def _grouped(
    tensors: tuple[torch.Tensor, ...], options: _Options, enable_gqa: bool
) -> tuple[tuple[torch.Tensor, ...], _Group]:
    """q, k and v, those of one batch as those of all, and their group, for which they are checked once."""
    query, key, value = tensors
    default = torch.get_default_dtype()  # of what the mods make
    of = (query.shape, key.shape, value.shape, query.dtype, query.device, options, enable_gqa, default)
    group = _groups.get(of)
    if group is None:
        found, sizes = _checked(tensors, enable_gqa)
        if len(_groups) >= MOST_GROUPS:
            _groups.clear()
        group = _groups[of] = _Group(sizes, options, found is not tensors)
    return _expanded(tensors) if group.expands else tensors, group


def _expanded(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    query, key, value = tensors
    return (query, *(x.expand(query.shape[0], -1, -1, -1) for x in (key, value)))


def _attend_nested(
    tensors: tuple[torch.Tensor, ...],
    mods: tuple[Mod | None, Mod | None],
    block_mask: BlockMask | None,
    options: _Options,
    enable_gqa: bool,
) -> Any:
    """`_attend` of jagged nested tensors, whose mods count rows and keys of each sequence."""
    if block_mask is not None:
        raise BindingError("a BlockMask is of sequences of one length, and query, key and value are nested tensors",
                           ["give its mask_mod: flex_attention(.., mask_mod=f)"])
    packed = nested.packed(tensors)
    query, key, _ = packed.tensors
    _check_heads(query.shape[1], key.shape[1], enable_gqa)
    found = unwrapped(*mods)
    group = _packed_group(query, packed.sizes, options)
    known, _ = _kept.find(group, found)
    if known is None:
        traced = _trace(found, group, query)
        known = _EXACT if traced.tensors else None
        if known is not None and traced.steps is not None:
            _kept.put(group, traced.steps, known)
    if known is _EXACT:  # a captured tensor has elements for rows of the longest sequence, and no others
        group = _packed_group(query, packed.exact_sizes, options)
    attention, captured, _ = _attention_of(query, found, group)
    outputs = attention(*packed.tensors, **captured, **packed.cumulative)
    return packed.nested(outputs) if isinstance(outputs, torch.Tensor) else tuple(map(packed.nested, outputs))


_EXACT = object()  # is kept for mods that need plans of exact lengths


def _packed_group(query: torch.Tensor, sizes: Sizes, options: _Options) -> _Group:
    of = ("thd", sizes, query.dtype, query.device, options, torch.get_default_dtype())
    if of not in _groups:
        _groups[of] = _Group(sizes, options, layout="thd")
    return _groups[of]


def _checked(tensors: tuple[torch.Tensor, ...], enable_gqa: bool) -> tuple[tuple[torch.Tensor, ...], Sizes]:
    """q, k and v, those of one batch as those of all, and their sizes."""
    query, key, value = tensors
    for name, tensor in zip(("query", "key", "value"), tensors):
        if not torch.compiler.is_dynamo_compiling():
            check_kind(name, tensor)
    if query.dim() == key.dim() == value.dim() == 4:
        batches = query.shape[0]
        if batches != 1 and key.shape[0] == 1 and value.shape[0] == 1:
            query, key, value = tensors = _expanded(tensors)
    sizes = sizes_of(query, key, value, note="tensors are [B, H, S, D]: give x.transpose(1, 2) of others")
    _check_heads(sizes.Hq, sizes.Hkv, enable_gqa)
    return tensors, sizes


def _check_heads(of_query: int, of_key: int, enable_gqa: bool) -> None:
    if of_query != of_key and not enable_gqa:
        raise BindingError(f"query has {of_query} heads and key {of_key}: pass enable_gqa=True, if that is meant")


def _refuse_both() -> NoReturn:
    raise BindingError("block_mask and mask_mod were both given: the mask of a block_mask is its own")


def _attention_of(
    query: torch.Tensor, mods: tuple[Any, ...], group: _Group
) -> tuple[Any, Mapping[str, Any], Callable[[str], Mapping[str, Any]]]:
    """The attention of the mods, the tensors that they capture, and by the name of one of what it is made."""
    found, values = _kept.find(group, mods)
    if found is not None:
        return found.attention, found.tensors(values), lambda name: found.read(name, values)
    traced = _trace(mods, group, query)
    spec = Spec(traced.text, traced=True, origins=traced.origins)
    attention = _texts.attention(spec, query, query.dtype, query.device.type)
    if traced.steps is None:
        return attention, traced.tensors, lambda name: {name: traced.tensors[name]}
    recalled = Recalled(attention, traced.recipes)
    _kept.put(group, traced.steps, recalled)
    found_at = {each.place: each.value for each in sources([*traced.recipes.values()])}
    return attention, traced.tensors, lambda name: recalled.read(name, found_at)


def _trace(mods: tuple[Any, ...], group: _Group, query: torch.Tensor) -> Traced:
    scale, outputs, dropout_p = group.options
    return trace(
        *mods,
        **group.sizes._asdict(),
        dtype=DTYPES[query.dtype] if query.dtype in HALF else "bf16",
        layout=group.layout,
        scale=scale,
        outputs=outputs,
        dropout=dropout_p,
        facts=False,  # the next call may capture other elements
    )


# --- in programs that are traced


def _attend_in_graph(
    tensors: tuple[torch.Tensor, ...],
    mods: tuple[Mod | None, Mod | None],
    block_mask: BlockMask | None,
    options: _Options,
    enable_gqa: bool,
) -> Any:
    """`_attend`, as Dynamo follows it: what its blocks say is known when it is called (listed_calls.py)."""
    try:
        (query, key, value), mask_mod, listed = _checked_in_graph(tensors, mods[1], block_mask, enable_gqa)
    except BindingError as error:  # Dynamo would not say the text of an error that it sees
        return _in_graph(*tensors, None, None, options, error.args[0])
    return _in_graph(query, key, value, mods[0], mask_mod, options, listed)


def _checked_in_graph(tensors: tuple[torch.Tensor, ...], mask_mod: Mod | None,
                      block_mask: BlockMask | None, enable_gqa: bool) -> tuple[Any, Any, Any]:
    """q, k and v, the mask_mod, and what `dynamo.Flex` is told of a block mask."""
    if tensors[0].is_nested or tensors[1].is_nested or tensors[2].is_nested:
        raise BindingError("query, key and value are nested tensors, which torch.compile does not follow here")
    if type(tensors[0]).__name__ == "DTensor":
        raise BindingError("query, key and value are DTensors, which torch.compile does not follow here")
    tensors, sizes = _checked(tensors, enable_gqa)
    if block_mask is None:
        return tensors, mask_mod, None
    if mask_mod is not None:
        _refuse_both()
    mask_mod = blocks.checked_mask(block_mask, sizes)
    lists = (block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_num_blocks,
             block_mask.full_kv_indices)
    grid = blocks.grid_of(block_mask, sizes)
    return tensors, mask_mod, (block_mask, lists, (grid.down, grid.across), block_mask.BLOCK_SIZE)


def _traced_in_graph(examples: Sequence[torch.Tensor], mods: Sequence[GraphMod | None], options: _Options) -> Any:
    """The trace of mods that Dynamo followed, and its attention."""
    query, key, value = examples
    shapes = [SimpleNamespace(shape=tuple(map(hint, x.shape))) for x in examples]
    traced = _trace(tuple(mods), _Group(sizes_of(*shapes), options), query)
    return traced, _texts.attention(Spec(traced.text, traced=True), shapes[0], query.dtype, query.device.type)


def _finish(
    name: str, names: tuple[str, ...], options: _Options, query: Any, key: Any, value: Any, *captured: Any
) -> Any:
    """The call of an operator, by the attention's name and those of what it captures."""
    named = {"q": query, "k": key, "v": value}
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
        named = {one: x.to(dtype) if x.dtype == torch.float32 else x for one, x in named.items()}
    for one, tensor in zip(names, captured):
        named[one] = beside(tensor.reshape(1) if tensor.dim() == 0 else tensor, query.device)
    _, outputs, dropout_p = options
    if dropout_p:
        add_random(named, query.device)
    tensors = list(named.values())
    training = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    found = torch.ops.attn.forward(name, list(named), tensors, [], training)
    return found[0] if len(outputs) == 1 else tuple(found[: len(outputs)])


def _where_the_graph_breaks(
    query: Any, key: Any, value: Any, score_mod: Any, mask_mod: Any, options: Any, listed: Any
) -> Any:
    if isinstance(listed, str):
        raise BindingError(listed)
    if listed is None:
        return _attend((query, key, value), (score_mod, mask_mod), None, options, True)
    return _attend((query, key, value), (score_mod, None), listed[0], options, True)


dynamo.never_compiled(_attend)
_in_graph = dynamo.Flex(_traced_in_graph, _finish, _where_the_graph_breaks)
