"""Times decodes of sequences that begin with the same keys: read for each, read once by a schedule, and as two calls
with a merge. Needs an H200.

    PYTHONPATH=python python bench/shared_keys.py
"""

import torch

import attn.torch

HEADS, HEADS_KV, DEPTH, PAGE = 32, 8, 128, 16


def milliseconds(run, times=20):
    """The median time of a run, in a CUDA graph of ten."""
    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            run()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    taken = []
    for _ in range(times):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) / 10)
    return sorted(taken)[times // 2]


def measure(sequences, shared, own, rows=1):
    lengths = torch.full((sequences,), shared + own, dtype=torch.int32, device="cuda")
    of_sequence, of_prefix = -(-own // PAGE), shared // PAGE
    table = torch.empty(sequences, of_prefix + of_sequence, dtype=torch.int32)
    table[:, :of_prefix] = torch.arange(of_prefix)
    table[:, of_prefix:] = of_prefix + torch.randperm(sequences * of_sequence).view(sequences, of_sequence)
    table = table.cuda()
    pages = of_prefix + sequences * of_sequence
    k, v = torch.randn(2, pages, PAGE, HEADS_KV, DEPTH, device="cuda", dtype=torch.bfloat16)
    q = torch.randn(sequences * rows, HEADS, DEPTH, device="cuda", dtype=torch.bfloat16)
    starts = torch.arange(sequences + 1, dtype=torch.int32, device="cuda") * rows
    out = torch.empty_like(q)
    sizes = dict(max_seqlen_q=rows, max_seqlen_k=shared + own)
    schedule = attn.torch.Schedule(q, k, v, table, **sizes)

    def call():
        attn.torch.varlen_attention(q, k, v, cu_seqlens_q=starts, seqused_k=lengths, block_table=table, **sizes, out=out,
                                    schedule=schedule)

    schedule.build(starts, lengths)
    each = milliseconds(call)
    whole = out.clone()
    schedule.build(starts, lengths, shared_keys=shared)
    assert schedule.flags() == 0
    once = milliseconds(call)
    torch.testing.assert_close(out, whole, rtol=0.05, atol=0.02)

    # All rows as those of one sequence, whose keys are the prefix.
    one = dict(causal=False, max_seqlen_q=len(q), max_seqlen_k=shared, return_lse=True)
    rest = dict(max_seqlen_q=rows, max_seqlen_k=own, return_lse=True)
    first, second = (attn.torch.Schedule(q, k, v, t, **s) for t, s in ((table[:1], one), (table[:, of_prefix:], rest)))
    all_rows = torch.tensor([0, len(q)], dtype=torch.int32, device="cuda")
    prefix, others = (torch.full((n,), x, dtype=torch.int32, device="cuda") for n, x in ((1, shared), (sequences, own)))
    first.build(all_rows, prefix)
    second.build(starts, others)
    o = torch.empty(2, *q.shape, device="cuda", dtype=q.dtype)
    lse = torch.empty(2, len(q), HEADS, device="cuda")

    def two():
        attn.torch.varlen_attention(q, k, v, cu_seqlens_q=all_rows, seqused_k=prefix, block_table=table[:1], **one,
                                    out=o[0], lse_out=lse[0], schedule=first)
        attn.torch.varlen_attention(q, k, v, cu_seqlens_q=starts, seqused_k=others, block_table=table[:, of_prefix:],
                                    **rest, out=o[1], lse_out=lse[1], schedule=second)
        attn.torch.merge(o, lse, out=out)

    merged = milliseconds(two)
    torch.testing.assert_close(out, whole, rtol=0.05, atol=0.02)
    print(f"| {sequences} | {rows} | {shared} | {own} | {each:.4f} | {merged:.4f} | {once:.4f} |", flush=True)


if __name__ == "__main__":
    print("| sequences | rows | shared keys | own keys | each, ms | two calls and merge | once |")
    for case in ((16, 2048, 256), (64, 2048, 256), (256, 2048, 256), (256, 512, 512), (32, 16384, 512),
                 (256, 8192, 1024), (64, 2048, 256, 4), (1, 4096, 128)):
        measure(*case)
