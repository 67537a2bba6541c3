"""Score modifications, some with masks."""
import functools
import math

import torch

from .registry import B, H, S, causal_mask, mods, wave


@mods
def relative_positional():
    def score_mod(score, b, h, q_idx, kv_idx):
        return score + (q_idx - kv_idx) * 0.1

    return score_mod, None


@mods
def relative_bias_table():
    max_distance = 11
    bias_table = wave(H, 23).requires_grad_()

    def relative_bias(score, b, h, q_idx, kv_idx):
        distance = torch.clamp(kv_idx - q_idx, -max_distance, max_distance)
        return score + bias_table[h, distance + max_distance]

    return relative_bias, None


@mods
def alibi():
    def generate_alibi_bias(heads):
        def alibi_mod(score, b, h, q_idx, kv_idx):
            scale = torch.exp2(-((h + 1) * 8.0 / heads))
            bias = (kv_idx - q_idx) * scale
            return score + bias

        return alibi_mod

    return generate_alibi_bias(H), causal_mask


@mods
def alibi_slopes():
    alibi_bias = torch.tensor([2.0 ** -(2 * i) for i in range(1, H + 1)])

    def alibi_score(score, b, h, q_idx, kv_idx):
        return score - alibi_bias[h] * (q_idx - kv_idx).abs()

    return alibi_score, None


@mods
def softcap():
    def generate_tanh_softcap(soft_cap):
        def tanh_softcap(score, b, h, q_idx, kv_idx):
            return soft_cap * torch.tanh(score / soft_cap)

        tanh_softcap.__name__ = f"tanh_softcap_{soft_cap}"
        return tanh_softcap

    return generate_tanh_softcap(2), causal_mask


