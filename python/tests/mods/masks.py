"""Masks."""
import math

import torch
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks

from .registry import B, H, S, causal_mask, mods


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
