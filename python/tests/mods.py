"""Mods as they are published for FlexAttention, for B = 2, Hq = 4, Sq = Skv = 48.

Each function here makes a mod, or a score_mod and a mask_mod, as user code does: by closures, captured
tensors, helpers and composition.
"""
import functools
import math

import torch
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks

B, H, S = 2, 4, 48
MODS = {}


def mods(function):
    MODS[function.__name__] = function
    return function


def wave(*shape):
    """Values between -1 and 1 that differ."""
    return torch.sin(torch.arange(math.prod(shape)) * 1.7).reshape(shape)


def causal_mask(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


# --- masks


@mods
def causal():
    return None, causal_mask


@mods
def noop():
    return None, noop_mask


@mods
def sliding_window():
    def generate_sliding_window(window_size: int):
        def sliding_window(b, h, q_idx, kv_idx):
            return q_idx - kv_idx <= window_size

        sliding_window_mask = and_masks(sliding_window, causal_mask)
        sliding_window_mask.__name__ = f"sliding_window_{window_size}"
        return sliding_window_mask

    return None, generate_sliding_window(9)


@mods
def dilated_sliding_window():
    window_size, dilation = 12, 3

    def dilated(b, h, q_idx, kv_idx):
        diff = torch.abs(q_idx - kv_idx)
        in_window = diff <= window_size
        is_dilated = (diff % dilation) == 0
        return in_window & is_dilated

    return None, dilated


@mods
def prefix_lm():
    def generate_prefix_lm_mask(prefix_length: int):
        def prefix_mask(b, h, q_idx, kv_idx):
            return kv_idx < prefix_length

        prefix_lm_causal_mask = or_masks(prefix_mask, causal_mask)
        prefix_lm_causal_mask.__name__ = f"prefix_lm_causal_mask_{prefix_length}"
        return prefix_lm_causal_mask

    return None, generate_prefix_lm_mask(11)


@mods
def prefix_by_batch():
    prefix_length = torch.tensor([5, 19], dtype=torch.int32)

    def prefix_mask(b, h, q_idx, kv_idx):
        return kv_idx < prefix_length[b]

    return None, or_masks(prefix_mask, causal_mask)


@mods
def document():
    document_id = torch.arange(S, dtype=torch.int32) // 17

    def document_causal_mask(b, h, q_idx, kv_idx):
        causal = q_idx >= kv_idx
        same = document_id[q_idx] == document_id[kv_idx]
        return causal & same

    return None, document_causal_mask


def _offsets_to_doc_ids(offsets):
    counts = offsets[1:] - offsets[:-1]
    return torch.repeat_interleave(torch.arange(len(counts), dtype=torch.int32), counts)


@mods
def document_wrapper():
    def generate_doc_mask_mod(mask_mod, offsets):
        document_id = _offsets_to_doc_ids(offsets)

        def doc_mask_mod(b, h, q_idx, kv_idx):
            same_doc = document_id[q_idx] == document_id[kv_idx]
            q_logical = q_idx - offsets[document_id[q_idx]]
            kv_logical = kv_idx - offsets[document_id[kv_idx]]
            inner_mask = mask_mod(b, h, q_logical, kv_logical)
            return same_doc & inner_mask

        return doc_mask_mod

    return None, generate_doc_mask_mod(causal_mask, torch.tensor([0, 7, 20, 48]))


@mods
def document_by_offsets():
    """No ids: the document of a position is counted from the offsets."""
    offsets = torch.tensor([0, 7, 20, 48])

    def packed(b, h, q_idx, kv_idx):
        return (offsets <= q_idx).sum() == (offsets <= kv_idx).sum()

    return None, and_masks(packed, causal_mask)


@mods
def document_padded():
    ids = torch.stack([torch.arange(S) // 13, torch.where(torch.arange(S) < 30, 0, -1)])

    def padded(b, h, q_idx, kv_idx):
        return (ids[b, q_idx] == ids[b, kv_idx]) & (ids[b, kv_idx] != -1)

    return None, padded


@mods
def jagged():
    """A nested tensor's sequences, from two tables that are built from its offsets."""
    offsets = torch.tensor([0, 10, 31, 48])
    seq_idx = torch.repeat_interleave(torch.arange(3), offsets.diff())

    def build(f):
        def nested(b, h, q_idx, kv_idx):
            q_nested = q_idx - offsets[seq_idx[q_idx]]
            kv_nested = kv_idx - offsets[seq_idx[kv_idx]]
            is_same_sequence = seq_idx[q_idx] == seq_idx[kv_idx]
            return torch.where(is_same_sequence, f(b, h, q_nested, kv_nested), False)

        return nested

    return None, build(causal_mask)


@mods
def natten():
    def generate_natten(canvas_w, canvas_h, kernel_w, kernel_h):
        def get_x_y(idx):
            return idx // canvas_h, idx % canvas_h

        def natten_mask_mod(b, h, q_idx, kv_idx):
            q_x, q_y = get_x_y(q_idx)
            kv_x, kv_y = get_x_y(kv_idx)
            center_x = q_x.clamp(kernel_w // 2, (canvas_w - 1) - kernel_w // 2)
            center_y = q_y.clamp(kernel_h // 2, (canvas_h - 1) - kernel_h // 2)
            hori_mask = (center_x - kv_x).abs() <= kernel_w // 2
            vert_mask = (center_y - kv_y).abs() <= kernel_h // 2
            return hori_mask & vert_mask

        return natten_mask_mod

    return None, generate_natten(8, 6, 5, 3)


@mods
def natten_tiled():
    width, kernel, tile_w, tile_h = 8, 3, 4, 2

    def get_x_y_tiled(idx):
        t_id = idx // (tile_h * tile_w)
        t_y, t_x = t_id // (width // tile_w), t_id % (width // tile_w)
        t_offset = idx % (tile_h * tile_w)
        i_y, i_x = t_offset // tile_w, t_offset % tile_w
        return t_x * tile_w + i_x, t_y * tile_h + i_y

    def tiled_natten_mask(b, h, q_idx, kv_idx):
        q_x, q_y = get_x_y_tiled(q_idx)
        kv_x, kv_y = get_x_y_tiled(kv_idx)
        kernel_x = q_x.clamp(kernel // 2, (width - 1) - kernel // 2)
        kernel_y = q_y.clamp(kernel // 2, (S // width - 1) - kernel // 2)
        return ((kernel_x - kv_x).abs() <= kernel // 2) & ((kernel_y - kv_y).abs() <= kernel // 2)

    return None, tiled_natten_mask


@mods
def natten_morton():
    """Pixels in the order of a Morton curve: the bits of x and y alternate."""
    def deinterleave(code):
        code = code & 0x55555555
        code = (code | (code >> 1)) & 0x33333333
        code = (code | (code >> 2)) & 0x0F0F0F0F
        return (code | (code >> 4)) & 0x00FF00FF

    def neighbours(b, h, q_idx, kv_idx):
        q_x, q_y = deinterleave(q_idx), deinterleave(q_idx >> 1)
        kv_x, kv_y = deinterleave(kv_idx), deinterleave(kv_idx >> 1)
        return ((q_x - kv_x).abs() <= 1) & ((q_y - kv_y).abs() <= 1)

    return None, neighbours


def _border(kernel_size):
    return kernel_size // 2, kernel_size // 2 + (kernel_size % 2 - 1)


@mods
def sliding_tile_2d():
    canvas_h, canvas_w, tile, kernel, text = 4, 8, 2, 2, 12
    tiles_h, tiles_w, vision = canvas_h // tile, canvas_w // tile, canvas_h * canvas_w

    def tile_of(idx):
        tile_id = idx // (tile * tile)
        return tile_id // tiles_w, tile_id % tiles_w

    def sta_mask_mod_2d(b, h, q_idx, kv_idx):
        q_h, q_w = tile_of(q_idx)
        kv_h, kv_w = tile_of(kv_idx)
        left, right = _border(kernel)
        center_h = q_h.clamp(left, (tiles_h - 1) - right)
        center_w = q_w.clamp(left, (tiles_w - 1) - right)
        h_mask = (kv_h >= center_h - left) & (kv_h <= center_h + right)
        w_mask = (kv_w >= center_w - left) & (kv_w <= center_w + right)
        vision_mask = (q_idx < vision) & (kv_idx < vision)
        vision_to_text = (q_idx < vision) & (kv_idx >= vision) & (kv_idx < vision + text)
        text_to_all = (q_idx >= vision) & (kv_idx < vision + text)
        return (vision_mask & h_mask & w_mask) | vision_to_text | text_to_all

    return None, sta_mask_mod_2d


@mods
def sliding_tile_3d():
    tiles = (3, 2, 2)
    numel = 4

    def tile_of(idx):
        tile_id = idx // numel
        inner = tile_id % (tiles[1] * tiles[2])
        return tile_id // (tiles[1] * tiles[2]), inner // tiles[2], tile_id % tiles[2]

    def sta_mask_mod_3d(b, h, q_idx, kv_idx):
        mask = None
        for q, kv, count, kernel in zip(tile_of(q_idx), tile_of(kv_idx), tiles, (2, 1, 1)):
            left, right = _border(kernel)
            center = q.clamp(left, (count - 1) - right)
            near = (kv >= center - left) & (kv <= center + right)
            mask = near if mask is None else mask & near
        return mask

    return None, sta_mask_mod_3d


@mods
def flamingo():
    intervals = torch.tensor([[0, 9], [9, 30], [30, 48]])
    image_boundaries = torch.repeat_interleave(torch.arange(3), repeats=16)

    def vision_cross_attention_mask_mod(b, h, q_idx, kv_idx):
        image_idx = image_boundaries[kv_idx]
        interval = intervals[image_idx]
        return (q_idx >= interval[0]) & (q_idx < interval[1])

    return None, vision_cross_attention_mask_mod


@mods
def transfusion():
    """Causal, and everything within an image: (start, length) of each."""
    def modality(offset, length):
        def mask_fn(b, h, q_idx, kv_idx):
            return (q_idx >= offset) & (kv_idx < (offset + length))

        return mask_fn

    def transfusion_attn_mask(modalities):
        def mask_mod(b, h, q_idx, kv_idx):
            mask = q_idx >= kv_idx
            for offset, length in modalities:
                mask = mask | modality(offset, length)(b, h, q_idx, kv_idx)
            return mask

        return mask_mod

    return None, transfusion_attn_mask([(6, 8), (20, 16)])


@mods
def transfusion_tensor():
    """The same with the images' places in a tensor [B, images, 2]."""
    modalities = torch.tensor([[[6, 8], [20, 16]], [[0, 5], [30, 4]]])

    def mask_mod(b, h, q_idx, kv_idx):
        mask = q_idx >= kv_idx
        for i in range(modalities.shape[1]):
            offset, length = modalities[b, i, 0], modalities[b, i, 1]
            mask = mask | ((q_idx >= offset) & (kv_idx < offset + length))
        return mask

    return None, mask_mod


@mods
def longformer():
    is_global = torch.arange(S) % 19 == 0
    window = 6

    def longformer_mask(b, h, q_idx, kv_idx):
        local = torch.abs(q_idx - kv_idx) <= window
        return local | is_global[q_idx] | is_global[kv_idx]

    return None, longformer_mask


@mods
def bigbird():
    block = 8
    random_blocks = torch.arange(H * (S // block) ** 2).reshape(H, S // block, S // block) % 5 == 1

    def bigbird_mask(b, h, q_idx, kv_idx):
        q_block, kv_block = q_idx // block, kv_idx // block
        window = (q_block - kv_block).abs() <= 1
        outer = (q_block == 0) | (kv_block == 0)
        return window | outer | random_blocks[h, q_block, kv_block]

    return None, bigbird_mask


@mods
def global_positions():
    """Chosen positions are seen from everywhere."""
    chosen = torch.tensor([0, 13, 29])

    def mask(b, h, q_idx, kv_idx):
        return torch.isin(kv_idx, chosen) | ((q_idx - kv_idx).abs() < 4)

    def broadcast(b, h, q_idx, kv_idx):
        return (kv_idx == chosen).any() | ((q_idx - kv_idx).abs() < 4)

    return None, and_masks(mask, broadcast)


@mods
def strided():
    stride = 6

    def sparse_transformer(b, h, q_idx, kv_idx):
        distance = q_idx - kv_idx
        return (distance >= 0) & ((distance < stride) | (distance % stride == 0))

    return None, sparse_transformer


@mods
def chunked():
    chunk_size = 7

    def same_chunk(b, h, q_idx, kv_idx):
        return q_idx // chunk_size == kv_idx // chunk_size

    return None, and_masks(causal_mask, same_chunk)


@mods
def chunked_left_padded():
    padding = torch.tensor([0, 5])

    def chunks(b, h, q_idx, kv_idx):
        return (q_idx - padding[b]) // 9 == (kv_idx - padding[b]) // 9

    return None, and_masks(causal_mask, chunks)


@mods
def batchify():
    def batchify_mask_mod(mask_mod, size):
        def batched_mask_mod(b, h, q_idx, kv_idx):
            same_batch = (q_idx // size) == (kv_idx // size)
            inner_mask = mask_mod(b, h, q_idx % size, kv_idx % size)
            return same_batch & inner_mask

        return batched_mask_mod

    return None, batchify_mask_mod(causal_mask, 12)


@mods
def padding():
    seq_len = torch.tensor([48, 29])

    def padding_mask(b, h, q_idx, kv_idx):
        return (q_idx < seq_len[b]) & (kv_idx < seq_len[b])

    return None, padding_mask


@mods
def offset_causal():
    offset = torch.tensor(7)

    def get_mask_mod(mask_mod, offset):
        def shifted(b, h, q, kv):
            return mask_mod(b, h, q + offset, kv)

        return shifted

    return None, get_mask_mod(causal_mask, offset)


@mods
def block_diffusion():
    n, block_size = 24, 5

    def block_diff_mask(b, h, q_idx, kv_idx):
        x0_flag_q = q_idx >= n
        x0_flag_kv = kv_idx >= n
        block_q = torch.where(x0_flag_q == 1, (q_idx - n) // block_size, q_idx // block_size)
        block_kv = torch.where(x0_flag_kv == 1, (kv_idx - n) // block_size, kv_idx // block_size)
        block_diagonal = (block_q == block_kv) & (x0_flag_q == x0_flag_kv)
        offset_block_causal = (block_q > block_kv) & (x0_flag_kv == 1) & (x0_flag_q == 0)
        block_causal = (block_q >= block_kv) & (x0_flag_kv == 1) & (x0_flag_q == 1)
        return block_diagonal | offset_block_causal | block_causal

    return None, block_diff_mask


@mods
def video_spatial():
    prompt, frame, width, rounded = 4, 11, 2, 4

    def round_to_multiple(idx):
        return math.floor(idx / rounded) * rounded

    def spatial_mask_mod(b, h, q_idx, kv_idx):
        near = torch.abs(q_idx - kv_idx) < round_to_multiple(width * frame)
        return (kv_idx < prompt) | (q_idx < prompt) | near

    return None, spatial_mask_mod


@mods
def video_temporal():
    prompt, frame = 4, 11

    def in_frame(idx, prompt):
        return (idx - prompt) % frame

    def temporal_mask_mod(b, h, q_idx, kv_idx):
        near = torch.abs(in_frame(q_idx, prompt) - in_frame(kv_idx, prompt)) < 2
        return (kv_idx < prompt) | (q_idx < prompt) | near

    return None, temporal_mask_mod


@mods
def speculative_tree():
    """A draft's tree: 64 ancestors of each token as bits, after the tokens that were accepted."""
    accepted = 24
    parents = torch.tensor([0, 1, 1, 3, 5, 5, 9, 17, 9, 1, 3, 3, 1, 1, 1, 1, 5, 5, 1, 1, 1, 1, 1, 1])

    def tree_mask(b, h, q_idx, kv_idx):
        ancestors = parents[torch.clamp(q_idx - accepted, min=0)]
        bit = torch.clamp(kv_idx - accepted, 0, 23)
        is_ancestor = ((ancestors >> bit) & 1) == 1
        return torch.where(kv_idx < accepted, q_idx >= kv_idx, is_ancestor | (q_idx == kv_idx))

    return None, tree_mask


@mods
def shared_prefix():
    owner = torch.where(torch.arange(S) < 12, -1, torch.arange(S) // 18)

    def shared(b, h, q_idx, kv_idx):
        return (owner[kv_idx] == -1) | (owner[q_idx] == owner[kv_idx])

    return None, and_masks(shared, causal_mask)


@mods
def head_groups():
    """Half of the heads see a window, the others everything before."""
    def local_or_global(b, h, q_idx, kv_idx):
        return torch.logical_and(q_idx >= kv_idx, torch.logical_or(h % 2 == 0, q_idx - kv_idx < 8))

    return None, local_or_global


@mods
def dense_mask():
    mask = (torch.arange(B * S * S) % 7 != 2).reshape(B, 1, S, S)

    def table(b, h, q_idx, kv_idx):
        return mask[b, 0, q_idx, kv_idx]

    return None, table


@mods
def key_padding_uint8():
    attention_mask = (torch.arange(B * S) % 5 != 3).reshape(B, S).to(torch.uint8)

    def key_padding(b, h, q_idx, kv_idx):
        return attention_mask[b][kv_idx].to(torch.bool)

    return None, key_padding


@mods
def inverted():
    def not_itself(b, h, q_idx, kv_idx):
        return ~(q_idx == kv_idx) ^ (h == 2)

    return None, not_itself


# --- scores


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
