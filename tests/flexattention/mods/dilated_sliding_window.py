import torch

WINDOW = 9
DILATION = 3


def dilated_sliding_window(b, h, q_idx, kv_idx):
    diff = torch.abs(q_idx - kv_idx)
    in_window = diff <= WINDOW
    is_dilated = (diff % DILATION) == 0
    return in_window & is_dilated