class _Tanh(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.tanh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (result,) = ctx.saved_tensors
        return grad_output * (1 - result * result)


_tanh_approx = _Tanh.apply


@mods
def softcap_approx():
    def tanh_softcap(score, b, h, q_idx, kv_idx):
        return 2.5 * _tanh_approx(score / 2.5)

    return tanh_softcap, None


@mods
def causal_as_score():
    def causal_bias(score, b, h, q_idx, kv_idx):
        return torch.where(q_idx >= kv_idx, score, -float("inf"))

    return causal_bias, None


@mods
def document_as_score():
    seq_idx = torch.arange(S) // 20

    def same_sequence(score, b, h, q_idx, kv_idx):
        bias = torch.where(seq_idx[q_idx] == seq_idx[kv_idx], 0.0, -float("inf"))
        return score * 2 + bias

    return same_sequence, None


@mods
def checkerboard():
    def checkerboard(score, b, h, q_idx, kv_idx):
        score = torch.where(torch.abs(kv_idx - q_idx) % 2 == 1, score * 0.5, score)
        score = torch.where(torch.abs(kv_idx - q_idx) % 2 == 0, score * 2.0, score)
        return score

    return checkerboard, None


@mods
def squared_distance():
    def distance_squared(score, b, h, q_idx, kv_idx):
        return score - 0.01 * (q_idx - kv_idx) ** 2

    return distance_squared, None


@mods
def head_offset():
    head_offset = wave(H)

    def times(score, b, h, q_idx, kv_idx):
        return score * head_offset[h]

    return times, causal_mask


@mods
def temperature():
    temperature = torch.tensor(1.5, requires_grad=True)

    def divided(score, b, h, q_idx, kv_idx):
        return score / temperature

    return divided, None


@mods
def bias_full():
    bias = wave(B, H, S, S).requires_grad_()

    def add_bias(score, b, h, q_idx, kv_idx):
        return score + bias[b, h, q_idx, kv_idx]

    return add_bias, None


@mods
def bias_chained():
    bias = wave(H, S, S)

    def add_bias(score, b, h, q_idx, kv_idx):
        return bias[h][q_idx][kv_idx] + score

    return add_bias, None


@mods
def bias_broadcast():
    attn_bias = wave(B, 1, 1, S)

    def add_bias(score, b, h, q_idx, kv_idx):
        return score + attn_bias[b, 0, 0, kv_idx]

    return add_bias, None


@mods
def bias_learned_parts():
    """A gain for each head and offsets by row and by column."""
    gain, rows, columns = wave(H).requires_grad_(), wave(S).requires_grad_(), wave(S).requires_grad_()

    def parts(score, b, h, q_idx, kv_idx):
        return score * gain[h] + rows[q_idx] * columns[kv_idx]

    return parts, causal_mask


@mods
def swin():
    width = 8
    rows = torch.arange(S) // width
    columns = torch.arange(S) % width
    relative_table = wave((2 * 6 - 1) * (2 * width - 1), H).requires_grad_()
    index = (rows[:, None] - rows + 5) * (2 * width - 1) + columns[:, None] - columns + width - 1

    def window_bias(score, b, h, q_idx, kv_idx):
        return score + relative_table[index[q_idx, kv_idx], h]

    return window_bias, None


@mods
def t5_buckets():
    relative_attention_bias = torch.nn.Embedding(32, H)

    def bucket(relative_position):
        buckets = (relative_position > 0).to(torch.long) * 16
        distance = torch.abs(relative_position)
        large = 8 + (
            torch.log(distance.float() / 8 + 1e-9) / math.log(128 / 8) * 8
        ).to(torch.long)
        large = torch.min(large, torch.full_like(large, 15))
        return buckets + torch.where(distance < 8, distance, large)

    def t5_bias(score, b, h, q_idx, kv_idx):
        return score + relative_attention_bias(bucket(kv_idx - q_idx))[h]

    return t5_bias, None


@mods
def mla_rope():
    def generate_mla_rope_score_mod(query_rope, key_rope, num_heads, scale=1.0):
        def mla_rope_score_mod(score, b, h, q_idx, kv_idx):
            return score + (
                scale * torch.dot(query_rope[b, h, q_idx], key_rope[b, h // num_heads, kv_idx])
            )

        return mla_rope_score_mod

    return generate_mla_rope_score_mod(wave(B, H, S, 6), wave(B, 1, S, 6), H, 0.5), None


@mods
def graph_distance():
    """Graphormer: a learned bias by the length of the shortest path."""
    spatial_pos = (torch.arange(B * S * S) * 7 % 10).reshape(B, S, S).to(torch.int32)
    spatial_bias = wave(10, H).requires_grad_()

    def graphormer(score, b, h, q_idx, kv_idx):
        return score + spatial_bias[spatial_pos[b, q_idx, kv_idx], h]

    return graphormer, None


@mods
def sandwich():
    def sandwich_bias(score, b, h, q_idx, kv_idx):
        distance = (q_idx - kv_idx).double()
        total = score
        for i in range(4):
            total = total + torch.cos(distance / 10000 ** (2 * i / 8)) / 4
        return total

    return sandwich_bias, causal_mask


@mods
def activations():
    def squashed(score, b, h, q_idx, kv_idx):
        x = torch.nn.functional.silu(score) + torch.nn.functional.relu(score - 0.5)
        x = x + torch.nn.functional.softplus(score) * torch.sigmoid(score)
        return x + torch.nn.functional.gelu(score) + torch.nn.functional.leaky_relu(score, 0.1)

    return squashed, None


@mods
def log_n():
    """Scores grow with the logarithm of the number of visible keys."""
    def log_n_scaling(score, b, h, q_idx, kv_idx):
        return score * torch.log(q_idx + 2.0) / math.log(S)

    return log_n_scaling, causal_mask


@mods
def forgetting():
    """A decay by the sum of gates between key and query."""
    cumulative = wave(B, H, S).abs().cumsum(-1)

    def forget(score, b, h, q_idx, kv_idx):
        return score - (cumulative[b, h, q_idx] - cumulative[b, h, kv_idx])

    return forget, causal_mask


@mods
def stick_to_sink():
    def sink(score, b, h, q_idx, kv_idx):
        bonus = torch.where(kv_idx == 0, 2, 0)
        return torch.maximum(score, torch.tensor(-1.0)) + bonus

    return sink, None


class PairBias(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(wave(H, S))
        self.register_buffer("pair", torch.arange(S * S).reshape(S, S) * 5 % S)

    def forward(self, score, b, h, q_idx, kv_idx):
        return score + self.table[h, self.pair[q_idx, kv_idx]]


@mods
def module():
    return PairBias(), None


@mods
def partial():
    def biased(slope, score, b, h, q_idx, kv_idx, *, least):
        return torch.clamp(score + slope[h] * (kv_idx - q_idx), min=least)

    return functools.partial(biased, wave(H), least=-3.0), None


@mods
def decorated():
    def scaled(factor):
        def decorator(function):
            @functools.wraps(function)
            def wrapper(score, b, h, q_idx, kv_idx):
                return factor * function(score, b, h, q_idx, kv_idx)

            return wrapper

        return decorator

    bias = wave(S, S)

    @scaled(0.5)
    def biased(score, b, h, q_idx, kv_idx):
        return score + bias[q_idx, kv_idx]

    return biased, None


@mods
def rounded_division():
    def by_cells(score, b, h, q_idx, kv_idx):
        cells = torch.div(q_idx - kv_idx, 5, rounding_mode="floor")
        steps = torch.remainder(q_idx, 4) + torch.floor(kv_idx / 6) + (kv_idx - q_idx) // 7
        return score + 0.1 * cells + 0.05 * steps

    return by_cells, None
