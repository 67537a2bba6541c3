import torch


def checkerboard(score, b, h, q_idx, kv_idx):
    score = torch.where(torch.abs(kv_idx - q_idx) % 2 == 1, score * 0.5, score)
    score = torch.where(torch.abs(kv_idx - q_idx) % 2 == 0, score * 2.0, score)
    return score
