"""attn.torch.varlen_attention on a GPU, against dense attention in float64."""

import random

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0):
    pytest.skip("needs a GPU of compute capability 9.0", allow_module_level=True)

import attn.torch  # noqa: E402
from attn.torch import varlen_spec  # noqa: E402
from varlen_batches import Batch, random_options, random_sizes  # noqa: E402

DEVICE = "cuda"


@pytest.fixture(autouse=True)
def plans_for_the_session(tmp_path_factory, monkeypatch):
    """One folder of plans for all tests: those of one key are compiled once."""
    folder = tmp_path_factory.getbasetemp() / "plans"
    monkeypatch.setenv("ATTN_CACHE_DIR", str(folder))


def compare(batch, o, lse=None, rows=None):
    right, right_lse = (x[:rows] for x in batch.expected(DEVICE))
    o = o[:rows].double()
    assert not o.isnan().any()
    rounding = torch.finfo(batch.dtype).eps
    torch.testing.assert_close(o, right, rtol=4 * rounding, atol=4 * rounding)
    if lse is not None:
        torch.testing.assert_close(lse[:rows].double(), right_lse, rtol=1e-4, atol=2e-3)


def schedule_of(batch, **options):
    given = {name: value for name, value in batch.arguments.items() if name not in ("cu_seqlens_q", "seqused_k")}
    first = [given.pop(name) for name in ("q", "k_cache", "v_cache", "block_table")]
    return attn.torch.Schedule(*first, **given, **options)


# Batches of 25 shapes and options, so that plans are few.
@pytest.mark.parametrize("seed", range(100))
def test_random_batches(seed):
    sizes = random_sizes(random.Random(seed % 25))
    options = random_options(random.Random(seed % 25), sizes[0] * sizes[1], DEVICE)
    count = None if seed < 25 else random.Random(seed).randint(1, 8)
    batch = Batch(seed, DEVICE, sizes, count=count, **options)
    if seed >= 25:
        batch.arguments.update(max_seqlen_q=300, max_seqlen_k=1500)
    with torch.no_grad():
        o, lse = attn.torch.varlen_attention(**batch.arguments, return_lse=True)
        compare(batch, o, lse)
        schedule = schedule_of(batch, return_lse=True, max_parts=batch.choose.choice((0, 1, 2)),
                               sm_margin=batch.choose.choice((0, 0, 20)))
        schedule.build(batch.arguments["cu_seqlens_q"], batch.arguments["seqused_k"])
        schedule.check(batch.arguments["block_table"], batch.arguments["k_cache"])
        out, lse_out = torch.full_like(o, torch.nan), torch.full_like(lse, torch.nan)
        for _ in range(2):
            attn.torch.varlen_attention(**batch.arguments, schedule=schedule, out=out, lse_out=lse_out)
        compare(batch, out, lse_out)
        assert schedule.flags() == 0


def test_one_row_of_each_sequence_without_cu_seqlens():
    batch = Batch(3, DEVICE, rows="decode", most_keys=1500)
    given = {**batch.arguments, "cu_seqlens_q": None}
    compare(batch, attn.torch.varlen_attention(**given))
    schedule = schedule_of(batch)
    schedule.build(None, given["seqused_k"])
    compare(batch, attn.torch.varlen_attention(**given, schedule=schedule))


def test_slopes_of_sequences():
    batch = Batch(5, DEVICE, (2, 5, 64, 64, 16, torch.bfloat16), count=9, causal=False,
                  alibi_slopes=torch.rand(9, 10, device=DEVICE))
    compare(batch, attn.torch.varlen_attention(**batch.arguments))


def test_a_window_is_no_other_plan():
    sizes = (2, 4, 128, 128, 16, torch.bfloat16)
    before = None
    for left in (3, 100, 700):
        batch = Batch(left, DEVICE, sizes, count=5, most_keys=1500, rows="few", window_size=(left, -1))
        batch.arguments["max_seqlen_q"], batch.arguments["max_seqlen_k"] = 8, 1500
        compare(batch, attn.torch.varlen_attention(**batch.arguments))
        assert before in (None, len(varlen_spec._executables))
        before = len(varlen_spec._executables)


def test_parts_of_keys_do_not_depend_on_the_batch():
    """With split_keys, each sequence has bit by bit the result that it has alone."""
    sizes = (2, 5, 128, 128, 16, torch.bfloat16)
    batch = Batch(7, DEVICE, sizes, count=17, most_keys=1500, rows="few", causal=True, softcap=20.0)
    given = {**batch.arguments, "max_seqlen_q": 8, "max_seqlen_k": 1500}
    batch.arguments.update(max_seqlen_q=8, max_seqlen_k=1500)
    schedule = schedule_of(batch, return_lse=True, split_keys=256, capacity_keys=17 * 1500)
    schedule.build(given["cu_seqlens_q"], given["seqused_k"])
    o, lse = attn.torch.varlen_attention(**given, schedule=schedule, return_lse=True)
    assert schedule.flags() == 0
    compare(batch, o, lse)
    starts = [0, *torch.tensor(batch.rows).cumsum(0).tolist()]
    for sequence, (first, end) in enumerate(zip(starts, starts[1:])):
        if first == end:
            continue
        own = slice(sequence, sequence + 1)
        alone = {**given, "q": given["q"][first:end], "seqused_k": given["seqused_k"][own],
                 "block_table": given["block_table"][own],
                 "cu_seqlens_q": torch.tensor([0, end - first], dtype=torch.int32, device=DEVICE)}
        schedule.build(alone["cu_seqlens_q"], alone["seqused_k"])
        o_alone, lse_alone = attn.torch.varlen_attention(**alone, schedule=schedule, return_lse=True)
        assert torch.equal(o_alone, o[first:end]) and torch.equal(lse_alone, lse[first:end])


