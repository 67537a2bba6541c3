"""CUDA graphs that PyTorch makes of compiled programs (torch.compile(mode="reduce-overhead"))."""

from __future__ import annotations

import sys

import torch


def is_preparing(device: torch.device) -> bool:
    """Whether a program runs once before it is recorded, or is recorded: memory that is allocated then is the graph's,
    and nothing may keep it. True too where that cannot be known."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is None or device.type != "cuda":
        return False
    try:
        manager = trees.get_manager(device.index or 0, create_if_none_exists=False)
        return manager is not None and manager.path_state.name in ("WARMUP", "RECORDING")
    except Exception:  # of a version that has it elsewhere
        return True
