import torch

SOFT_CAP = 2.5


def tanh_softcap(score, b, h, q_idx, kv_idx):
    score = score / SOFT_CAP
    score = torch.tanh(score)
    score = score * SOFT_CAP
    return score
