"""The attentions of bench/variants as FlexAttention mods: (score_mod, mask_mod), each possibly None.

tests/flexattention/variants_test.py compares them with the specs.
"""

WIDTH, REACH = 32, 6  # of natten_13
TOKENS = 64  # global tokens of longformer
DOCUMENTS = 8
TENSORS = ("doc", "slopes", "bias_head", "bias_full")
READ = {  # variant: names of the tensors that it reads
    "document": ["doc"],
    "document_causal": ["doc"],
    "alibi_causal": ["slopes"],
    "bias_head": ["bias_head"],
    "bias_full": ["bias_full"],
}


def captured(shape, device, names=TENSORS):
    """The named tensors that the mods read; shape is (B, Hq, Hkv, S, D)."""
    import torch

    _, heads, _, size, _ = shape
    bf16 = dict(device=device, dtype=torch.bfloat16)
    make = {
        "doc": lambda: DOCUMENTS * torch.arange(size, device=device) // size,
        "slopes": lambda: torch.exp2(-(torch.arange(heads, device=device) + 1.0) * 8 / heads),
        "bias_head": lambda: torch.randn(heads, size, size, **bf16),
        "bias_full": lambda: torch.randn(size, size, **bf16),
    }
    return {name: make[name]() for name in names}


def masks(tensors):
    doc = tensors.get("doc")

    def causal(_b, _h, q, k):
        return q >= k

    def window(size):
        return lambda _b, _h, q, k: (q >= k) & (q - k < size)

    def natten(_b, _h, q, k):
        in_y = abs(q // WIDTH - k // WIDTH) <= REACH
        return in_y & (abs(q % WIDTH - k % WIDTH) <= REACH)

    return {
        "noop": None,
        "causal": causal,
        "sliding_window_256": window(256),
        "sliding_window_1024": window(1024),
        "prefix_lm_128": lambda _b, _h, q, k: (q >= k) | (k < 128),
        "chunked_256": lambda _b, _h, q, k: (q // 256 == k // 256) & (q >= k),
        "document": lambda _b, _h, q, k: doc[q] == doc[k],
        "document_causal": lambda _b, _h, q, k: (doc[q] == doc[k]) & (q >= k),
        "natten_13": natten,
        "longformer": lambda _b, _h, q, k: (abs(q - k) <= 256) | (q < TOKENS) | (k < TOKENS),
        "dilated_window": lambda _b, _h, q, k: (abs(q - k) <= 512) & ((q - k) % 4 == 0),
        "softcap_causal": causal,
        "softcap_window_256": window(256),
        "alibi_causal": causal,
    }


def scores(tensors):
    import torch

    slopes, by_head, full = (tensors.get(name) for name in TENSORS[1:])

    def softcap(score, _b, _h, _q, _k):
        return 30 * torch.tanh(score / 30)

    def checkerboard(score, _b, _h, q, k):
        return torch.where(abs(k - q) % 2 == 1, score * 0.5, score * 2.0)

    return {
        "softcap": softcap,
        "softcap_causal": softcap,
        "softcap_window_256": softcap,
        "alibi_causal": lambda score, _b, h, q, k: score + slopes[h] * (k - q),
        "relative_bias": lambda score, _b, _h, q, k: score + (q - k) * 0.01,
        "squared": lambda score, _b, _h, _q, _k: score * score,
        "checkerboard": checkerboard,
        "bias_head": lambda score, _b, h, q, k: score + by_head[h, q, k],
        "bias_full": lambda score, _b, _h, q, k: score + full[q, k],
    }


def mods(tensors):
    """{variant: (score_mod, mask_mod)}, reading the tensors of captured(), which has those of the variants
    that are used."""
    by_mask, by_score = masks(tensors), scores(tensors)
    return {name: (by_score.get(name), by_mask.get(name)) for name in by_mask | by_score}
