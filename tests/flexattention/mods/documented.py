import torch

bias = torch.cos(torch.arange(4 * 48 * 48) * 1.0).reshape(4, 48, 48)


def documented(score, b, h, q_idx, kv_idx):
    """A bias for each score near the diagonal.

    Elsewhere # nothing is added.
    """
    near = (q_idx - kv_idx < 9) & \
           (kv_idx - q_idx < 9)
    return torch.where(near, score + bias[h][q_idx][kv_idx], score)
