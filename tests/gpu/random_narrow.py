"""random_narrow.py COUNT FIRST FOLDER: writes COUNT random specs of 8-bit attention, the FIRST-th and those behind it,
to FOLDER/forward and FOLDER/backward in turns: head dimensions in multiples of 8, odd sizes, grouped heads, layouts
with gaps, packed rows, pages, lengths, bands, scores, sinks, dropout, both types of q and do, o and gradients in 8 or 16
bits. Those behind the 288th also have pages of any size, gradients over pages, and any subset of gradients, and
each type by itself. verify_many.py compares what engines make of them with the reference:

    python3 tests/gpu/random_narrow.py 288 1 OUT
    python3 tests/gpu/verify_many.py build/attnc OUT/forward OUT/forward.jsonl --engine native --shapes own
    python3 tests/gpu/verify_many.py build/attnc OUT/backward OUT/backward.jsonl --engine native --shapes own --grad
"""
import pathlib
import random
import sys

DEPTHS = (8, 32, 40, 64, 72, 80, 88, 96, 104, 120, 128, 136, 152, 168, 184, 192, 256)
SIZES = (1, 7, 64, 129, 200, 333, 512, 777)
PLAIN = 288  # specs that have none of the rest
SCORES = ("softcap(20)", "score + 0.02 * (kv_idx - q_idx)", "score * (1 + 0.1 * h)")


