"""attnc for PyTorch: compiled specs as differentiable functions of torch tensors.

    f = attn.compile("gemma2_local", Sq=4096, ...)   # an attn.Attention
    o = f(q, k, v)                                   # CUDA: its plan; CPU: the reference

    o = attn.torch.flex_attention(q, k, v, score_mod=alibi, mask_mod=causal)

Both have gradients of q, k, v and of every learned tensor, and go through `torch.compile` and
`torch.export` as the operators `attn::forward` and `attn::backward`. Outputs and workspaces come from
PyTorch's allocator; kernels run on the current stream of the tensors' device.
"""

import sys

from attn import attention as _attention
from attn.torch import hugging_face
from attn.torch.buckets import Bucketed, bucketed
from attn.torch.distributed import Distributed, distribute, load_distributed
from attn.torch.exported import save_plans
from attn.torch.facts import prepare
from attn.torch.flex import flex_attention
from attn.torch.function import call
from attn.torch.modules import Attention
from attn.torch.pages import append, merge
from attn.torch.plans import warming
from attn.torch.quantized import quantize
from attn.torch.schedules import Schedule
from attn.torch.varlen import varlen_attention
from attn.torch.varlen_attentions import VarlenAttention

__all__ = ["Attention", "Bucketed", "Distributed", "Schedule", "VarlenAttention", "append", "call", "distribute",
           "flex_attention", "hugging_face", "load_distributed", "merge", "prepare", "quantize", "save_plans",
           "varlen_attention"]

_attention.torch_calls = sys.modules[__name__]
