"""run --backend reference: inputs and outputs."""
import json
import subprocess

import numpy

import attnc
from attnc import NOOP, SPECS

CAPTURED = """attention captured {
  dims    B = 1, Hq = 2, Hkv = 1, Sq = 4, Skv = 6, D = 8;
  dtype   f16;
  layout  bhsd;
  tensor  bias: f32[Hq, Sq, Skv];
  tensor  doc: i32[B, Skv];
  param   c: f32;
  score   score * c + bias[h, q_idx, kv_idx];
  mask    doc[b, kv_idx] == 0;
  outputs o, lse;
}
"""


def softmax_attention(q, k, v, modify=lambda scores: scores):
    """Attention of tensors in logical order, with grouped key heads."""
    group = q.shape[1] // k.shape[1]
    k, v = numpy.repeat(k, group, axis=1), numpy.repeat(v, group, axis=1)
    scores = modify(q @ k.swapaxes(2, 3) / numpy.sqrt(q.shape[3]))
    largest = scores.max(axis=-1, keepdims=True)
    weights = numpy.exp(scores - largest)
    sums = weights.sum(axis=-1, keepdims=True)
    return weights @ v / sums, (largest + numpy.log(sums))[..., 0]


NO_KEYS = """attention no_keys {
  dims    B = 2, Hq = 4, Hkv = 2, Sq = 3, Skv, D = 8;
  tensor  bias: f32[Hq, Skv];
  score   score + bias[h, kv_idx];
  mask    q_idx >= kv_idx;
  dropout 0.1;
  outputs o, lse;
}
"""


