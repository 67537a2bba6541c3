import torch

seq_len = torch.tensor([48, 29])


def padding(b, h, q_idx, kv_idx):
    return (q_idx < seq_len[b]) & (kv_idx < seq_len[b])
