import torch

prefix_length = torch.tensor([5, 19])


def prefix_lm_batched(b, h, q_idx, kv_idx):
    return (kv_idx < prefix_length[b]) | (q_idx >= kv_idx)