class Spec:
    """The clauses of a random spec."""

    def __init__(self, number, trains):
        self.pick = random.Random(number)
        self.trains = trains
        self.kind = self.pick.choice(("plain", "plain", "gaps", "thd", "packed", "bhsd", "plain" if trains else "paged"))
        self.more = random.Random(f"more {number}") if number > PLAIN else None
        if trains and self.more and self.more.randrange(4) == 0:
            self.kind = "paged"
        self.dims = self.sizes()
        self.name = f"narrow_{number}"

    def one_of(self, n):
        return self.pick.randrange(n) == 0

    def sizes(self):
        keys, group = self.pick.choice((1, 2, 3)), self.pick.choice((1, 1, 2, 5))
        rows = self.pick.choice(SIZES)
        columns = rows if self.kind in ("thd", "packed") or self.one_of(2) else self.pick.choice(SIZES)
        depth = self.pick.choice(DEPTHS)
        width = 128 if depth == 192 and self.one_of(2) else depth
        return {"B": self.pick.choice((1, 2, 3)), "Hq": keys * group, "Hkv": keys, "Sq": rows, "Skv": columns,
                "Dqk": depth, "Dv": width}

    def quantize(self):
        of_o = self.pick.choice(("e4m3", "e4m3", "bf16", "f16"))
        clauses = ["descale_q = 0.75", "descale_k = 1.5", "descale_v = 0.5", "scale_s = 256", "descale_s = 1 / 256"]
        types = []
        if of_o in ("bf16", "f16"):
            types.append(f"o: {of_o}")
        else:
            clauses.append("scale_o = 64")
        if self.trains:
            types.append(f"do: {self.pick.choice(('e4m3', 'e5m2'))}")
            clauses += ["descale_do = 0.5", "scale_dp = 64", "descale_dp = 1 / 64"]
            if of_o in ("bf16", "f16"):
                types.append(f"gradients: {of_o}")
            else:
                types.append(f"gradients: {self.pick.choice(('e4m3', 'e5m2'))}")
                clauses += ["descale_o = 1 / 64", "scale_dq = 16", "scale_dk = 16", "scale_dv = 16"]
        return ", ".join(["per_tensor", *types, *clauses])

    def quantize_any(self):
        """Each type by itself: o, do and gradients in 8 bits or in 16."""
        wide = ("bf16", "f16")
        of_o = self.more.choice(("e4m3", "e5m2", *wide))
        types = [f"o: {of_o}"]
        clauses = ["descale_q = 0.75", "descale_k = 1.5", "descale_v = 0.5", "scale_s = 256", "descale_s = 1 / 256"]
        if of_o not in wide:
            clauses.append("scale_o = 64")
        if self.trains:
            of_gradients = self.more.choice(("e4m3", "e5m2", *wide))
            types += [f"do: {self.more.choice(('e4m3', 'e5m2'))}", f"gradients: {of_gradients}"]
            clauses += ["descale_do = 0.5", "scale_dp = 64", "descale_dp = 1 / 64"]
            clauses += ["descale_o = 1 / 64"] if of_o not in wide else []
            clauses += ["scale_dq = 16", "scale_dk = 16", "scale_dv = 16"] if of_gradients not in wide else []
        return ", ".join(["per_tensor", *types, *clauses])

    def layout(self):
        gap = self.pick.choice((1, 8, 24))
        of_heads = "{rows} * {heads} * ({depth} + %d), {depth} + %d, {heads} * ({depth} + %d), 1" % ((gap,) * 3)

        def strided(rows, heads, depth):
            return "strides(%s)" % of_heads.format(rows=rows, heads=heads, depth=depth)

        texts = {"gaps": f"q: {strided('Sq', 'Hq', 'Dqk')}, k: {strided('Skv', 'Hkv', 'Dqk')}, "
                         f"v: {strided('Skv', 'Hkv', 'Dv')}",
                 "thd": "thd", "bhsd": "bhsd",
                 "packed": "packed_qkv" if self.dims["Dqk"] == self.dims["Dv"] else "thd",
                 "paged": f"k: paged(page = {self.pick.choice((16, 48, 64))}), v: paged(page = 16)"}
        if self.more and self.kind == "paged":
            of_k, of_v = (self.more.choice((1, 7, 12, 16, 128)) for _ in range(2))
            return f"k: paged(page = {of_k}), v: paged(page = {of_v})"
        return texts.get(self.kind)

    def mask(self):
        return self.pick.choice((None, "q_idx >= kv_idx", "q_idx >= kv_idx && q_idx - kv_idx < 100",
                                 "q_idx - kv_idx < 64 && kv_idx - q_idx < 30", "kv_idx - q_idx <= Skv - Sq"))

    def wanted(self, grads):
        """Some of the gradients: k and v in pages have none."""
        if not self.more:
            return grads
        can = [name for name in grads if self.kind != "paged" or name not in ("k", "v")]
        return [name for name in can if self.more.randrange(2)] or [self.more.choice(can)]

    def text(self):
        lines = ["dims " + ", ".join(f"{name} = {value}" for name, value in self.dims.items()),
                 f"dtype {self.pick.choice(('e4m3', 'e4m3', 'e5m2'))}", f"quantize {self.quantize_any() if self.more else self.quantize()}"]
        grads = ["q", "k", "v"]
        if layout := self.layout():
            lines.append(f"layout {layout}")
        if self.kind != "thd" and self.one_of(3):
            lines.append("lengths q = Sq - Sq // 3 * (i0 % 2), kv = Skv // (1 + i0)")
        if self.one_of(4):
            lines += ["learn sinks: f32[Hq]", "sink sinks[h]"]
            grads.append("sinks")
        if self.one_of(3):
            lines.append(f"score {self.pick.choice(SCORES)}")
        if mask := self.mask():
            lines.append(f"mask {mask}")
        if self.one_of(6):
            lines.append("dropout 0.1")
        lines.append("outputs o, lse, amax_s" + (", amax_o" if "scale_o" in lines[2] else ""))
        if self.trains:
            lines.append("grad " + ", ".join(self.wanted(grads)))
        body = "".join(f"  {line};\n" for line in lines)
        return f'import "scores.attn";\n\nattention {self.name} {{\n{body}}}\n'


def main():
    count, first, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    for number in range(first, first + count):
        trains = number % 2 == 0
        of = folder / ("backward" if trains else "forward")
        of.mkdir(parents=True, exist_ok=True)
        (of / f"narrow_{number}.attn").write_text(Spec(number, trains).text())


if __name__ == "__main__":
    main()
