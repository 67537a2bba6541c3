"""Mods as they are published for FlexAttention, for B = 2, Hq = 4, Sq = Skv = 48.

Each function of masks.py and scores.py makes a mod, or a score_mod and a mask_mod, as user code does: by closures,
captured tensors, helpers and composition. MODS has them by name.
"""
from . import masks, scores  # noqa: F401
from .registry import MODS, B, H, S  # noqa: F401
