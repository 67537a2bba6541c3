"""Attention of other libraries on the variants of bench/variants, and how to time it.

A peer is a function of a Case that returns an attention (a function of q, k, v [B, H, S, D]), or None if it
cannot express the case. Peers are imported on first use.
"""
import gc
import importlib
import statistics
from typing import NamedTuple

import flex_mods

CLOCK = 1_980_000_000  # maximum, in Hz
PAUSE = int(0.002 * CLOCK)
WARMUP = 3
TOLERANCE = 2e-2  # of bf16 outputs and gradients, relative L2


class Case(NamedTuple):
    """A variant as FlexAttention mods (possibly None), of a shape (B, Hq, Hkv, S, D)."""

    variant: str
    score: object
    mask: object
    shape: tuple
    tensors: dict  # that the mods read, by name


def by_flex(case, **options):
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    _, heads, heads_kv, size, _ = case.shape
    compiled = torch.compile(flex_attention, dynamic=False)
    blocks = create_block_mask(case.mask, None, None, size, size, device="cuda") if case.mask else None
    return lambda q, k, v: compiled(q, k, v, score_mod=case.score, block_mask=blocks,
                                    enable_gqa=heads_kv != heads, **options)


def by_flash_4(case):
    """FlashAttention-4 with block masks, through FlexAttention's FLASH backend."""
    return by_flex(case, kernel_options={"BACKEND": "FLASH"})


def by_flash_4_options(case):
    """FlashAttention-4 by its own interface: its masks, softcap and score modifiers in CuTe DSL."""
    import flash_mods
    from flash_attn.cute import flash_attn_func

    arguments = flash_mods.arguments(case)
    if arguments is None:
        return None

    def attention(q, k, v):
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
        result = flash_attn_func(q, k, v, **arguments)
        o = result[0] if isinstance(result, tuple) else result
        return o.transpose(1, 2)

    return attention


def is_causal_of(case):
    """SDPA's is_causal, or None if it cannot express the case."""
    if case.score is not None:
        return None
    if case.mask is None:
        return False
    return True if case.mask.__name__ == "causal" else None


def by_sdpa(backend):
    def make(case):
        import torch.nn.functional as F
        from torch.nn.attention import SDPBackend, sdpa_kernel

        is_causal = is_causal_of(case)
        if is_causal is None:
            return None
        _, heads, heads_kv, _, _ = case.shape

        def attention(q, k, v):
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal,
                                                      enable_gqa=heads_kv != heads)

        return attention

    return make


def endpoints(visible):
    """Where the visibility in each row of a mask [Sq, Skv] changes, as int32 [changes, Sq]: keys up to
    the first are visible, then hidden up to the second, and so on. Rows are padded with Skv."""
    import torch

    rows, size = visible.shape
    edge = torch.ones(rows, 1, dtype=torch.bool, device=visible.device)
    extended = torch.cat([edge, visible, ~edge], dim=1)
    changes = extended[:, 1:] != extended[:, :-1]
    places = torch.where(changes, torch.arange(size + 1, device=visible.device), size).int()
    count = int(changes.sum(dim=1).max())
    return places.topk(count, dim=1, largest=False, sorted=True).values.T.contiguous()


def by_cudnn_flex(case):
    import torch
    from cudnn.flex_attention import create_mask_plan, flex_attn_func

    if case.score is not None:
        return None
    batches, _, _, size, _ = case.shape
    at = torch.arange(size, device="cuda")
    visible = torch.ones(size, size, dtype=torch.bool, device="cuda")
    if case.mask is not None:
        visible = case.mask(0, 0, at[:, None], at[None, :])
    of_rows = endpoints(visible).repeat(1, batches)[None].contiguous()
    plans = []

    def attention(q, k, v):
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
        if not plans:
            plans.append(create_mask_plan(of_rows, q, k, v, build_backward=True))
        o, *_ = flex_attn_func(q, k, v, mask_plan=plans[0], return_lse=True)
        return o.transpose(1, 2)

    return attention


# Name: (required module, peer). The first is the reference for the others.
PEERS = {
    "flexattention": ("torch.nn.attention.flex_attention", by_flex),
    "sdpa_cudnn": ("torch.nn.attention", by_sdpa("CUDNN_ATTENTION")),
    "sdpa_flash": ("torch.nn.attention", by_sdpa("FLASH_ATTENTION")),
    "flash_attn_4": ("flash_attn.cute", by_flash_4),
    "flash_attn_4_options": ("flash_attn.cute", by_flash_4_options),
    "cudnn_flex": ("cudnn.flex_attention", by_cudnn_flex),
}
REFERENCE = "flexattention"


