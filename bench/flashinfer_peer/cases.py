"""Writes cases for flashinfer_peer, a line each: NAME PAGE LENGTHS ROWS."""
import math
import random

SEEDS = range(8)


def lognormal(seed, count=64, greatest=65536):
    """Lengths of a batch, of which most are short and few are long."""
    draws = random.Random(seed)
    return [max(1, min(greatest, int(math.exp(draws.gauss(8.0, 1.3))))) for _ in range(count)]


def cases():
    """Tuples of name, page, lengths of keys, and rows of each sequence."""
    for seed in SEEDS:
        yield f"log{seed}", 16, lognormal(seed), [1] * 64
    yield "skew", 64, [131072] + [1024] * 31, [1] * 32
    yield "ramp", 64, [1024 + 2000 * i for i in range(32)], [1] * 32
    yield "uniform16", 16, [8192] * 64, [1] * 64
    yield "uniform64", 64, [8192] * 64, [1] * 64
    yield "mixed", 16, [4096] * 255 + [8192], [1] * 255 + [2048]
    yield "decodes255", 16, [4096] * 255, [1] * 255  # the two parts of `mixed`
    yield "chunk", 16, [8192], [2048]


def main():
    for name, page, lengths, rows in cases():
        print(name, page, ",".join(map(str, lengths)), ",".join(map(str, rows)))


if __name__ == "__main__":
    main()