class Run(attnc.Case):
    def setUp(self):
        super().setUp()
        self.random = numpy.random.default_rng(3)

    def save(self, name, array):
        path = self.folder / f"{name}.npy"
        numpy.save(path, array)
        return f"{name}=@{path}"

    def reference(self, *arguments, **how):
        return self.attnc("run", *arguments, "--backend", "reference", **how)

    def outputs(self, spec, *arguments):
        files = {name: self.folder / f"out_{name}.npy" for name in ("o", "lse")}
        self.reference(spec, *arguments, "--out", f"o={files['o']}", "--out", f"lse={files['lse']}")
        return numpy.load(files["o"]), numpy.load(files["lse"])

    def inputs(self, spec, b=1, hq=2, hkv=1, sq=16, skv=24, d=64):
        return {"q": self.random.standard_normal((b, hq, sq, d)),
                "k": self.random.standard_normal((b, hkv, skv, d)),
                "v": self.random.standard_normal((b, hkv, skv, d))}

    def test_numbers_unrounded(self):
        values = self.inputs(NOOP)
        given = [word for name, value in values.items() for word in ("--in", self.save(name, value))]
        o, lse = self.outputs(self.write("noop.attn", NOOP), "--unrounded", *given)
        expected_o, expected_lse = softmax_attention(**values)
        self.assertEqual((o.dtype, lse.dtype), (numpy.float64, numpy.float64))
        numpy.testing.assert_allclose(o, expected_o, rtol=0, atol=1e-12)
        numpy.testing.assert_allclose(lse, expected_lse, rtol=0, atol=1e-12)

    def test_rounding(self):
        values = self.inputs(NOOP)
        given = [word for name, value in values.items() for word in ("--in", self.save(name, value))]
        o, lse = self.outputs(self.write("noop.attn", NOOP), *given)
        self.assertEqual((o.dtype, lse.dtype), (numpy.float32, numpy.float32))
        self.assertFalse((o.view(numpy.uint32) & 0xFFFF).any(), "o is not rounded to bf16")
        numpy.testing.assert_allclose(o, softmax_attention(**values)[0], rtol=0, atol=2e-2)

    def test_captured_tensors_params_and_fortran_order(self):
        values = self.inputs(CAPTURED, sq=4, skv=6, d=8)
        bias = self.random.standard_normal((2, 4, 6)).astype(numpy.float32)
        doc = numpy.array([[0, 1, 0, 0, 1, 0]], dtype=numpy.int64)
        given = [word for name, value in values.items()
                 for word in ("--in", self.save(name, numpy.asfortranarray(value)))]
        spec = self.write("captured.attn", CAPTURED)
        o, lse = self.outputs(spec, "--unrounded", *given, "--in", self.save("bias", bias),
                              "--in", self.save("doc", doc), "--in", "c=0.5")

        def modify(scores):
            return numpy.where(doc[:, None, None, :] == 0, scores * 0.5 + bias[None], -numpy.inf)

        expected_o, expected_lse = softmax_attention(**values, modify=modify)
        numpy.testing.assert_allclose(o, expected_o, rtol=0, atol=1e-12)
        numpy.testing.assert_allclose(lse, expected_lse, rtol=0, atol=1e-12)

    def test_a_list_is_a_default(self):
        table = numpy.array([[3, 0, -7], [0.5, 2, 1e3]])
        text = """attention f {
  dims    B = 1, Hq = 2, Sq = 3, D = 8;
  tensor  table: f32[Hq, 3] = [[3, 0, -7], [0.5, 2, 1e3]];
  tensor  order: i32[Skv] = [2, 0, 1];
  score   score + table[h, order[kv_idx]];
  outputs o, lse;
}
"""
        spec = self.write("list.attn", text)
        given = ["--in", self.save("table", table), "--in", self.save("order", numpy.array([2, 0, 1]))]
        for by_default, as_given in zip(self.outputs(spec), self.outputs(spec, *given)):
            numpy.testing.assert_array_equal(by_default, as_given)

    def test_a_default_that_is_replaced_may_be_wrong(self):
        text = """attention f {
  dims    B = 3, Hq = 1, Sq = 4, Skv = 8, D = 8;
  tensor  doc: i32[Skv] monotone = -i0;
  lengths kv = [9, 2];
  mask    doc[kv_idx] == 0;
  outputs o, lse;
}
"""
        spec = self.write("wrong.attn", text)
        self.assertIn("E0503", self.reference(spec, code=1).stderr)
        self.assertIn("E0503", self.reference(spec, "--in", "lengths_kv=8", code=1).stderr)
        given = ["--in", "lengths_kv=8", "--in", "doc=zeros"]
        self.reference(spec, *given)
        self.attnc("draw", spec, *given)
        process = self.reference(spec, "--in", "lengths_kv=9", "--in", "doc=zeros", code=2)
        self.assertIn("--in lengths_kv=9: lengths_kv", process.stderr)

    def test_nothing_visible(self):
        spec = self.write("captured.attn", CAPTURED)
        o, lse = self.outputs(spec, "--in", "doc=const:1")
        self.assertFalse(o.any())
        self.assertTrue(numpy.isneginf(lse).all())
        text = self.reference(spec, "--in", "doc=const:1", "--format", "json").stdout
        summary = json.loads(text)["outputs"]["lse"]
        self.assertEqual((summary["inf"], summary["nan"]), (8, 0))

    def test_values(self):
        spec = self.write("noop.attn", NOOP)
        o, _ = self.outputs(spec, "--in", "v=const:1.5", "--in", "q=random:4", "--in", "k=zeros")
        self.assertTrue((o == 1.5).all())
        self.assertTrue((self.outputs(spec, "--in", "v=1.5")[0] == 1.5).all())
        same = [self.outputs(spec)[0], self.outputs(spec, "--in", "q=random:0")[0]]
        self.assertTrue((same[0] == same[1]).all())
        self.assertFalse((same[0] == self.outputs(spec, "--in", "q=random:1")[0]).all())

    def test_what_an_integer_tensor_says_without_a_value(self):
        spec = self.write("captured.attn", CAPTURED)
        process = self.reference(spec, code=2)
        self.assertIn("doc (i32[1,6]) needs a value", process.stderr)
        process = self.reference(spec, "--in", "doc=random", code=2)
        self.assertIn("doc", process.stderr)

    def test_wrong_values(self):
        spec = self.write("captured.attn", CAPTURED)
        cases = {"wrong dims": ("doc", numpy.zeros((1, 7), dtype=numpy.int32), "[1,7]"),
                 "floats for integers": ("doc", numpy.zeros((1, 6)), "doc"),
                 "too large": ("doc", numpy.full((1, 6), 2**40), "1099511627776"),
                 "wrong rank": ("q", numpy.zeros(3), "[3]")}
        for what, (name, value, words) in cases.items():
            with self.subTest(what):
                given = ["--in", self.save(name, value)]
                given += [] if name == "doc" else ["--in", "doc=zeros"]
                process = self.reference(spec, *given, code=2)
                self.assertIn(words, process.stderr)
                self.assertIn(f"--in {name}=", process.stderr)
        for given in ("doc=const:0.5", "doc=3000000000", "c=much"):
            process = self.reference(spec, "--in", given, *([] if "doc" in given else
                                                            ["--in", "doc=zeros"]), code=2)
            self.assertIn(f"--in {given}", process.stderr)

    def test_integers_of_64_bits(self):
        """From a file, exactly: the ancestors of 64 tokens, as the bits of an integer."""
        spec = self.write("tree.attn", """attention tree {
  dims B = 1, Hq = 1, Sq = 64, D = 8;
  tensor tree: i64[B, Sq];
  mask (tree[b, q_idx] >> kv_idx & 1) != 0;
  outputs o, lse;
}
""")
        ancestors = numpy.array([[1 << i | 1 << i // 2 | 1 for i in range(64)]], dtype=numpy.uint64)
        self.attnc("check", spec)
        self.reference(spec, "--in", self.save("tree", ancestors.view(numpy.int64)), "--in", "q=zeros",
                       "--out", f"lse={self.folder / 'lse.npy'}")
        visible = [bin(int(bits)).count("1") for bits in ancestors[0]]
        lse = numpy.load(self.folder / "lse.npy")
        numpy.testing.assert_allclose(lse[0, 0], numpy.log(visible), atol=1e-6)

    def test_integers_of_64_bits_as_32(self):
        """What is computed of them wraps at 32 bits, and numbers may have 64."""
        spec = self.write("hash.attn", """attention hash {
  dims B = 1, Hq = 1, Sq = 64, D = 8;
  tensor hash: i64[Sq];
  mask int(hash[q_idx]) * 65537 >= 0 && hash[kv_idx] < long(1099511627776) && hash[kv_idx] > long(-3000000000);
  outputs o, lse;
}
""")
        hashes = (numpy.arange(64, dtype=numpy.int64) - 20) * 1000003 * 77777
        self.reference(spec, "--in", self.save("hash", hashes), "--in", "q=zeros",
                       "--out", f"lse={self.folder / 'lse.npy'}")
        with numpy.errstate(over="ignore"):
            rows = hashes.astype(numpy.int32) * numpy.int32(65537) >= 0
        count = ((hashes < 1 << 40) & (hashes > -3_000_000_000)).sum()
        lse = numpy.load(self.folder / "lse.npy")[0, 0]
        self.assertTrue(0 < rows.sum() < 64)
        numpy.testing.assert_allclose(lse[rows], numpy.log(count), atol=1e-6)
        self.assertTrue((lse[~rows] == -numpy.inf).all())

    def test_values_that_break_a_fact(self):
        """Every command that takes values refuses them."""
        declared = CAPTURED.replace("doc: i32[B, Skv]", "doc: i32[B, Skv] monotone runs(3)")
        spec = self.write("captured.attn", declared)
        for values, words in (([5, 4, 3, 2, 1, 0], "is declared monotone, but element 1 is 4, after 5"),
                              (range(6), "at most 3 runs, but element 3 begins another")):
            given = self.save("doc", numpy.array([values], dtype=numpy.int32))
            for command in (("run", "--backend", "reference"), ("draw",),
                            ("compile", "--ranks", "2", "--target", "h200", "-o", self.folder / "x")):
                process = self.attnc(command[0], spec, *command[1:], "--in", given, code=2)
                self.assertIn(f"--in {given}: doc ", process.stderr)
                self.assertIn(words, process.stderr)
        self.assertFalse((self.folder / "x").exists())
        lengths = self.write("lengths.attn", declared.replace("  mask", "  lengths kv;\n  mask"))
        process = self.attnc("draw", lengths, "--in", "lengths_kv=7", code=2)
        self.assertIn("lengths_kv has 7, which is outside 0..6", process.stderr)

    def test_an_index_from_a_value_that_is_out_of_range(self):
        spec = self.write("t.attn", NOOP.replace("}", "  tensor t: i32[B];\n  tensor u: f32[4];\n"
                                                      "  score score + u[t[b]];\n}"))
        process = self.reference(spec, "--in", "t=9", code=2)
        self.assertIn("error[binding]", process.stderr)

    def test_no_finite_value(self):
        spec = self.write("noop.attn", NOOP)
        nan = numpy.full((1, 1, 24, 64), -numpy.nan)
        process = self.reference(spec, "--in", self.save("v", nan))
        o = next(line for line in process.stdout.splitlines() if line.startswith("o "))
        self.assertRegex(o, r" nan +nan +2048 +0 +nan nan nan nan$")
        summary = json.loads(self.reference(spec, "--in", self.save("k", nan), "--format",
                                            "json").stdout)["outputs"]
        for name in ("o", "lse"):
            self.assertEqual((summary[name]["mean"], summary[name]["max_abs"]), (None, None))

    def test_what_rounds_to_infinity_is_said(self):
        spec = self.write("captured.attn", CAPTURED)
        given = ["--in", "doc=zeros", "--in", "q=70000"]
        process = self.reference(spec, *given)
        self.assertIn("warning: --in q=70000: 64 of 64 values, the first 70000, round to infinity "
                      "in f16", process.stderr)
        self.assertNotIn("warning", self.reference(spec, *given, "--unrounded").stderr)
        self.assertNotIn("warning", self.reference(spec, "--in", "doc=zeros", "--in", "q=inf").stderr)

    def test_tensors_that_memory_cannot_hold(self):
        spec = self.write("noop.attn", NOOP)
        process = self.reference(spec, "--bind", "Sq=1000000000", "--bind", "B=1000", code=2)
        self.assertRegex(process.stderr, "^error.* need [0-9.e+]+ GB of host memory; only")
        # Memory that is reported but not available.
        command = f"ulimit -v 300000; exec {attnc.ATTNC} run {spec} --backend reference"
        process = subprocess.run(["bash", "-c", f"{command} --bind Sq=500000"], text=True,
                                 capture_output=True, timeout=1800, check=False)
        self.assertEqual(process.returncode, 4, process.stderr)
        self.assertEqual(process.stderr, "error: out of memory\n")

    def test_auto_says_what_it_chose(self):
        spec = self.write("noop.attn", NOOP)
        process = self.attnc("run", spec)
        self.assertRegex(process.stderr, "^backend: (cudnn|reference), ")
        process = self.attnc("run", spec, "--unrounded")
        self.assertIn("backend: reference, because of --unrounded", process.stderr)

    def test_auto_says_that_the_reference_ignores_the_engine(self):
        spec = self.write("noop.attn", NOOP)
        for option in (("--engine", "native"), ("--use-cache", "")):
            for others in ((), ("--unrounded",)):
                process = self.attnc("run", spec, *filter(None, option), *others)
                if "backend: reference" in process.stderr:  # there is no GPU
                    self.assertRegex(process.stderr, "reference, because .*\n  `--engine`.* not used")
        self.assertNotIn("--engine", self.attnc("run", spec, "--unrounded").stderr)

    def test_standard_input_and_json(self):
        result = self.attnc_json("run", "-", "--backend", "reference", stdin=NOOP)
        self.assertEqual(result["backend"], "reference")
        self.assertEqual(result["outputs"]["o"]["dims"], [1, 2, 16, 64])
        self.assertEqual(result["outputs"]["o"]["nan"], 0)
        self.assertEqual(len(result["outputs"]["lse"]["first"]), 4)

    def test_a_plan_by_the_reference(self):
        plan = self.compile(NOOP, "--bind", "Sq=32")
        result = self.attnc_json("run", plan, "--backend", "reference")
        self.assertEqual(result["outputs"]["o"]["dims"], [1, 2, 32, 64])
        self.assertIn("no plan for Sq=8", self.attnc("run", plan, "--bind", "Sq=8", code=2).stderr)

    def test_plans_are_known_by_their_content(self):
        plan = self.compile(NOOP)
        for name, content in (("tiny.txt", NOOP), ("plain", NOOP), ("x.bin", plan.read_bytes()),
                              ("x.attn", plan.read_bytes())):
            path = self.write(name, content)
            for command in (["run", path, "--backend", "reference"],
                            ["explain", path, *(["--target", "h200"] if content is NOOP else [])]):
                self.attnc(*command)

    def test_gradients(self):
        spec = self.write("learned.attn", NOOP.replace(
            "outputs", "learn c: f32[Hq];\n  score score * c[h];\n  outputs"))
        values = {**self.inputs(NOOP), "c": numpy.array([0.5, -2.0])}
        d_o = self.random.standard_normal((1, 2, 16, 64))

        def loss(**other):
            q, k, v, c = ({**values, **other}[name] for name in "qkvc")
            o, _ = softmax_attention(q, k, v, lambda scores: scores * c[None, :, None, None])
            return (o * d_o).sum()

        given = [word for name, value in {**values, "do": d_o}.items()
                 for word in ("--in", self.save(name, value))]
        files = {name: self.folder / f"{name}_out.npy" for name in ("dq", "dk", "dv", "d_c", "o")}
        wanted = [word for name, path in files.items() for word in ("--out", f"{name}={path}")]
        self.reference(spec, "--grad", "--unrounded", *given, *wanted)
        for name, path in files.items():
            if name == "o":
                continue
            of, result = name.replace("_", "")[1:], numpy.load(path)
            self.assertEqual(result.shape, values[of].shape)
            step = numpy.zeros_like(values[of])
            step.flat[1] = 1e-5
            slope = (loss(**{of: values[of] + step}) - loss(**{of: values[of] - step})) / 2e-5
            self.assertAlmostEqual(result.flat[1], slope, delta=1e-8, msg=name)

    def test_which_gradients_there_are(self):
        spec = self.write("wanted.attn", NOOP.replace("outputs", "grad k, v;\n  outputs"))
        for arguments, names in {("--grad",): {"o", "lse", "dk", "dv"},
                                 ("--direction", "both"): {"o", "lse", "dk", "dv"},
                                 ("--direction", "bwd"): {"dk", "dv"}}.items():
            result = self.attnc_json("run", spec, "--backend", "reference", *arguments)
            self.assertEqual(set(result["outputs"]), names)
            self.assertEqual(result["inputs"]["do"], "random")
        process = self.reference(spec, "--grad", "--out", "dq=x.npy", code=2)
        self.assertIn("it has o, lse, dk, dv", process.stderr)
        self.assertIn("do", self.reference(spec, "--in", "do=zeros", code=2).stderr)

    def test_gradients_through_lse(self):
        spec = self.write("through.attn", NOOP.replace("outputs", "grad q, k, v, lse;\n  outputs"))
        values = self.inputs(NOOP)
        d_lse = self.random.standard_normal((1, 2, 16))
        given = [word for name, value in values.items() for word in ("--in", self.save(name, value))]
        found = {}
        for name, value in (("both", self.save("dlse", d_lse)), ("none", "dlse=zeros")):
            path = self.folder / f"{name}.npy"
            self.reference(spec, "--grad", "--unrounded", *given, "--in", value, "--in", "do=zeros",
                           "--out", f"dk={path}")
            found[name] = numpy.load(path)
        self.assertEqual(abs(found["none"]).max(), 0)
        step = numpy.zeros_like(values["k"])
        step.flat[1] = 1e-5
        up, down = ((softmax_attention(values["q"], values["k"] + way * step, values["v"], lambda x: x)[1] * d_lse).sum()
                    for way in (1, -1))
        self.assertAlmostEqual(found["both"].flat[1], (up - down) / 2e-5, delta=1e-8)
        self.assertEqual(self.attnc_json("run", spec, "--backend", "reference", "--grad")["inputs"]["dlse"], "random")
        for options, words in ((("--grad", "--gradients", "q"), "only if `lse` is in the `grad` clause"),
                               ((), "--in dlse: only a backward reads it")):
            process = self.reference(spec, *options, "--in", "dlse=zeros", code=2)
            self.assertIn(words, process.stderr)

    def test_outputs_are_written_as_npy_files(self):
        spec = self.write("noop.attn", NOOP)
        for name, meant in (("o.txt", "o.npy"), ("o", "o.npy"), ("a.b/o.npz", "a.b/o.npy")):
            process = self.reference(spec, "--out", f"o={name}", code=2)
            self.assertIn(f"--out o={name}: the name does not end in .npy", process.stderr)
            self.assertIn(f"--out o={meant}", process.stderr)

    def test_a_plan_of_one_direction_is_not_a_pair(self):
        plan = self.compile(NOOP)
        for arguments, asked in {("--grad",): "both", ("--direction", "bwd"): "bwd"}.items():
            process = self.attnc("run", plan, "--backend", "cudnn", *arguments, code=2)
            self.assertIn(f"has no backward plan of `noop`, which --direction {asked} needs",
                          process.stderr)
            self.assertIn("--recompile", process.stderr)
        self.attnc("run", plan, "--backend", "reference", "--grad")

    def test_without_a_gpu_cudnn_is_a_clear_error(self):
        if attnc.has_gpu():
            return
        spec = self.write("noop.attn", NOOP)
        for command in (["run", spec, "--backend", "cudnn"], ["verify", spec], ["bench", spec],
                        ["run", spec, "--backend", "cudnn", "--grad"], ["verify", spec, "--grad"],
                        ["bench", spec, "--direction", "both"],
                        ["target", "dump"], ["compile", spec, "-o", self.folder / "x"]):
            process = self.attnc(*command, code=4)
            self.assertIn("no CUDA driver on this machine", process.stderr)
            self.assertEqual("select one with --target" in process.stderr, command[0] == "compile")
            self.assertEqual(process.stdout, "")

    def test_every_shipped_spec_runs(self):
        small = ["--bind", "B=1", "--bind", "Hq=2", "--bind", "Hkv=1", "--bind", "Sq=8",
                 "--bind", "Skv=16"]
        for spec in sorted(SPECS.glob("*.attn")):
            given = ["--in", "doc=zeros"] if "tensor  doc" in spec.read_text() else []
            if "rows = " not in spec.read_text():  # which have so many columns
                given += ["--bind", "D=32"]  # the blocks of mxfp8
            with self.subTest(spec.name):
                result = self.attnc_json("run", spec, "--backend", "reference", *small, *given)
                self.assertEqual(result["outputs"]["o"]["nan"], 0)

    def test_no_keys(self):
        spec = self.write("no_keys.attn", NO_KEYS)
        files = [self.folder / f"{name}.npy" for name in ("o", "lse")]
        self.attnc("run", spec, "--backend", "reference", "--bind", "Skv=0",
                   *(f"--out={file.stem}={file}" for file in files))
        o, lse = (numpy.load(file) for file in files)
        self.assertEqual(o.shape, (2, 4, 3, 8))
        self.assertTrue((o == 0).all())
        self.assertTrue((lse == -numpy.inf).all())
        for binding in ("Sq=0", "B=0", "Hq=0", "D=0"):
            process = self.attnc("check", spec, "--bind", binding, code=1)
            self.assertIn("only Skv may be 0", process.stderr + process.stdout)


if __name__ == "__main__":
    attnc.main()