def why_absent(module):
    """Why a peer cannot run here, or None."""
    try:
        torch = importlib.import_module("torch")
        importlib.import_module(module)
    except Exception as error:  # any: packages check drivers and versions on import
        return f"{type(error).__name__}: {error}"
    return None if torch.cuda.is_available() else "PyTorch finds no GPU"


def absent():
    """{peer: why it cannot run here}."""
    reasons = {name: why_absent(module) for name, (module, _) in PEERS.items()}
    return {name: reason for name, reason in reasons.items() if reason}


def milliseconds(call, runs):
    """Median device time. L2 is flushed, and a pause on the device hides the host's time."""
    import torch

    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    samples = []
    for i in range(WARMUP + runs):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        torch.cuda._sleep(PAUSE)
        begin.record()
        call()
        end.record()
        end.synchronize()
        if i >= WARMUP:
            samples.append(begin.elapsed_time(end))
    return statistics.median(samples)


class Inputs:
    """q, k, v and the cotangent of o, [B, H, S, D] as views of bshd memory, random bf16."""

    def __init__(self, shape):
        import torch

        batches, heads, heads_kv, size, depth = shape
        torch.manual_seed(0)

        def tensor(count):
            made = torch.randn(batches, size, count, depth, dtype=torch.bfloat16, device="cuda")
            return made.transpose(1, 2)

        self.qkv = tuple(tensor(count).requires_grad_() for count in (heads, heads_kv, heads_kv))
        self.cotangent = tensor(heads)


class Subject:
    """A peer's attention on the inputs. The forward is timed without autograd."""

    def __init__(self, attention, inputs):
        self.attention = attention
        self.inputs = inputs
        self.o = None

    def call(self, direction):
        """A function that enqueues the direction and returns its tensors."""
        if direction == "forward":
            return self.forward
        self.o = self.attention(*self.inputs.qkv)
        return self.backward

    def forward(self):
        import torch

        with torch.no_grad():
            return (self.attention(*self.inputs.qkv),)

    def backward(self):
        import torch

        return torch.autograd.grad(self.o, self.inputs.qkv, self.inputs.cotangent,
                                   retain_graph=True)


def largest_difference(actual, expected):
    """The largest relative L2 of all tensors; NaN counts as infinite."""
    errors = [((a.float() - e.float()).norm() / e.float().norm()).item()
              for a, e in zip(actual, expected)]
    return max(error if error == error else float("inf") for error in errors)


class Attentions:
    """All peers on one row at a time. Lives in a process of its own: an illegal memory access ends what is in
    its process. A row is (variant, shape, samples per time)."""

    def __init__(self):
        absent()  # imports the peers while other processes do, too
        self.row = None

    def begin(self, row):
        """Forgets the row before, and frees its memory."""
        import torch

        self.row = self.case = self.inputs = None
        self.subjects, self.calls, self.expected = {}, {}, {}
        gc.collect()
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        variant, shape, self.runs = row
        tensors = flex_mods.captured(shape, "cuda", flex_mods.READ.get(variant, ()))
        self.case = Case(variant, *flex_mods.mods(tensors)[variant], shape, tensors)
        self.inputs = Inputs(shape)
        self.row = row

    def subject(self, name):
        if name not in self.subjects:
            attention = PEERS[name][1](self.case)
            self.subjects[name] = attention and Subject(attention, self.inputs)
        return self.subjects[name]

    def prepare(self, row, name, direction):
        """Makes a peer's first call in a direction. Returns whether it can express the variant; raises if its
        tensors are not those of the reference."""
        import torch

        if row != self.row:
            self.begin(row)
        subject = self.subject(name)
        if not subject:
            return False
        self.calls[name] = subject.call(direction)
        actual = self.calls[name]()
        if name == REFERENCE:
            self.expected[direction] = actual
        if direction not in self.expected:
            raise RuntimeError(f"there are no tensors of {REFERENCE} to compare with")
        difference = largest_difference(actual, self.expected[direction])
        if not difference <= TOLERANCE:
            raise RuntimeError(f"wrong: differs by {difference:.1e} from {REFERENCE}")
        torch.cuda.empty_cache()
        return True

    def milliseconds(self, name):
        return milliseconds(self.calls[name], self.runs)

    def synchronize(self):
        """Raises if the process's GPU context is broken."""
        import torch

        torch.cuda.synchronize()
