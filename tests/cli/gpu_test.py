"""The command line and the examples on a GPU; skipped without one."""
import json
import subprocess

import numpy

import attnc
from attnc import NOOP, SOURCE, SPECS

FORMS = SOURCE / "tests" / "gpu" / "forms"
DERIVED = SOURCE / "tests" / "gpu" / "derived"


class Gpu(attnc.Case):
    def test_a_plan_compiled_without_the_gpu_runs_on_it(self):
        plan = self.compile(NOOP)
        files = [self.folder / f"{backend}.npy" for backend in ("cudnn", "reference")]
        for file in files:
            self.attnc("run", plan, "--backend", file.stem, "--out", f"o={file}")
        o, reference = (numpy.load(file) for file in files)
        difference = numpy.linalg.norm(o - reference) / numpy.linalg.norm(reference)
        self.assertLess(difference, 4e-3)

    def test_run_chooses_cudnn(self):
        process = self.attnc("run", SPECS / "causal.attn", "--bind", "Sq=256")
        self.assertIn("backend: cudnn", process.stderr)

    def test_a_plan_among_several_is_picked_by_its_sizes(self):
        plan = self.compile(NOOP, "--bind", "Sq=16,32")
        outputs = self.attnc_json("run", plan, "--backend", "cudnn", "--bind", "Sq=32")["outputs"]
        self.assertEqual(outputs["o"]["dims"], [1, 2, 32, 64])
        row, = self.attnc_json("bench", plan, "--bind", "Sq=32", "--iterations", "2")["rows"]
        self.assertIn("Sq=32", row["dims"])
        self.attnc("bench", plan, "--iterations", "2", code=2)

    def test_run_and_bench_keep_plans(self):
        spec = ["--bind", "Sq=256", SPECS / "causal.attn"]
        run = ["run", *spec, "--backend", "cudnn"]
        self.attnc(*run)
        self.assertEqual(self.attnc_json("cache", "list")["plans"], [])
        run.append("--use-cache")
        first = self.attnc_json(*run)
        kept, = self.attnc_json("cache", "list")["plans"]
        self.assertEqual((kept["name"], kept["direction"]), ("causal", "forward"))
        self.assertEqual(self.attnc_json(*run), first)
        self.attnc("bench", *spec, "--iterations", "2", "--use-cache")
        again, = self.attnc_json("cache", "list")["plans"]
        self.assertEqual(again["signature"], kept["signature"])
        with open(kept["file"], "r+b") as file:
            file.truncate(1000)
        self.assertEqual(self.attnc_json(*run), first)
        self.attnc("cache", "verify")

    def test_verify_every_spec_at_every_shape(self):
        specs = [spec for spec in sorted(SPECS.glob("*.attn"))
                 if spec.stem not in attnc.not_lowered("h200") and not spec.stem.startswith("fp8_")]
        process = self.attnc("verify", *specs, "--shapes", "all", "--format", "json")
        cases = json.loads(process.stdout)["cases"]
        self.assertGreaterEqual(len(cases), 60)
        for case in cases:
            self.assertTrue(case["ok"], case)
            # verify adds lse to specs that output only o.
            self.assertLessEqual({"o", "lse"}, set(case["outputs"]), case)
            self.assertLessEqual(case["outputs"]["o"]["worst_row"],
                                 case["outputs"]["o"]["row_bound"])

    def test_verify_every_spec_of_8_bits(self):
        sm = attnc.device()["sm"]
        if sm < 90:
            self.skipTest("no 8-bit attention")
        specs = [spec for spec in sorted(SPECS.glob("fp8_*.attn"))
                 if sm // 10 == 10 or spec.stem != "fp8_current"]
        cases = json.loads(attnc.run("verify", *specs, "--shapes", "all", "--format", "json").stdout)["cases"]
        self.assertEqual(len(cases), 3 * len(specs))
        for case in cases:
            if case["shape"] == "one row" and case.get("error", {}).get("code") == "unsupported":
                continue  # cuDNN before 9.24
            self.assertTrue(case["ok"], case)
            self.assertLessEqual({"o", "lse", "amax_s", "amax_o"}, set(case["outputs"]), case)
        if sm >= 120:
            return
        case, = self.attnc_json("verify", SPECS / "fp8_training.attn", "--grad")["cases"]
        self.assertLessEqual({"dq", "dk", "dv", "amax_dp", "amax_dq", "amax_dk", "amax_dv"},
                             set(case["outputs"]))

    def test_every_form_that_lowering_may_emit(self):
        for bindings in ([], ["Sq=777", "Skv=1001", "Hq=5", "Hkv=1"], ["Sq=1"],
                         ["Sq=1", "Skv=5003", "B=3"]):
            with self.subTest(bindings):
                options = [option for binding in bindings for option in ("--bind", binding)]
                self.attnc("verify", "--all", FORMS, *options)

    def test_everything_that_is_derived(self):
        process = self.attnc("verify", "--all", DERIVED, "--shapes", "all", "--format", "json")
        cases = json.loads(process.stdout)["cases"]
        self.assertEqual(len(cases), 3 * len(list(DERIVED.glob("*.attn"))))

    def test_a_spec_with_errors_is_a_case(self):
        bad = self.write("bad.attn", "attention x { dims Q = 1; }")
        none = self.folder / "none.attn"
        for command in ("verify", "bench"):
            process = self.attnc(command, bad, SPECS / "noop.attn", none, "--bind", "Sq=256",
                                 "--format", "json", code=4)
            result = json.loads(process.stdout)
            cases = result["cases" if command == "verify" else "rows"]
            self.assertEqual([case["spec"] for case in cases],
                             [str(bad), str(SPECS / "noop.attn"), str(none)])
            self.assertEqual([case.get("error", {}).get("code") for case in cases],
                             ["invalid_spec", None, "io"])
            self.assertGreater(cases[0]["error"]["detail"]["errors"], 0)
        text = self.attnc("verify", bad, "--bind", "Sq=256", code=1).stdout
        self.assertIn("0 of 1 cases agree", text)

    def test_bench(self):
        file = self.folder / "bench.json"
        self.attnc("bench", SPECS / "noop.attn", "--iterations", 5, "--json", file)
        row, = json.loads(file.read_text())["rows"]
        self.assertGreater(row["device"]["median_ms"], 0)
        self.assertGreater(row["device"]["tflops"], 0)
        self.assertGreater(row["host"]["execute_us"], 0)

    def test_bench_times_the_lengths_that_a_spec_declares(self):
        text = NOOP.replace("outputs", "lengths kv = 12;\n  outputs")
        spec = self.write("spec.attn", text)
        flop = []
        for given in ((), ("--in", "lengths_kv=const:6"), ("--in", "lengths_kv=const:24")):
            row, = self.attnc_json("bench", spec, "--iterations", 2, "--device-only", *given)["rows"]
            flop.append(row["flop"])
        self.assertEqual(flop[1:], [flop[0] / 2, flop[0] * 2])

    def test_run_has_the_references_gradients(self):
        spec = self.write("spec.attn", NOOP.replace("outputs o, lse;", """mask q_idx >= kv_idx;
  score 5 * tanh(score / 5);"""))
        names = ("o", "dq", "dk", "dv")
        arrays = {}
        for backend in ("cudnn", "reference"):
            files = {name: self.folder / f"{backend}_{name}.npy" for name in names}
            out = [word for name, file in files.items() for word in ("--out", f"{name}={file}")]
            result = self.attnc_json("run", spec, "--backend", backend, "--grad", "--in",
                                     "do=random:3", *out)
            self.assertEqual(set(result["outputs"]), set(names))
            arrays[backend] = {name: numpy.load(file) for name, file in files.items()}
        for name in names:
            ours, reference = arrays["cudnn"][name], arrays["reference"][name]
            difference = numpy.linalg.norm(ours - reference) / numpy.linalg.norm(reference)
            self.assertLess(difference, 1e-2, name)
        alone = self.attnc_json("run", spec, "--backend", "cudnn", "--direction", "bwd")
        self.assertEqual(set(alone["outputs"]), {"dq", "dk", "dv"})

    def test_run_recompiles_a_plan_for_both_directions(self):
        plan = self.compile(NOOP)
        result = self.attnc_json("run", plan, "--backend", "cudnn", "--recompile", "--grad")
        self.assertEqual(set(result["outputs"]), {"o", "lse", "dq", "dk", "dv"})

    def test_run_a_plan_file_of_a_pair(self):
        plan = self.compile(NOOP, "--direction", "both")
        for direction, names in {"fwd": {"o", "lse"}, "bwd": {"dq", "dk", "dv"},
                                 "both": {"o", "lse", "dq", "dk", "dv"}}.items():
            result = self.attnc_json("run", plan, "--backend", "cudnn", "--direction", direction)
            self.assertEqual(set(result["outputs"]), names)

    def test_verify_gradients(self):
        specs = [SPECS / f"{name}.attn" for name in ("noop", "causal", "softcap", "alibi",
                                                     "sliding_window")]
        process = self.attnc("verify", *specs, "--grad", "--shapes", "all", "--format", "json")
        cases = json.loads(process.stdout)["cases"]
        self.assertEqual(len(cases), 3 * len(specs))
        for case in cases:
            self.assertTrue(case["ok"], case)
            self.assertEqual(set(case["outputs"]), {"o", "lse", "dq", "dk", "dv"}, case)
            self.assertEqual(case["inputs"]["do"], "random")
            for name in ("dq", "dk", "dv"):
                self.assertEqual(case["outputs"][name]["bound"], 1e-2)

    def test_gradients_that_are_nan_never_agree(self):
        spec = self.write("spec.attn", NOOP.replace("bf16", "f16"))
        process = self.attnc("verify", spec, "--grad", "--in", "do=const:1e30", "--format", "json",
                             code=5)
        self.assertIn("round to infinity in f16", process.stderr)
        case, = json.loads(process.stdout)["cases"]
        self.assertTrue(case["outputs"]["o"]["ok"], case)
        self.assertIn("are NaN", case["outputs"]["dq"]["why"])

    def test_gradients_where_every_score_is_very_negative(self):
        # A score of 0 past the last row or column would have weight exp(-lse), which is infinite for lse
        # below -88.7: pytorch issue 196678, cudnn-frontend issue 1072.
        clauses = {"plain": "", "causal": "mask q_idx >= kv_idx;", "softcap":
                   "score 200 * tanh(score / 200);", "seen":
                   "tensor m: i32[Skv] = 1; mask m[kv_idx] != 0;", "bias":
                   "tensor t: bf16[Sq, Skv] = 0; score score + t[q_idx, kv_idx];",
                   "deterministic": "deterministic;"}
        for rows, columns in ((1, 128), (64, 192), (100, 128), (128, 192), (192, 192), (192, 320)):
            for name, clause in clauses.items():
                if name == "deterministic" and rows == 1:  # lse of a single row is not
                    continue
                self.write(f"{name}_{rows}_{columns}.attn",
                           f"attention x {{ dims B = 2, Hq = 4, Hkv = 2, Sq = {rows}, "
                           f"Skv = {columns}, D = 64; {clause} }}")
        process = self.attnc("verify", "--all", self.folder, "--grad", "--in", "q=const:1", "--in",
                             "k=const:-15", "--format", "json")
        self.assertEqual(len(json.loads(process.stdout)["cases"]), 35)

    def test_gradients_that_cannot_be_lowered_are_a_case(self):
        process = self.attnc("verify", SPECS / "noop.attn", "--grad", "--strategy", "unified",
                             "--format", "json", code=3)
        case, = json.loads(process.stdout)["cases"]
        self.assertEqual(case["error"]["code"], "unsupported")

    def test_repetition(self):
        for clause, demanded in {"": False, "  deterministic;\n": True}.items():
            spec = self.write("spec.attn", NOOP.replace("  outputs", f"{clause}  outputs"))
            process = self.attnc("verify", spec, "--grad", "--repeat", 5, "--format", "json")
            case, = json.loads(process.stdout)["cases"]
            repetition = case["repetition"]
            self.assertEqual((repetition["runs"], repetition["deterministic"]), (5, demanded))
            self.assertEqual(set(repetition["deviations"]), {"o", "lse", "dq", "dk", "dv"})
            self.assertTrue(repetition["ok"])
            text = self.attnc("verify", spec, "--repeat", 2).stdout
            self.assertIn("bitwise equal over 2 runs", text)

    def test_bench_of_both_directions(self):
        file = self.folder / "bench.json"
        self.attnc("bench", SPECS / "causal.attn", "--direction", "both", "--iterations", 5,
                   "--bind", "Sq=1024", "--json", file)
        forward, backward = json.loads(file.read_text())["rows"]
        self.assertEqual((forward["direction"], backward["direction"]), ("fwd", "bwd"))
        self.assertEqual(backward["flop"], 2.5 * forward["flop"])
        self.assertGreater(backward["device"]["median_ms"], 0)
        table = self.attnc("bench", SPECS / "causal.attn", "--direction", "bwd", "--iterations", 5,
                           "--bind", "Sq=1024").stdout.splitlines()
        self.assertIn("direction", table[0])
        self.assertEqual(len(table), 2)
        self.assertIn(" bwd ", table[1])

    def example(self, name, *arguments):
        """Runs an example. Returns its output."""
        process = subprocess.run([attnc.beside(name), *map(str, arguments)], capture_output=True, text=True,
                                 timeout=1800, check=False)
        self.assertEqual(process.returncode, 0, process.stderr)
        return process.stdout

    def test_the_embedding_examples(self):
        plan = self.compile(SPECS / "sink_global.attn")
        for name in ("embed", "embed_c"):
            lines = self.example(name, plan).splitlines()
            self.assertEqual([line.split(":")[0] for line in lines], ["o", "lse"])

    def test_the_server_and_the_graph_example(self):
        plan = self.compile(SPECS / "causal.attn", "--bind", "B=1", "--bind", "Sq=1024")
        self.assertEqual(self.example("server", plan, 8, 200),
                         "200 of 200 requests served by 8 threads, 0 answers differ from the first\n")
        self.assertEqual(len(self.example("cuda_graph", plan).splitlines()), 2)

    def test_the_layers_example(self):
        plan = self.compile(SPECS / "causal.attn", "--bind", "B=1", "--bind", "Sq=1024")
        self.assertRegex(self.example("layers", plan, 12),
                         r"^2 passes over 12 layers .*: the same outputs\n$")

    def test_a_batch_from_one_graph(self):
        plan = self.compile(SOURCE / "examples" / "serving" / "batches.attn", "--engine", "native")
        for options in ([], ["--check"]):
            lines = self.example("batches", plan, *options).splitlines()
            self.assertRegex(lines[0], r"^40 requests, 1 to \d+ at once, served by \d+ launches of one graph of 4")
            self.assertRegex(lines[1], r"^\d+ rows compared with the CPU: they differ by at most 0\.0\d+$")

    def test_the_training_example(self):
        for spec in ("t5_bias", "gqa_5to1"):
            plan = self.compile(SPECS / f"{spec}.attn", "--direction", "both", "--bind", "B=1",
                                "--bind", "Sq=256")
            lines = self.example("train", plan).splitlines()
            losses = [float(line.rpartition(" ")[2]) for line in lines]
            self.assertEqual(len(losses), 20)
            self.assertLess(losses[-1], losses[0] / 4, (spec, losses))

    def test_a_plan_for_another_gpu(self):
        plan = self.compile(NOOP, target="a100")
        process = self.attnc("run", plan, "--backend", "cudnn", code=4)
        self.assertIn("error[plan_device]", process.stderr)
        self.assertIn("--recompile", process.stderr)
        self.attnc("run", plan, "--backend", "cudnn", "--recompile")

    def test_target_dump(self):
        file = self.folder / "here.json"
        self.attnc("target", "dump", "-o", file)
        self.attnc("run", self.compile(NOOP, target=file), "--backend", "cudnn")


if __name__ == "__main__":
    if not attnc.has_gpu():
        attnc.skip("no GPU")
    attnc.main()
