"""A plan for larger sizes that also serves smaller ones gives the same values for them. Compared with the
reference, and on a GPU if there is one."""
import numpy

import attnc

LARGE = {"B": 4, "Sq": 64, "Skv": 96}
SMALL = {"B": 3, "Sq": 49, "Skv": 80}
HEADS = {"Hq": 4, "Hkv": 2, "D": 64}

# Clauses, and the dims of captured tensors.
CASES = [
    ("lengths q, kv; mask q_idx >= kv_idx;", {}),
    ("lengths q, kv; align bottom_right; mask q_idx >= kv_idx && q_idx - kv_idx < 30;", {}),
    ("layout thd; score 20 * tanh(score / 20);", {}),
    ("lengths q, kv; learn slopes: f32[Hq]; score score + slopes[h] * (kv_idx - q_idx);"
     "grad q, k, v, slopes;", {"slopes": ("Hq",)}),
    ("lengths q, kv; learn bias: f32[Hq, Sq, Skv]; score score + bias[h, q_idx, kv_idx];"
     "grad q, v, bias;", {"bias": ("Hq", "Sq", "Skv")}),
    ("lengths q, kv; tensor doc: i32[B, Skv] monotone; mask doc[b, q_idx] == doc[b, kv_idx];",
     {"doc": ("B", "Skv")}),
]
INPUTS = {"q": ("B", "Hq", "Sq", "D"), "k": ("B", "Hkv", "Skv", "D"), "v": ("B", "Hkv", "Skv", "D"),
          "do": ("B", "Hq", "Sq", "D"), "lengths_q": ("B",), "lengths_kv": ("B",)}


class Shapes(attnc.Case):
    def setUp(self):
        super().setUp()
        self.random = numpy.random.default_rng(5)

    def inputs(self, tensors, gradients):
        """The inputs at the small sizes, by name."""
        sizes = {**SMALL, **HEADS}
        arrays = {}
        for name, dims in {**INPUTS, **tensors}.items():
            dims = [sizes[dim] for dim in dims]
            if name == "do" and not gradients:
                continue
            if name.startswith("lengths"):
                most = SMALL["Sq" if name == "lengths_q" else "Skv"]
                arrays[name] = numpy.array([most, most - 11, most // 2], "int32")
            elif name == "doc":
                arrays[name] = (numpy.arange(dims[0] * dims[1]).reshape(dims) // 20).astype("int32")
            else:
                values = self.random.standard_normal(dims).astype("float32")
                arrays[name] = values / 8 if name in tensors else values
        return arrays

    def padded(self, name, array, dims):
        """Pads an array to the large sizes, as a caller must."""
        sizes = {**LARGE, **HEADS}
        mode = "edge" if name == "doc" else "constant"
        return numpy.pad(array, [(0, sizes[dim] - n) for dim, n in zip(dims, array.shape)], mode)

    def run_spec(self, spec, sizes, arrays, names, backend):
        call = ["run", spec, "--backend", backend]
        call += ["--unrounded"] if backend == "reference" else []
        call += ["--grad"] if "do" in arrays else []
        for name, size in sizes.items():
            call += ["--bind", f"{name}={size}"]
        for name, array in arrays.items():
            numpy.save(self.folder / f"{name}.npy", array)
            call += ["--in", f"{name}=@{self.folder / name}.npy"]
        for name in names:
            call += ["--out", f"{name}={self.folder / name}_out.npy"]
        self.attnc(*call)
        return {name: numpy.load(self.folder / f"{name}_out.npy") for name in names}

    def compare(self, name, small, large, backend):
        large = large[tuple(slice(0, size) for size in small.shape)]
        numpy.testing.assert_array_equal(numpy.isinf(small), numpy.isinf(large), name)
        small, large = (numpy.where(numpy.isinf(x), 0, x) for x in (small, large))
        difference = numpy.linalg.norm(small - large) / numpy.linalg.norm(small)
        self.assertLess(difference, 1e-12 if backend == "reference" else 1e-2, name)

    def test_a_larger_plan_computes_the_same(self):
        backends = ["reference", "cudnn"] if attnc.has_gpu() else ["reference"]
        dims = "B = 4, Hq = 4, Hkv = 2, Sq = 64, Skv = 96, D = 64"
        for clauses, tensors in CASES:
            text = f"attention x {{ dims {dims}; outputs o, lse; {clauses} }}"
            spec = self.write("x.attn", text)
            with self.subTest(clauses):
                plan = self.compile(spec, "--direction", "fwd")
                self.assertEqual(self.attnc_json("inspect", plan)["shape"]["padded"],
                                 ["B", "Sq", "Skv"])
                gradients = text.partition("grad ")[2].partition(";")[0].split(", ")
                names = ["o", "lse"] + [("d" if name in "qkv" else "d_") + name
                                        for name in gradients if name]
                arrays = self.inputs(tensors, len(names) > 2)
                padded = {name: self.padded(name, array, {**INPUTS, **tensors}[name])
                          for name, array in arrays.items()}
                for backend in backends:
                    small = self.run_spec(spec, SMALL, arrays, names, backend)
                    large = self.run_spec(spec, LARGE, padded, names, backend)
                    for name in names:
                        self.compare(name, small[name], large[name], backend)

    def test_one_that_reads_its_size_does_not(self):
        spec = self.write("x.attn", "attention x { dims B = 4, Hq = 4, Hkv = 2, Sq = 64, Skv = 96, "
                                    "D = 64; lengths q, kv; score score * kv_idx / Skv; }")
        self.assertEqual(self.attnc_json("inspect", self.compile(spec))["shape"]["padded"],
                         ["B", "Sq"])
        arrays = self.inputs({}, False)
        padded = {name: self.padded(name, array, INPUTS[name]) for name, array in arrays.items()}
        small = self.run_spec(spec, SMALL, arrays, ["o"], "reference")
        large = self.run_spec(spec, LARGE, padded, ["o"], "reference")
        with self.assertRaises(AssertionError):
            self.compare("o", small["o"], large["o"], "reference")


if __name__ == "__main__":
    attnc.main()
