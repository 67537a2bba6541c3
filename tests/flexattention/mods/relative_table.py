import torch

MAX_DISTANCE = 11
table = torch.cos(torch.arange(4 * 23) * 1.0).reshape(4, 23)


def relative_table(score, b, h, q_idx, kv_idx):
    distance = torch.clamp(kv_idx - q_idx, -MAX_DISTANCE, MAX_DISTANCE)
    return score + table[h, distance + MAX_DISTANCE]
