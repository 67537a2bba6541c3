"""CUDA graphs that PyTorch makes of compiled programs (torch.compile(mode="reduce-overhead"))."""

from __future__ import annotations

import torch

from attn.torch import private


def is_preparing(device: torch.device) -> bool:
    """Whether a program runs once before it is recorded, or is recorded: memory that is allocated then is the graph's,
    and nothing may keep it. True too where that cannot be known."""
    try:
        return device.type == "cuda" and private.graph_state(device) in ("WARMUP", "RECORDING")
    except Exception:  # of a version that has it elsewhere
        return True
