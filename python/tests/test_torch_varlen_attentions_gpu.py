"""attn.torch.VarlenAttention on a GPU, against dense attention in float64; and MLA's cache by varlen_attention."""

import random

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0):
    pytest.skip("needs a GPU of compute capability 9.0", allow_module_level=True)

import attn.torch  # noqa: E402
from test_torch_varlen_gpu import captured, plans_for_the_session  # noqa: E402, F401
from varlen_batches import Batch  # noqa: E402
from varlen_mods import BANDS, LAST_KEYS, NONE, RULES, SPECS, expected, inputs_of  # noqa: E402

DEVICE = "cuda"
SIZES = [(2, 5, 64, 64, 16, torch.bfloat16), (1, 4, 128, 128, 64, torch.float16), (3, 1, 80, 64, 1, torch.bfloat16)]


def batch_of(seed, sizes=None, **options):
    """A batch whose arguments bound those of others with as many rows and keys, so that plans are few."""
    rows = ("decode", "few", "mixed")[seed % 3]
    count = random.Random(seed).randint(1, 8)
    batch = Batch(seed, DEVICE, sizes or SIZES[seed % 3], count=count, most_keys=300, rows=rows, causal=True, **options)
    del batch.arguments["causal"]
    batch.arguments.update(max_seqlen_q={"decode": 1, "few": 8, "mixed": 300}[rows], max_seqlen_k=300)
    return batch


def compare(batch, right, o, lse=None, rows=None):
    rounding = torch.finfo(batch.dtype).eps
    torch.testing.assert_close(o[:rows].cpu().double(), right[0], rtol=4 * rounding, atol=4 * rounding)
    if lse is not None:
        torch.testing.assert_close(lse[:rows].cpu().double(), right[1], rtol=1e-4, atol=2e-3)


def schedule_of(attend, batch, **options):
    given = {name: batch.arguments[name] for name in ("max_seqlen_q", "max_seqlen_k")}
    first = [batch.arguments[name] for name in ("q", "k_cache", "v_cache", "block_table")]
    return attend.schedule(*first, **given, **options)


@pytest.mark.parametrize("name", SPECS)
def test_random_batches(name):
    attend = attn.torch.VarlenAttention(SPECS[name])
    with torch.no_grad():
        for seed in range(18):
            batch = batch_of(seed)
            inputs, given = inputs_of(name, batch), batch.arguments
            right = expected(name, batch, inputs)
            for _ in range(2):
                compare(batch, right, *attend(**given, **inputs, return_lse=True))
            try:
                schedule = schedule_of(attend, batch, return_lse=True, max_parts=batch.choose.choice((0, 1, 2)),
                                       **inputs)
            except attn.UnsupportedError as error:
                assert name not in BANDS and "takes no schedule" in str(error)
                continue
            assert name in (*BANDS, *LAST_KEYS)
            schedule.build(given["cu_seqlens_q"], given["seqused_k"])
            schedule.check(given["block_table"], given["k_cache"])
            compare(batch, right, *attend(**given, return_lse=True, schedule=schedule))
            assert schedule.flags() == 0


def test_mods():
    slopes = torch.linspace(0, 1, 10, device=DEVICE)

    def score_mod(score, b, h, q_idx, kv_idx):
        return 0.7 * score - slopes[h] * torch.log(1.0 + (q_idx - kv_idx).abs())

    attend = attn.torch.VarlenAttention(score_mod=score_mod, mask_mod=lambda b, h, q, kv: q >= kv, softmax_scale=0.2)
    rule = lambda *given: (*RULES["distance"](*given)[:2], NONE)  # noqa: E731
    with torch.no_grad():
        for seed in range(6):
            batch = batch_of(seed, SIZES[0])
            right = expected(rule, batch, {"slopes": slopes, "t": 0.7})
            compare(batch, right, *attend(**batch.arguments, return_lse=True))


