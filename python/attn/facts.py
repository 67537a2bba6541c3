"""What the calls of one attention share, in each framework."""

from __future__ import annotations

from attn.arguments import INPUTS
from attn.attention import Attention
from attn.outputs import is_o


class CallFacts:
    """What the compiler says of an attention, `said`, and what follows for its calls."""

    def __init__(self, attention: Attention):
        said = attention.described
        self.said = said
        self.traced = attention.source.traced
        self.title = said.name
        self.declared = {each.name: each.dtype for each in said.inputs.values() if not each.optional}
        self.optional = tuple(name for name in said.inputs if name not in self.declared)
        self.quantized = said.quantized
        self.dtype = said.dtype
        self.cache = said.cache
        # Their types, as forms have them.
        self.cache_types = (said.cache["k"], said.cache["v"]) if said.cache else None
        self.scales = said.scales
        self.params = said.params
        self.outputs = said.outputs
        self.learned = said.learned
        self.random: bool = said.facts["random"]
        # Also what a backward reads, shown or not.
        self.all_outputs = (*self.outputs, *(name for name in said.saved if name not in self.outputs))
        # The one of o, before or after an epilogue, that a backward reads.
        self.saved_o = next(name for name in said.saved if is_o(name))
        self.differentiated = (*INPUTS, *self.learned)
        self.amax_of_backward = said.amax
        # Whether all backwards go through lse, because the spec says so.
        self.reaches_lse: bool = said.facts["grad_of_lse"]
        self.of_backward = (*self.differentiated, *self.amax_of_backward)