class Step:
    """A layer's tensors of the largest size, in which batches are put, as an engine has them for a graph."""

    def __init__(self, sizes, sequences, rows, keys, **options):
        heads_kv, group, depth, depth_v, page, dtype = self.sizes = sizes
        self.sequences, self.keys, self.options = sequences, keys, options
        columns = -(-keys // page)

        def numbers(*shape):
            return torch.zeros(shape, dtype=torch.int32, device=DEVICE)

        self.count, self.starts, self.lengths = numbers(1), numbers(sequences + 1), numbers(sequences)
        self.table = numbers(sequences, columns)
        self.q = torch.zeros(rows, heads_kv * group, depth, dtype=dtype, device=DEVICE)
        self.caches = [torch.zeros(sequences * columns + 3, page, heads_kv, width, dtype=dtype, device=DEVICE)
                       for width in (depth, depth_v)]
        self.out = torch.zeros(rows, heads_kv * group, depth_v, dtype=dtype, device=DEVICE)
        self.lse = torch.zeros(rows, heads_kv * group, device=DEVICE)

    def batch(self, seed):
        """The tensors of a random batch are copied; what it has not is nonsense."""
        choose = random.Random(seed)
        batch = Batch(seed, "cpu", self.sizes, count=choose.randint(1, self.sequences), most_keys=self.keys,
                      rows=choose.choice(("few", "decode")), **self.options)
        given = batch.arguments
        self.count.fill_(batch.count)
        self.starts.fill_(-7).view(-1)[:batch.count + 1].copy_(given["cu_seqlens_q"])
        self.lengths.fill_(10**9)[:batch.count].copy_(given["seqused_k"])
        table = given["block_table"][:, :self.table.shape[1]]
        self.table.fill_(-1)[:batch.count, :table.shape[1]].copy_(table)
        self.q.fill_(torch.nan)[:sum(batch.rows)].copy_(given["q"])
        for memory, name in zip(self.caches, ("k_cache", "v_cache")):
            memory.fill_(torch.nan)[:len(given[name])].copy_(given[name])
        self.out.fill_(torch.nan)
        self.lse.fill_(torch.nan)
        return batch

    def attend(self, schedule=None):
        return attn.torch.varlen_attention(
            self.q, *self.caches, cu_seqlens_q=self.starts, seqused_k=self.lengths, block_table=self.table,
            max_seqlen_q=8, max_seqlen_k=self.keys, out=self.out, lse_out=self.lse, schedule=schedule, **self.options)


def captured(run):
    """A graph of what is run, whose first call was before."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def test_a_graph_is_replayed_over_batches():
    """With other lengths, tables and numbers of sequences at each replay, two layers on one schedule."""
    sizes = (2, 5, 128, 128, 16, torch.bfloat16)
    layers = [Step(sizes, 17, 128, 1500, causal=True, window_size=(900, -1)) for _ in range(2)]
    first = layers[0]
    schedule = attn.torch.Schedule(first.q, *first.caches, first.table, max_seqlen_q=8, max_seqlen_k=first.keys,
                                   return_lse=True, **first.options)

    def run():
        schedule.build(first.starts, first.lengths, num_sequences=first.count)
        for layer in layers:
            layer.attend(schedule)

    first.batch(0)
    layers[1].batch(0)
    graph = captured(run)
    for seed in range(200):
        batches = [layer.batch(seed) for layer in layers]
        graph.replay()
        torch.cuda.synchronize()
        for layer, batch in zip(layers, batches):
            rows = sum(batch.rows)
            compare(batch, layer.out, layer.lse, rows)
            assert layer.out[rows:].isnan().all() and layer.lse[rows:].isnan().all()
        assert schedule.flags() == 0


def test_a_graph_without_a_schedule():
    """Each call makes its own, in memory of the graph's; meanwhile others are made on another stream."""
    sizes = (1, 4, 64, 64, 64, torch.float16)
    layer, other = (Step(sizes, 8, 64, 300, causal=True) for _ in range(2))
    def filled(each, seed):
        batch = each.batch(seed)
        each.starts[batch.count:] = sum(batch.rows)
        each.lengths[batch.count:] = 0
        return batch

    for each in (layer, other):
        filled(each, 2)
        each.attend()
    graph = captured(layer.attend)
    side = torch.cuda.Stream()
    for seed in range(10):
        batches = [filled(each, seed) for each in (layer, other)]
        side.wait_stream(torch.cuda.current_stream())
        graph.replay()
        with torch.cuda.stream(side):
            other.attend()
        torch.cuda.synchronize()
        for each, batch in zip((layer, other), batches):
            compare(batch, each.out, each.lse, sum(batch.rows))


def test_nothing_is_allocated_by_repeated_calls():
    step = Step((2, 4, 128, 128, 16, torch.bfloat16), 8, 64, 300, causal=True)
    batch = step.batch(4)
    step.starts[batch.count:] = sum(batch.rows)
    step.lengths[batch.count:] = 0
    step.attend()
    torch.cuda.synchronize()
    before, free = torch.cuda.memory_stats()["allocation.all.allocated"], torch.cuda.mem_get_info()[0]
    for _ in range(10):
        step.attend()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    torch.cuda.synchronize()
    assert torch.cuda.mem_get_info()[0] == free
    compare(batch, step.out, step.lse, sum(batch.rows))


def test_random_options_are_of_all_kinds():
    kinds = set()
    for seed in range(100):
        kinds |= set(random_options(random.Random(seed), 10, "cpu"))
    assert kinds == {"causal", "window_size", "softcap", "s_aux", "alibi_slopes", "softmax_scale"}
