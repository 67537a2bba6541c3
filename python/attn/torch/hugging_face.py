"""Attention for models of Hugging Face's Transformers, through its attention interface.

    attn.torch.hugging_face.register()
    model = AutoModelForCausalLM.from_pretrained(.., attn_implementation="attnc")

Transformers is imported by `register` alone. docs/hugging_face.md says what models get.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from attn.errors import UnsupportedError
from attn.torch.blocks import ANY_LENGTH
from attn.torch.flex import flex_attention
from attn.torch.statistics import is_capturing
from attn.types import Mod

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

NAME = "attnc"
_SMALLEST_BUCKET = 128


def register(name: str = NAME) -> None:
    """Makes `attn_implementation=name` known to Transformers, whose models then call this package for attention and
    for masks. Raises UnsupportedError if Transformers is not installed, or has no interface for attention (before
    4.48). May be called again."""
    try:
        from transformers import AttentionInterface
    except ImportError as error:
        raise UnsupportedError(f"Transformers' attention interface cannot be imported: {error}",
                          ["pip install 'transformers>=4.53'"]) from error
    AttentionInterface.register(name, attention)
    try:
        from transformers.masking_utils import AttentionMaskInterface
    except ImportError:
        return  # models of these versions make masks that are tensors
    AttentionMaskInterface.register(name, mask)


def attention(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
              attention_mask: BlockMask | torch.Tensor | None, scaling: float | None = None, dropout: float = 0.0,
              softcap: float | None = None, s_aux: torch.Tensor | None = None,
              position_bias: torch.Tensor | None = None, is_causal: bool | None = None,
              **_: object) -> tuple[torch.Tensor, None]:
    """The attention of a layer, as Transformers calls it: query [B, Hq, Sq, D], key and value [B, Hkv, Skv, D]; returns
    [B, Sq, Hq, Dv] and no weights.

    `attention_mask`: what `mask` returns, a BlockMask, a tensor [B or 1, Hq or 1, Sq, Skv or more] of bools or of what
    is added to scores, or None: causal if `is_causal`, or the module, says so. `softcap`, `position_bias` [B or 1,
    Hq or 1, Sq, Skv] and `s_aux`, a sink for each head [Hq], as in Gemma 2, T5 and gpt-oss; all have gradients."""
    mask_mod, block_mask = _mask_of(module, query, key, attention_mask, is_causal)
    bias = attention_mask if isinstance(attention_mask, torch.Tensor) and attention_mask.is_floating_point() else None
    if block_mask is None and mask_mod is not None and _decodes(query, key):
        key, value, mask_mod = _in_a_bucket(key, value, mask_mod)
    biases = tuple(_padded_bias(x, key.shape[2]) for x in (bias, position_bias) if x is not None)
    score_mod = _score_mod(softcap, biases)
    dropped = dropout if module.training else 0.0
    if s_aux is None:
        found = flex_attention(query, key, value, score_mod, block_mask, scaling, enable_gqa=True, mask_mod=mask_mod,
                               dropout_p=dropped)
    else:
        found, lse = flex_attention(query, key, value, score_mod, block_mask, scaling, enable_gqa=True,
                                    return_lse=True, mask_mod=mask_mod, dropout_p=dropped)
        factor = torch.sigmoid(lse - s_aux.view(1, -1, 1).to(lse.dtype))[..., None]
        found = (found * factor).to(found.dtype)  # which is rounded once
    return found.transpose(1, 2).contiguous(), None


def mask(batch_size: int, *, kv_length: int, kv_offset: int = 0, mask_function: Mod | None = None,
         attention_mask: torch.Tensor | None = None, q_length: int | None = None, q_offset: int | torch.Tensor = 0,
         cache_position: torch.Tensor | None = None, device: torch.device | str = "cpu",
         **_: object) -> BlockMask | torch.Tensor | None:
    """The mask of layers, as Transformers asks for it: a BlockMask whose blocks say nothing, with the mask_mod of rows
    `q_offset` on and keys `kv_offset` on, and of `attention_mask`, the tokens [B, n] that are no padding. Before
    Transformers 5, `cache_position` has the places of the rows instead. Nothing of the size of the scores is made."""
    from torch.nn.attention.flex_attention import BlockMask

    if cache_position is not None:
        q_length, q_offset, device = cache_position.shape[0], cache_position[0], cache_position.device
    elif attention_mask is not None:
        device = attention_mask.device
    rows = int(q_length) if q_length is not None else kv_length
    decodes = rows < kv_length
    if decodes and not isinstance(q_offset, torch.Tensor):
        q_offset = torch.full((), q_offset, dtype=torch.int32, device=device)  # one plan for all steps
    elif not decodes and isinstance(q_offset, torch.Tensor) and _can_be_looked_at(q_offset):
        q_offset = int(q_offset)  # which the compiler finds bands by
    if mask_function is None and attention_mask is None and not isinstance(q_offset, torch.Tensor):
        q_offset, kv_offset = q_offset - kv_offset, 0  # causal ones are the same everywhere
    length = bucket(kv_length) if decodes else kv_length
    padding = _padding(attention_mask, kv_length + kv_offset, length + kv_offset)
    visible = _mask_mod(mask_function, padding, q_offset, kv_offset)
    ones = torch.ones((1, 1, 1), dtype=torch.int32, device=device)
    made: BlockMask = BlockMask.from_kv_blocks(ones, torch.zeros_like(ones)[..., None], BLOCK_SIZE=ANY_LENGTH,
                                               mask_mod=visible, seq_lengths=(rows, kv_length))
    return made


def bucket(length: int) -> int:
    """The number of keys for which a step of a generation has a plan: at most an eighth more than there are, or 128."""
    step = max(_SMALLEST_BUCKET, 1 << max(0, length.bit_length() - 4))
    return -(-length // step) * step


def _decodes(query: torch.Tensor, key: torch.Tensor) -> bool:
    """Whether keys of earlier calls come with new rows, in which case there are more at each call."""
    return query.shape[2] < key.shape[2] and not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def _in_a_bucket(key: torch.Tensor, value: torch.Tensor,
                 mask_mod: Callable[..., Any]) -> tuple[torch.Tensor, torch.Tensor, Callable[..., Any]]:
    missing = bucket(key.shape[2]) - key.shape[2]
    length = torch.full((), key.shape[2], dtype=torch.int32, device=key.device)

    def within(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (kv_idx < length) & mask_mod(b, h, q_idx, kv_idx)

    if missing:
        key, value = (torch.nn.functional.pad(x, (0, 0, 0, missing)) for x in (key, value))
    return key, value, within


def _padded_bias(bias: torch.Tensor, keys: int) -> torch.Tensor:
    missing = keys - bias.shape[-1]
    return torch.nn.functional.pad(bias, (0, missing)) if missing > 0 else bias[..., :keys]


def _mask_of(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, given: Any,
             is_causal: bool | None) -> tuple[Callable[..., Any] | None, Any]:
    """The mask_mod, or the BlockMask, of what a layer is given."""
    if given is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        return (_causal if causal and query.shape[2] > 1 else None), None
    if isinstance(given, torch.Tensor):
        if given.is_floating_point():  # what is added to scores
            return (_everything if _decodes(query, key) else None), None
        return _of_tensor(_padded_bias(given, bucket(key.shape[2]) if _decodes(query, key) else key.shape[2])), None
    if given.BLOCK_SIZE[0] < ANY_LENGTH:
        return None, given
    return given.mask_mod, None


def _causal(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return q_idx >= kv_idx


def _everything(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return kv_idx >= 0


def _of_tensor(visible: torch.Tensor) -> Callable[..., Any]:
    batches, heads = visible.shape[:2]

    def listed(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return visible[b if batches > 1 else 0, h if heads > 1 else 0, q_idx, kv_idx]

    return listed


def _score_mod(softcap: float | None, biases: tuple[torch.Tensor, ...]) -> Callable[..., Any] | None:
    if softcap is None and not biases:
        return None

    def modified(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        for bias in biases:
            batches, heads = bias.shape[:2]
            score = score + bias[b if batches > 1 else 0, h if heads > 1 else 0, q_idx, kv_idx]
        return score

    return modified


def _can_be_looked_at(tensor: torch.Tensor) -> bool:
    """Whether the host may wait for its elements."""
    return not torch.compiler.is_compiling() and not (tensor.is_cuda and is_capturing())


def _padding(attention_mask: torch.Tensor | None, keys: int, length: int) -> torch.Tensor | None:
    """The tokens that are no padding, `length` of them, of which the first `keys` are there; those that the mask does
    not say are hidden, as Transformers pads it. None if it shows all keys, which is looked at, as Transformers does,
    unless a program is traced or a CUDA graph is captured."""
    if attention_mask is None or attention_mask.dim() != 2:
        return None
    given = attention_mask.shape[-1]
    if given >= keys and _can_be_looked_at(attention_mask) and bool(attention_mask.all()):
        return None
    kept = attention_mask.bool()
    return torch.nn.functional.pad(kept, (0, length - given)) if length > given else kept


def _mask_mod(mask_function: Callable[..., Any] | None, padding: torch.Tensor | None, q_offset: Any,
              kv_offset: Any) -> Callable[..., Any]:
    function = _causal if mask_function is None else mask_function
    moved = isinstance(q_offset, torch.Tensor) or q_offset != 0

    def visible(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        row = q_idx + q_offset if moved else q_idx
        column = kv_idx + kv_offset if kv_offset else kv_idx
        found = function(b, h, row, column)
        return found if padding is None else found & padding[b, column]

    return visible
