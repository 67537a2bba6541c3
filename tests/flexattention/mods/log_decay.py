import torch

rate = torch.tensor([0.5, 1.0, 1.5, 2.0])


def log_decay(score, b, h, q_idx, kv_idx):
    distance = torch.maximum(q_idx - kv_idx, kv_idx - q_idx)
    penalty = rate[h] * torch.log2(1.0 + distance)
    # far keys are punished no further
    penalty = torch.clamp(penalty, 0.0, 4.0)
    return score * torch.sigmoid(score) - penalty ** 2 / 4
