"""What mods are of, and what they share."""
import math

import torch

B, H, S = 2, 4, 48
MODS = {}


def mods(function):
    MODS[function.__name__] = function
    return function


def wave(*shape):
    """Values between -1 and 1 that differ."""
    return torch.sin(torch.arange(math.prod(shape)) * 1.7).reshape(shape)


def causal_mask(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx
