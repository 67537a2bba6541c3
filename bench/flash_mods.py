"""The attentions of bench/variants in FlashAttention-4's own terms: arguments of flash_attn_func.

They are its best form where it has one: options for causal masks and windows, and score modifiers in CuTe
DSL that read memory only for biases. Softcap is a modifier, too: its own option divides each score, and its
kernel has twice the instructions. Other masks reach it through FlexAttention's block masks (peers.py).
Imported only where flash_attn.cute is installed.

The backward needs the derivative of a modifier. It is given for those that read no positions: with grouped
queries, 4.0.0b36 passes wrong ones in the backward.
"""
import cutlass
import cutlass.cute as cute

CAP = 30.0


@cute.jit
def softcap(score, _b, _h, q_idx, kv_idx, seqlen_info, aux_tensors):
    return CAP * cute.math.tanh(score * (1 / CAP), fastmath=True)


@cute.jit
def softcap_backward(grad, score, _b, _h, q_idx, kv_idx, seqlen_info, aux_tensors):
    capped = cute.math.tanh(score * (1 / CAP), fastmath=True)
    return grad * (1.0 - capped * capped)


def alibi(heads):
    @cute.jit
    def modify(score, _b, h, q_idx, kv_idx, seqlen_info, aux_tensors):
        slope = cute.math.exp2((h + 1).to(cutlass.Float32) * (-8.0 / heads), fastmath=True)
        return score + slope * (kv_idx - q_idx).to(cutlass.Float32)

    return modify


@cute.jit
def relative_bias(score, _b, _h, q_idx, kv_idx, seqlen_info, aux_tensors):
    return score + (q_idx - kv_idx).to(cutlass.Float32) * 0.01


@cute.jit
def squared(score, _b, _h, q_idx, kv_idx, seqlen_info, aux_tensors):
    return score * score


@cute.jit
def squared_backward(grad, score, _b, _h, q_idx, kv_idx, seqlen_info, aux_tensors):
    return 2.0 * score * grad


@cute.jit
def checkerboard(score, _b, _h, q_idx, kv_idx, seqlen_info, aux_tensors):
    odd = ((kv_idx - q_idx) & 1).to(cutlass.Float32)
    return score * (2.0 - 1.5 * odd)


@cute.jit
def bias_head(score, _b, h, q_idx, kv_idx, seqlen_info, aux_tensors):
    read = cute.make_rmem_tensor(1, aux_tensors[0].element_type)
    read[0] = aux_tensors[0][h[0], q_idx[0], kv_idx[0]]
    return score + read.load().to(cutlass.Float32)


@cute.jit
def bias_full(score, _b, _h, q_idx, kv_idx, seqlen_info, aux_tensors):
    read = cute.make_rmem_tensor(1, aux_tensors[0].element_type)
    read[0] = aux_tensors[0][q_idx[0], kv_idx[0]]
    return score + read.load().to(cutlass.Float32)


SOFTCAP = dict(score_mod=softcap, score_mod_bwd=softcap_backward)


def arguments(case):
    """Keyword arguments of flash_attn_func for a case, or None if only block masks express it."""
    _, heads, _, _, _ = case.shape
    return {
        "noop": {},
        "causal": dict(causal=True),
        "sliding_window_256": dict(window_size=(255, 0)),
        "sliding_window_1024": dict(window_size=(1023, 0)),
        "softcap": SOFTCAP,
        "softcap_causal": dict(**SOFTCAP, causal=True),
        "softcap_window_256": dict(**SOFTCAP, window_size=(255, 0)),
        "alibi_causal": dict(score_mod=alibi(heads), causal=True),
        "relative_bias": dict(score_mod=relative_bias),
        "squared": dict(score_mod=squared, score_mod_bwd=squared_backward),
        "checkerboard": dict(score_mod=checkerboard),
        "bias_head": dict(score_mod=bias_head, aux_tensors=[case.tensors.get("bias_head")]),
        "bias_full": dict(score_mod=bias_full, aux_tensors=[case.tensors.get("bias_full")]),
    }.get(case.variant)
