"""What is meant by arguments of other libraries' attentions, for errors."""
from __future__ import annotations

from typing import Iterable

from .errors import ArgumentError

_CAUSAL = ("a mask is part of the spec: attn.compile(\"causal\"), or "
           "mask_mod=lambda b, h, q_idx, kv_idx: q_idx >= kv_idx")
_MASK = ("a mask is part of the spec, and reads a tensor: `tensor keep: bool[Sq, Skv]; "
         "mask keep[q_idx, kv_idx];`, or mask_mod=lambda b, h, q_idx, kv_idx: keep[q_idx, kv_idx]")
_BIAS = "a bias is part of the spec: `tensor bias: f32[Hq, Sq, Skv]; score score + bias[h, q_idx, kv_idx];`"
_LENGTHS = "a spec with `lengths kv;` takes lengths_kv, one with `layout thd;` cu_seqlens_q and cu_seqlens_kv"
_ENGINE = "engine=\"auto\" chooses; \"native\" are attnc's own fused kernels, \"cudnn\" those of cuDNN"

_ARGUMENTS = {
    **dict.fromkeys(("is_causal", "causal"), _CAUSAL),
    **dict.fromkeys(("attn_mask", "attention_mask", "mask", "key_padding_mask", "block_mask"), _MASK),
    **dict.fromkeys(("attn_bias", "bias"), _BIAS),
    **dict.fromkeys(("cu_seqlens", "seqlens", "seq_lens", "cache_seqlens", "max_seqlen_q", "max_seqlen_k"),
                    _LENGTHS),
    **dict.fromkeys(("scale", "softmax_scale", "sm_scale"),
                    "the scale is part of the spec: `scale 1 / sqrt(D);`"),
    **dict.fromkeys(("dropout", "dropout_p"), "dropout is part of the spec: `dropout 0.1;`"),
    **dict.fromkeys(("softcap", "logits_soft_cap"),
                    "a softcap is part of the spec: `score cap * tanh(score / cap);`"),
    **dict.fromkeys(("window", "window_size", "sliding_window"),
                    "a window is part of the spec: `mask q_idx >= kv_idx && q_idx - kv_idx < 1024;`"),
    **dict.fromkeys(("enable_gqa", "num_kv_heads"), "k and v may have fewer heads than q: the size Hkv"),
    **dict.fromkeys(("num_heads", "n_heads", "heads", "H"),
                    "the heads of q are the size Hq, those of k and v Hkv"),
    **dict.fromkeys(("head_dim", "d_model", "embed_dim"), "the elements of a row are the size D"),
    **dict.fromkeys(("seq_len", "seqlen", "max_seq_len", "S", "L"), "the rows are the size Sq, the keys Skv"),
    **dict.fromkeys(("batch", "batch_size", "bs"), "batches are the size B"),
    **dict.fromkeys(("return_lse", "return_attn_probs", "need_weights"),
                    "outputs are part of the spec: `outputs o, lse;`"),
    **dict.fromkeys(("backend", "implementation", "attn_implementation"),
                    "which kernels are used is engine=: " + _ENGINE),
    **dict.fromkeys(("device", "arch", "gpu"), "the GPU to compile for is target=, one of attn.targets()"),
    "dtype": "the dtype is part of the spec: `dtype bf16;`; calls of torch tensors have their own",
    "tensor_layout": "the order of dimensions is layout=",
}


def of_argument(name: str) -> list[str]:
    """A note on what is written instead of an argument that there is not."""
    return [_ARGUMENTS[name]] if name in _ARGUMENTS else []


def refuse(function: str, arguments: Iterable[str]) -> None:
    """Raises ArgumentError for arguments that a function does not have."""
    for name in arguments:
        raise ArgumentError(f"{function} has no argument `{name}`", of_argument(name))


def of_engine(name: object) -> list[str]:
    """A note on what engines there are, if the value is a string."""
    return [_ENGINE] if isinstance(name, str) else []


def of_target(name: object) -> list[str]:
    """Hints for a target that names a kind of device instead of a GPU."""
    kind = str(name).partition(":")[0].lower()
    if kind in ("cuda", "gpu", "nvidia", "native", "auto", "local"):
        return ["the local GPU is the default, and also called target=\"native\""]
    if kind in ("cpu", "reference", "host"):
        return ["nothing is compiled for a CPU: without target=, the reference computes arrays and tensors there"]
    return []
