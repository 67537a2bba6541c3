"""Types that signatures of this package name."""
from __future__ import annotations

from typing import Any, Callable

# FlexAttention's functions, score_mod(score, b, h, q_idx, kv_idx) and mask_mod(b, h, q_idx, kv_idx).
Mod = Callable[..., object]

# What an attention returns: o, or a tuple of the outputs. Its spec says which, and type checkers do not read specs: to
# them both `o = f(q, k, v)` and `o, lse = f(q, k, v)` are right.
Outputs = Any

# What attnc prints with --format json, parsed.
Json = Any
