"""Keys that all sequences of a batch begin with, which a schedule reads once, on a GPU: against dense attention in
float64, and against calls that read them for each sequence."""

import random

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0):
    pytest.skip("needs a GPU of compute capability 9.0", allow_module_level=True)

import attn  # noqa: E402
import attn.torch  # noqa: E402
from test_torch_varlen_gpu import DEVICE, compare, plans_for_the_session, schedule_of  # noqa: E402, F401
from varlen_batches import Batch  # noqa: E402

NOT_SHARED = 4  # of flags


def batch_of(seed, shared, **options):
    choose = random.Random(seed % 20)
    depth = choose.choice((64, 128, 80))
    sizes = (choose.choice((1, 2, 4)), choose.choice((1, 4, 5)), depth, depth, choose.choice((16, 32, 64)),
             choose.choice((torch.bfloat16, torch.float16)))
    options = {"causal": choose.random() < 0.8, **options}
    if choose.random() < 0.4:
        options["softcap"] = 20.0
    if choose.random() < 0.4:
        options["s_aux"] = torch.randn(sizes[0] * sizes[1], device=DEVICE)
    return Batch(seed, DEVICE, sizes, shared=shared, most_keys=1500, **options)


@pytest.mark.parametrize("seed", range(40))
def test_random_batches(seed):
    choose = random.Random(seed)
    shared = choose.choice((64, 128, 512, 1024, 2048))
    rows = ("decode", "few", "mixed")[seed % 20 % 3]
    batch = batch_of(seed, shared, rows=rows, count=choose.choice((2, 9, 40)))
    batch.arguments.update(max_seqlen_q={"decode": 1, "few": 8}.get(rows, 300), max_seqlen_k=4000)
    starts, lengths = batch.arguments["cu_seqlens_q"], batch.arguments["seqused_k"]
    with torch.no_grad():
        o, lse = attn.torch.varlen_attention(**batch.arguments, return_lse=True)
        schedule = schedule_of(batch, return_lse=True, max_parts=choose.choice((0, 0, 1, 3)),
                               sm_margin=choose.choice((0, 0, 40)))
        schedule.build(starts, lengths, shared_keys=shared)
        assert schedule.flags() == 0 or rows == "mixed"  # of which there may be too many
        for _ in range(3):
            out, lse_out = torch.full_like(o, torch.nan), torch.full_like(lse, torch.nan)
            attn.torch.varlen_attention(**batch.arguments, schedule=schedule, out=out, lse_out=lse_out)
            compare(batch, out, lse_out)
            torch.testing.assert_close(out, o, rtol=0.05, atol=0.02)


@pytest.mark.parametrize("rows", ("decode", "few"))
def test_latent_attention(rows):
    """Values of 512 columns, which two warp groups divide."""
    batch = Batch(5, DEVICE, (1, 16, 576, 512, 64, torch.bfloat16), shared=1024, count=20, rows=rows, causal=True)
    schedule = schedule_of(batch)
    schedule.build(batch.arguments["cu_seqlens_q"], batch.arguments["seqused_k"], shared_keys=1024)
    for _ in range(2):
        compare(batch, attn.torch.varlen_attention(**batch.arguments, schedule=schedule))
    assert schedule.flags() == 0


def test_batches_of_a_graph_share_other_keys():
    """Beside the number of sequences; also none, and more than some sequence has."""
    batch = batch_of(3, 1024, rows="decode", count=64)
    batch.arguments.update(max_seqlen_q=1, max_seqlen_k=4000)
    starts, lengths = batch.arguments["cu_seqlens_q"], batch.arguments["seqused_k"]
    numbers = torch.tensor([64, 1024], dtype=torch.int32, device=DEVICE)
    schedule, out = schedule_of(batch), torch.empty_like(batch.arguments["q"])

    def step():
        schedule.build(starts, lengths, numbers, shared_keys=None)
        for _ in range(3):
            attn.torch.varlen_attention(**batch.arguments, schedule=schedule, out=out)

    with torch.no_grad():
        step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        for count, shared, flags in ((64, 1024, 0), (64, 0, 0), (9, 512, 0), (64, 256, 0), (64, 4000, NOT_SHARED)):
            numbers.copy_(torch.tensor([count, shared], dtype=torch.int32))
            out.fill_(torch.nan)
            graph.replay()
            assert schedule.flags() == flags
            compare(batch, out, rows=count)
            assert out[count:].isnan().all()


def test_many_runs_with_one_schedule():
    """Blocks of threads wait for each other only for what is being computed."""
    batch = batch_of(1, 2048, rows="few", count=60)
    batch.arguments.update(max_seqlen_q=8, max_seqlen_k=4000)
    schedule, out = schedule_of(batch), torch.empty_like(batch.arguments["q"])
    with torch.no_grad():
        for _ in range(20):
            schedule.build(batch.arguments["cu_seqlens_q"], batch.arguments["seqused_k"], shared_keys=2048)
            for _ in range(101):
                attn.torch.varlen_attention(**batch.arguments, schedule=schedule, out=out)
    compare(batch, out)
    assert schedule.flags() == 0


def test_what_cannot_be_shared_says_why():
    def build(batch, **options):
        schedule = schedule_of(batch, **options)
        schedule.build(batch.arguments["cu_seqlens_q"], batch.arguments["seqused_k"], shared_keys=64)

    sizes = (2, 4, 64, 64, 16, torch.bfloat16)
    with pytest.raises(attn.UnsupportedError, match="since scores depend on the row or on the sequence"):
        build(Batch(1, DEVICE, sizes, count=5, shared=64, alibi_slopes=torch.rand(8, device=DEVICE)))
    with pytest.raises(attn.UnsupportedError, match="since pages are no multiples of 16 rows"):
        build(Batch(1, DEVICE, (*sizes[:4], 1, sizes[5]), count=5, shared=64, causal=True))
    with pytest.raises(attn.ArgumentError, match="split_keys"):
        build(Batch(1, DEVICE, sizes, count=5, shared=64, causal=True), split_keys=256, capacity_keys=9999)
    window = Batch(1, DEVICE, sizes, count=5, shared=64, most_keys=300, rows="decode", window_size=(32, 0))
    schedule = schedule_of(window)
    schedule.build(window.arguments["cu_seqlens_q"], window.arguments["seqused_k"], shared_keys=256)
    assert schedule.flags() == NOT_SHARED
    compare(window, attn.torch.varlen_attention(**window.arguments, schedule=schedule))
