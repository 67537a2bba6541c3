"""Random batches for `varlen_attention`, and what it must give: dense, in float64."""

import random

import torch

DTYPES = (torch.bfloat16, torch.float16)


class Batch:
    """Lengths, pages and tensors of a batch. `arguments` are those of `varlen_attention`; unused rows of pages, page
    0 and entries of the table past the keys are NaN and -1. `shared`: so many keys, whole pages, all sequences begin
    with, before each row's own."""

    def __init__(self, seed, device="cpu", sizes=None, **options):
        self.choose = choose = random.Random(seed)
        generator = torch.Generator().manual_seed(seed)
        self.sizes = sizes or random_sizes(choose)
        heads_kv, group, depth, depth_v, page, dtype = self.sizes
        self.count = options.pop("count", None) or choose.choice((1, 2, 5, 8, 9, 17))
        self.most_keys = options.pop("most_keys", None) or choose.choice((1, 40, 300, 1500))
        rows, self.keys = self.lengths(options.pop("rows", None))
        self.rows = rows
        shared = options.pop("shared", 0)
        if shared > 0:
            self.keys = [max(keys, shared + count) for keys, count in zip(self.keys, rows)]
            self.most_keys = max(self.keys)
        self.device, self.generator, self.dtype = device, generator, dtype
        self.options = options if options else random_options(choose, heads_kv * group, device)
        columns = -(-self.most_keys // page) + choose.choice((0, 3))
        needed = sum(-(-keys // page) for keys in self.keys)
        pages = needed + 1 + choose.choice((0, 2))
        numbers = torch.randperm(pages - 1, generator=generator) + 1
        table = torch.full((self.count, columns + 5), -1, dtype=torch.int32)
        self.k_cache = pool(pages, page, heads_kv, depth, dtype, choose.choice(("NHD", "HND", "both")))
        self.v_cache = pool(pages, page, heads_kv, depth_v, dtype, choose.choice(("NHD", "HND", "both")))
        self.k, self.v = [], []
        for sequence, keys in enumerate(self.keys):
            k, v = (self.normal(keys, heads_kv, width) for width in (depth, depth_v))
            if sequence > 0:
                k[:shared], v[:shared] = self.k[0][:shared], self.v[0][:shared]
                table[sequence, :shared // page] = table[0, :shared // page]
            self.k.append(k)
            self.v.append(v)
            first = shared if sequence > 0 else 0
            own = -(-(keys - first) // page)
            at, numbers = numbers[:own], numbers[own:]
            table[sequence, first // page:first // page + own] = at
            self.k_cache[at], self.v_cache[at] = paged(k[first:], own, page), paged(v[first:], own, page)
        wide = self.normal(sum(rows), heads_kv * group + 2, depth)
        self.q = wide[:, 1:-1]  # part of larger rows
        starts = torch.tensor([0, *rows]).cumsum(0).int()
        self.arguments = dict(
            q=wide.to(device)[:, 1:-1], k_cache=moved(self.k_cache, device), v_cache=moved(self.v_cache, device),
            cu_seqlens_q=starts.to(device), seqused_k=torch.tensor(self.keys, dtype=torch.int32, device=device),
            block_table=table.to(device)[:, :columns], max_seqlen_q=max(rows), max_seqlen_k=max(self.keys),
            **self.options)

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.generator).to(self.dtype)

    def lengths(self, rows):
        """Rows and keys of each sequence: decodes, a few rows, prefills, none; sequences without keys."""
        choose = self.choose
        kinds = {"decode": lambda: 1, "few": lambda: choose.randint(0, 5), "prefill": lambda: choose.randint(1, 300)}
        kind = rows or choose.choice(("decode", "few", "prefill", "mixed"))
        made = [kinds[choose.choice(list(kinds)) if kind == "mixed" else kind]() for _ in range(self.count)]
        return made, [choose.choice((0, 1, choose.randint(0, self.most_keys), self.most_keys))
                      for _ in range(self.count)]

    def expected(self, device="cpu"):
        """o and lse, float64, computed on a device."""
        with torch.device(device):
            outputs = [self._expected_of(sequence, q) for sequence, q in enumerate(self.q.to(device).split(self.rows))]
        return tuple(torch.cat(parts) for parts in zip(*outputs))

    def _expected_of(self, sequence, q):
        k, v = (each[sequence].to(q.device).double() for each in (self.k, self.v))
        options = self.options
        rows, keys, heads = len(q), len(k), q.shape[1]
        group = heads // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        s = torch.einsum("qhd,khd->hqk", q.double(), k) * (options.get("softmax_scale") or q.shape[2] ** -0.5)
        if options.get("softcap"):
            s = options["softcap"] * torch.tanh(s / options["softcap"])
        at = torch.arange(rows)[:, None] + keys - rows - torch.arange(keys)[None]  # into the past
        slopes = options.get("alibi_slopes")
        if slopes is not None:
            slopes = (slopes if slopes.dim() == 1 else slopes[sequence]).to(q.device).double()
            s = s - slopes[:, None, None] * at.abs()
        left, right = options.get("window_size", (-1, -1))
        if options.get("causal", True):
            right = 0
        seen = ((at <= left) | (left < 0)) & ((-at <= right) | (right < 0))
        s = s.masked_fill(~seen, -torch.inf)
        sinks = options.get("s_aux")
        sinks = torch.full((heads,), -torch.inf).double() if sinks is None else sinks.to(q.device).double()
        lse = torch.logaddexp(torch.logsumexp(s, -1), sinks[:, None].expand(heads, rows))
        weights = torch.exp(s - lse[..., None]).nan_to_num(0.0)
        return torch.einsum("hqk,khd->qhd", weights, v), lse.t()


def random_sizes(choose):
    """Hkv, Hq / Hkv, D, Dv, page, type."""
    depth = choose.choice((64, 128, 80))
    return (choose.choice((1, 2, 3)), choose.choice((1, 4, 5)), depth, choose.choice((depth, depth, 64)),
            choose.choice((16, 1, 64, 32)), choose.choice(DTYPES))


def random_options(choose, heads, device):
    """What a call computes; `alibi_slopes` are of heads."""
    options = {"causal": choose.random() < 0.7}
    if choose.random() < 0.5:
        options["window_size"] = (choose.choice((-1, 0, 7, 100)), choose.choice((-1, 0, 5, 64)))
    if choose.random() < 0.3:
        options["softcap"] = choose.choice((20.0, 50.0))
    if choose.random() < 0.3:
        options["s_aux"] = torch.randn(heads, device=device).to(choose.choice((torch.float32, torch.bfloat16)))
    if choose.random() < 0.3:
        options["alibi_slopes"] = torch.rand(heads, device=device)
    if choose.random() < 0.3:
        options["softmax_scale"] = choose.choice((0.1, 0.3))
    return options


def pool(pages, page, heads, depth, dtype, layout):
    """Pages of NaN, [pages, page, heads, depth], that have rows or heads outside, or lie between those of another."""
    if layout == "HND":
        return torch.full((pages, heads, page, depth), torch.nan, dtype=dtype).transpose(1, 2)
    if layout == "both":
        return torch.full((pages, 2, page, heads, depth), torch.nan, dtype=dtype)[:, 1]
    return torch.full((pages, page, heads, depth), torch.nan, dtype=dtype)


def paged(rows, pages, page):
    """Rows in pages of their own, the last of which ends with NaN."""
    padded = torch.full((pages * page, *rows.shape[1:]), torch.nan, dtype=rows.dtype)
    padded[:len(rows)] = rows
    return padded.view(pages, page, *rows.shape[1:])


def moved(view, device):
    """The same on a device, with the same strides."""
    step = [size * stride for size, stride in zip(view.shape, view.stride())]
    memory = torch.empty(max(step), dtype=view.dtype, device=device)
    return memory.as_strided(view.shape, view.stride()).copy_(view)