class Memory:
    """Tensors of the largest size, in which batches are put, as an engine has them for a graph."""

    def __init__(self, sizes, sequences, rows, keys):
        heads_kv, group, depth, _, page, dtype = self.sizes = sizes
        columns = -(-keys // page)

        def numbers(*shape):
            return torch.zeros(shape, dtype=torch.int32, device=DEVICE)

        self.starts, self.lengths, self.table = numbers(sequences + 1), numbers(sequences), numbers(sequences, columns)
        self.q = torch.zeros(rows, heads_kv * group, depth, dtype=dtype, device=DEVICE)
        self.caches = [torch.zeros(sequences * columns + 3, page, heads_kv, depth, dtype=dtype, device=DEVICE)
                       for _ in range(2)]
        self.out = torch.zeros_like(self.q)
        self.prefix, self.count = numbers(sequences), numbers(1)

    def batch(self, seed):
        """The tensors of a random batch are copied."""
        choose = random.Random(seed)
        batch = Batch(seed, "cpu", self.sizes, count=choose.randint(1, len(self.lengths)), most_keys=300, rows="few",
                      causal=True)
        given, count = batch.arguments, batch.count
        self.count.fill_(count)
        self.starts.fill_(sum(batch.rows))[:count + 1].copy_(given["cu_seqlens_q"])
        self.lengths.zero_()[:count].copy_(given["seqused_k"])
        table = given["block_table"][:, :self.table.shape[1]]
        self.table.fill_(-1)[:count, :table.shape[1]].copy_(table)
        self.q.fill_(torch.nan)[:sum(batch.rows)].copy_(given["q"])
        for memory, name in zip(self.caches, ("k_cache", "v_cache")):
            memory.fill_(torch.nan)[:len(given[name])].copy_(given[name])
        self.out.fill_(torch.nan)
        inputs = inputs_of("prefix", batch)
        self.prefix.zero_()[:count].copy_(inputs["prefix"])
        return batch, inputs

    def arguments(self):
        return dict(q=self.q, k_cache=self.caches[0], v_cache=self.caches[1], cu_seqlens_q=self.starts,
                    seqused_k=self.lengths, block_table=self.table, max_seqlen_q=8, max_seqlen_k=300, out=self.out)


@pytest.mark.parametrize("way", ["own schedule", "schedule", "lists"])
def test_a_graph_is_replayed_over_batches(way):
    name = "dilated" if way == "lists" else "prefix"
    attend, memory = attn.torch.VarlenAttention(SPECS[name]), Memory(SIZES[0], 8, 64, 300)
    own = {} if name == "dilated" else {"prefix": memory.prefix}
    schedule = None
    if way == "schedule":
        schedule = attend.schedule(memory.q, *memory.caches, memory.table, max_seqlen_q=8, max_seqlen_k=300, **own)

    def run():
        if schedule is not None:
            schedule.build(memory.starts, memory.lengths, num_sequences=memory.count)
        attend(**memory.arguments(), schedule=schedule, **own)

    with torch.no_grad():
        memory.batch(0)
        graph = captured(run)
        for seed in range(40):
            batch, inputs = memory.batch(seed)
            graph.replay()
            torch.cuda.synchronize()
            rows = sum(batch.rows)
            compare(batch, expected(name, batch, inputs), memory.out, rows=rows)
            assert memory.out[rows:].isnan().all()


def test_one_row_of_each_sequence():
    attend = attn.torch.VarlenAttention(SPECS["chunks"])
    batch = batch_of(3)
    assert set(batch.rows) == {1}
    given = {**batch.arguments, "cu_seqlens_q": None}
    compare(batch, expected("chunks", batch, {}), attend(**given))


@pytest.mark.parametrize("heads", [16, 128])
def test_latent_attention(heads):
    """DeepSeek's absorbed form: keys are the rows of one pool, and values their first 512 elements."""
    torch.manual_seed(1)
    page, pages, keys, rows = 64, 40, [700, 1, 64, 333], [1, 1, 3, 2]
    pool = torch.randn(pages, page, 1, 576, device=DEVICE).bfloat16()
    table = torch.randperm(pages, device=DEVICE)[:4 * 11].int()
    table = torch.nn.functional.pad(table, (0, 44 - len(table)), value=3).view(4, 11)
    q = torch.randn(sum(rows), heads, 576, device=DEVICE).bfloat16()
    starts = torch.tensor([0, *rows], device=DEVICE).cumsum(0).int()
    lengths = torch.tensor(keys, dtype=torch.int32, device=DEVICE)
    o, lse = attn.torch.varlen_attention(
        q, pool, pool[..., :512], cu_seqlens_q=starts, seqused_k=lengths, block_table=table, max_seqlen_q=4,
        max_seqlen_k=704, softmax_scale=192**-0.5, return_lse=True)
    for i, (part, part_o, part_lse) in enumerate(zip(*(x.split(rows) for x in (q, o, lse)))):
        k = pool[table[i].long()].flatten(0, 1)[:keys[i], 0].double()
        s = torch.einsum("qhd,kd->hqk", part.double(), k) * 192**-0.5
        past = torch.arange(keys[i] - rows[i], keys[i], device=DEVICE)[:, None] - torch.arange(keys[i], device=DEVICE)
        s = s.masked_fill(past < 0, -torch.inf)
        right = torch.einsum("hqk,kd->qhd", s.softmax(-1).nan_to_num(0.0), k[:, :512])
        torch.testing.assert_close(part_o.double(), right, rtol=0.03, atol=0.03)
        torch.testing.assert_close(part_lse.double(), torch.logsumexp(s, -1).t(), rtol=1e-4, atol=3e-3)
