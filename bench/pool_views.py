#!/usr/bin/env python3
"""Times decodes over caches of any strides, beside pools of their own (HND), on the local GPU.

    PYTHONPATH=python bench/pool_views.py [--page N..] [--batch B] [--keys SKV] [--runs N]

Each layout is views of k and v of one allocation. Needs the package `attn` and torch. Prints for each page and layout
the median time of a call in a CUDA graph, bytes of keys and values a second, and the time beside HND's of the same run.
"""

import argparse
import statistics

import torch

import attn
import attn.torch

HEADS, KEY_HEADS, DEPTH = 32, 8, 128


def caches(pages, page):
    """k and v [pages, Hkv, page, D] by the name of the layout."""
    h, d = KEY_HEADS, DEPTH

    def cache(*shape):
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    def inside(pair):
        return tuple(x.transpose(1, 2) for x in pair)

    yield "HND", lambda: (cache(pages, h, page, d), cache(pages, h, page, d))
    yield "NHD", lambda: inside((cache(pages, page, h, d), cache(pages, page, h, d)))
    yield "[2,P,N,H,D]", lambda: inside(cache(2, pages, page, h, d))
    yield "[P,2,N,H,D]", lambda: inside(cache(pages, 2, page, h, d).unbind(1))
    yield "[P,2,H,N,D]", lambda: cache(pages, 2, h, page, d).unbind(1)
    yield "[P,N,H,2D]", lambda: cache(pages, page, h, 2 * d).transpose(1, 2).split(d, -1)
    yield "[P,H,N,2D]", lambda: cache(pages, h, page, 2 * d).split(d, -1)
    yield "[P,L,2,N,H,D]", lambda: inside(cache(pages, 2, 2, page, h, d)[:, 1].unbind(1))
    yield "padded pages", lambda: tuple(
        torch.as_strided(x, (pages, h, page, d), (h * page * d + 64, d, h * d, 1))
        for x in (cache(pages * (h * page * d + 64)), cache(pages * (h * page * d + 64))))


def milliseconds(call, runs):
    """The median time of a call, replayed in a graph."""
    for _ in range(3):
        call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    times = []
    for _ in range(runs):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(5):
            graph.replay()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) / 5)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=int, nargs="+", default=[1, 16, 64, 128, 256])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--keys", type=int, default=8192)
    parser.add_argument("--runs", type=int, default=20)
    given = parser.parse_args()
    size = 2 * given.batch * given.keys * KEY_HEADS * DEPTH * 2
    for page in given.page:
        f = attn.compile(
            f"attention views {{ dims B = {given.batch}, Hq = {HEADS}, Hkv = {KEY_HEADS}, Sq = 1,"
            f" Skv = {given.keys}, D = {DEPTH}; layout paged(page = {page}, strides = bound); lengths kv; }}"
        )
        pages = given.batch * -(-given.keys // page)
        table = torch.randperm(pages, device="cuda").int().view(given.batch, -1)
        lengths = torch.full((given.batch,), given.keys, device="cuda", dtype=torch.int32)
        q = torch.randn(given.batch, HEADS, 1, DEPTH, device="cuda", dtype=torch.bfloat16)
        usual = None
        for name, make in caches(pages, page):
            k, v = make()
            ms = milliseconds(lambda: f(q, k, v, page_table=table, lengths_kv=lengths), given.runs)
            usual = usual or ms
            print(f"page {page:<4} {name:<14} {ms:8.4f} ms  {size / ms / 1e9:5.2f} TB/s"
                  f"  {usual / ms:6.1%} of HND's speed")
            del k, v


if __name__ == "__main__":
    main()
