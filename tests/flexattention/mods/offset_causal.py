import torch

cache_length = torch.tensor([3, -6])


def offset_causal(b, h, q_idx, kv_idx):
    return q_idx + cache_length[b] >= kv_idx
