"""The attentions of bench/variants in FlashAttention-4's own terms: arguments of flash_attn_func.

They are its best form where it has one: options for causal masks, windows and softcap, and score modifiers in
CuTe DSL that read memory only for biases. Other masks reach it through FlexAttention's block masks (peers.py).
Imported only where flash_attn.cute is installed.
"""
import cutlass
import cutlass.cute as cute

OPTIONS = {
    "noop": {},
    "causal": dict(causal=True),
    "sliding_window_256": dict(window_size=(255, 0)),
    "sliding_window_1024": dict(window_size=(1023, 0)),
    "softcap": dict(softcap=30.0),
    "softcap_causal": dict(softcap=30.0, causal=True),
    "softcap_window_256": dict(softcap=30.0, window_size=(255, 0)),
}


def alibi(heads):
    @cute.jit
    def modify(score, _b, h, q, k, _lengths, _tensors):
        slope = cute.math.exp2((h + 1).to(cutlass.Float32) * (-8.0 / heads), fastmath=True)
        return score + slope * (k - q).to(cutlass.Float32)

    return modify


@cute.jit
def relative_bias(score, _b, _h, q, k, _lengths, _tensors):
    return score + (q - k).to(cutlass.Float32) * 0.01


@cute.jit
def squared(score, _b, _h, _q, _k, _lengths, _tensors):
    return score * score


@cute.jit
def checkerboard(score, _b, _h, q, k, _lengths, _tensors):
    odd = ((k - q) & 1).to(cutlass.Float32)
    return score * (2.0 - 1.5 * odd)


@cute.jit
def bias_head(score, _b, h, q, k, _lengths, tensors):
    at = cute.make_rmem_tensor(3, cutlass.Int32)
    at[0], at[1], at[2] = h[0], q[0], k[0]
    read = cute.make_rmem_tensor(1, tensors[0].element_type)
    read[0] = tensors[0][at[0], at[1], at[2]]
    return score + read.load().to(cutlass.Float32)


@cute.jit
def bias_full(score, _b, _h, q, k, _lengths, tensors):
    at = cute.make_rmem_tensor(2, cutlass.Int32)
    at[0], at[1] = q[0], k[0]
    read = cute.make_rmem_tensor(1, tensors[0].element_type)
    read[0] = tensors[0][at[0], at[1]]
    return score + read.load().to(cutlass.Float32)


def arguments(case):
    """Keyword arguments of flash_attn_func for a case, or None if only block masks express it."""
    _, heads, _, _, _ = case.shape
    modifiers = {
        "alibi_causal": dict(score_mod=alibi(heads), causal=True),
        "relative_bias": dict(score_mod=relative_bias),
        "squared": dict(score_mod=squared),
        "checkerboard": dict(score_mod=checkerboard),
        "bias_head": dict(score_mod=bias_head, aux_tensors=[case.tensors.get("bias_head")]),
        "bias_full": dict(score_mod=bias_full, aux_tensors=[case.tensors.get("bias_full")]),
    }
    return (OPTIONS | modifiers).get(case.variant)
