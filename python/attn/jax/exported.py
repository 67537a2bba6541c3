"""What jax.export needs to know of programs with attentions."""

from __future__ import annotations

from typing import Any

import jax.export

from attn.jax.handlers import PLAN, REFERENCE


def disabled_checks() -> list[Any]:
    """For `jax.export.export(f, disabled_checks=..)` and `deserialize`d programs: that they may call plans and the
    reference. A program for GPUs has its plans inside, and runs wherever `import attn.jax` was done, without attnc."""
    check = jax.export.DisabledSafetyCheck
    return [check.custom_call(PLAN), check.custom_call(REFERENCE)]
