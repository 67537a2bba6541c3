"""The command line, the examples and the comparison with other libraries, run on the stand-ins for cuDNN
and the driver. Numbers are not checked."""
import json
import os
import subprocess
import sys

import attnc
from attnc import NOOP, SOURCE, SPECS

STANDINS = os.environ["ATTN_STANDINS"]


class Standins(attnc.Case):
    def setUp(self):
        super().setUp()
        os.environ["ATTN_CUDNN_DIR"] = os.environ["LD_LIBRARY_PATH"] = STANDINS

    def outputs(self, *arguments):
        return set(self.attnc_json("run", *arguments)["outputs"])

    def test_a_plan_is_compiled_loaded_and_executed(self):
        plan = self.compile(NOOP)
        self.assertIn("backend: cudnn", self.attnc("run", plan).stderr)
        step, = self.attnc_json("inspect", plan)["compiled"]
        self.assertEqual(step["engine"], 5)

    def test_real_kernels_have_the_parameters_that_the_plan_lists(self):
        """The stand-in reads the parameters from the cubins; a plan with other parameters fails to load."""
        for spec, strategy, inputs in (("gemma3_image", "auto", []),
                                       ("document", "tables", ["--in", "doc=zeros"])):
            with self.subTest(spec):
                plan = self.compile(SPECS / f"{spec}.attn", "--bind", "Sq=64", "--strategy", strategy)
                self.assertTrue(self.attnc_json("inspect", plan)["kernels"])
                self.attnc("run", plan, "--backend", "cudnn", *inputs)

    def test_plans_are_kept(self):
        spec = ["--bind", "Sq=256", SPECS / "causal.attn"]
        run = ["run", *spec, "--backend", "cudnn", "--use-cache"]
        first = self.attnc_json(*run)
        kept, = self.attnc_json("cache", "list")["plans"]
        self.assertEqual((kept["name"], kept["direction"]), ("causal", "forward"))
        self.assertEqual(self.attnc_json(*run), first)
        self.attnc("bench", *spec, "--iterations", "2", "--use-cache", "--no-autotune")
        again, = self.attnc_json("cache", "list")["plans"]
        self.assertEqual(again["signature"], kept["signature"])
        with open(kept["file"], "r+b") as file:
            file.truncate(1000)
        self.assertEqual(self.attnc_json(*run), first)
        self.attnc("cache", "verify")

    def test_what_verify_finds(self):
        process = self.attnc("verify", "--bind", "Sq=64", SPECS / "noop.attn", code=5)
        self.assertIn("0 of 1 cases agree", process.stdout)

    def test_verify_tells_its_cases_in_order(self):
        """However many are compiled at once; what cannot be read or compiled is a case too."""
        wrong = self.write("wrong.attn", NOOP.replace("bf16", "bf61"))
        specs = [SPECS / "noop.attn", wrong, SPECS / "causal.attn", SPECS / "sigmoid.attn", SPECS / "noop.attn"]
        options = ["--bind", "B=1", "--bind", "Sq=64", "--engine", "cudnn", "--format", "json"]
        told = [self.attnc("verify", *specs, *options, "--jobs", jobs, code=5).stdout for jobs in (1, 4)]
        self.assertEqual(told[0], told[1])
        cases = json.loads(told[0])["cases"]
        self.assertEqual([case["spec"] for case in cases], [str(spec) for spec in specs])
        self.assertEqual([case.get("error", {}).get("code") for case in cases],
                         [None, "invalid_spec", None, "unsupported", None])

    def test_both_directions(self):
        spec = self.write("spec.attn", NOOP)
        plan = self.compile(NOOP, "--direction", "both")
        self.assertEqual(self.outputs(plan, "--backend", "cudnn", "--grad"),
                         {"o", "lse", "dq", "dk", "dv"})
        self.assertEqual(self.outputs(spec, "--backend", "cudnn", "--direction", "bwd"),
                         {"dq", "dk", "dv"})

    def test_the_examples(self):
        for name, options in (("embed", []), ("train", ["--direction", "both"])):
            with self.subTest(name):
                plan = self.compile(NOOP, *options)
                process = subprocess.run([attnc.beside(name), plan], capture_output=True,
                                         text=True, timeout=600, check=False)
                self.assertEqual(process.returncode, 0, process.stdout + process.stderr)

    def test_a_batch_from_one_graph(self):
        """The plan is captured and launched; the stand-in for the driver writes numbers of its own."""
        plan = self.compile(SOURCE / "examples" / "serving" / "batches.attn", "--engine", "native")
        for options in ([], ["--check"]):
            process = subprocess.run([attnc.beside("batches"), plan, *options], capture_output=True, text=True,
                                     timeout=600, check=False)
            self.assertEqual(process.returncode, 5, process.stdout + process.stderr)
            self.assertRegex(process.stderr, r"^mismatch: request 0, row 0, layer 0: \S+ instead of 0.906250\n$")
        process = subprocess.run([attnc.beside("batches"), self.compile(NOOP)], capture_output=True, text=True,
                                 timeout=600, check=False)
        self.assertEqual(process.returncode, 2, process.stdout + process.stderr)
        self.assertIn("the plan is not one of batches.attn", process.stderr)

    def test_the_device_alone_is_timed(self):
        spec = self.write("spec.attn", NOOP)
        timed = self.attnc_json("bench", spec, "--iterations", "2", "--device-only")["rows"][0]
        self.assertEqual(timed["device"]["runs"], 2)
        self.assertNotIn("host", timed)
        text = self.attnc("bench", spec, "--iterations", "2", "--device-only").stdout
        self.assertRegex(text, r" - +- +B=1 ")

    def test_a_plan_of_a_backward_alone_is_timed(self):
        plan = self.compile(NOOP, "--direction", "bwd", "--engine", "cudnn")
        bench = ["bench", plan, "--iterations", "2", "--device-only", "--engine", "cudnn"]
        for direction in ([], ["--direction", "bwd"]):
            row, = self.attnc_json(*bench, *direction)["rows"]
            self.assertEqual((row["direction"], row["device"]["runs"]), ("bwd", 2))
        self.assertIn("has no forward: one is compiled", self.attnc(*bench).stderr)
        for direction in ("fwd", "both"):
            process = self.attnc(*bench, "--direction", direction, code=2)
            self.assertIn("the plan file has no forward plan", process.stderr)

    def test_every_way_is_measured(self):
        tuned = ["compile", SPECS / "prefix_lm.attn", "--bind", "B=1", "--bind", "Sq=512",
                 "--autotune", "--use-cache", "-o", self.folder / "tuned.attnplan"]
        choice = self.attnc_json(*tuned)["manifest"]["choice"]
        measured = [way["measured_ms"] for way in choice if "measured_ms" in way]
        self.assertEqual(measured[0], min(measured))
        self.assertLessEqual({"composite", "parts"}, {way["strategy"] for way in choice})
        tuned.remove("--autotune")
        self.assertEqual(self.attnc_json(*tuned)["strategy"], choice[0]["strategy"])
        explained = self.attnc_json("explain", self.folder / "tuned.attnplan")
        self.assertEqual(explained["engine"]["choice"], choice)
        text = self.attnc("compile", SPECS / "prefix_lm.attn", "--autotune", "--target", "h200", "-o",
                          self.folder / "no.attnplan", code=2).stderr
        self.assertIn("--autotune measures on the local GPU", text)

    def attnc_by_cudnn(self):
        """A command that compiles by cuDNN's engine: the stand-in compiles faster than NVRTC."""
        script = self.write("attnc", f'''#!/bin/sh
[ "$1" = compile ] && set -- "$@" --engine cudnn
exec {attnc.ATTNC} "$@"
''')
        script.chmod(0o755)
        return script

    def compare_peers(self, *arguments):
        command = [sys.executable, "-B", SOURCE / "bench" / "compare_peers.py", "--attnc",
                   self.attnc_by_cudnn(), "--shape", "1,2,1,64,64", "--runs", "2", *arguments]
        process = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        self.assertEqual(process.returncode, 0, process.stderr)
        return process.stdout

    def test_the_comparison_with_other_libraries(self):
        out, plans = self.folder / "results", self.folder / "plans"
        said = self.compare_peers("--out", out)
        found = json.loads((out / "stand_in_0-cudnn9.19.0-b1hq2hkv1s64d64.json").read_text())
        self.assertEqual(found["shape"], [1, 2, 1, 64, 64])
        variants = {path.stem for path in (SOURCE / "bench" / "variants").glob("*.attn")}
        measured = [(row["variant"], row["direction"]) for row in found["rows"]]
        self.assertEqual(len(measured), 2 * len(variants))
        self.assertEqual(set(measured), {(variant, direction) for variant in variants
                                         for direction in ("forward", "backward")})
        for row in found["rows"]:
            self.assertGreater(row["ours_ms"], 0)
            self.assertEqual((row["peers"], row["errors"]), ({}, {}))
        for peer in ("flexattention", "sdpa_cudnn", "sdpa_flash", "flash_attn_4", "cudnn_flex"):
            self.assertIn(f"absent: {peer} (", said)
            self.assertIn(peer, found["absent"])
        subprocess.run([sys.executable, "-B", SOURCE / "bench" / "plans.py", "--attnc",
                        self.attnc_by_cudnn(), "--target", "h200", "--shape", "1,2,1,64,64", "--rows", "causal", "--out",
                        plans], capture_output=True, timeout=1800, check=True)
        self.compare_peers("--rows", "causal", "--plans", plans, "--no-backward", "--out",
                           out / "one.json")
        row, = json.loads((out / "one.json").read_text())["rows"]
        self.assertEqual((row["variant"], row["direction"]), ("causal", "forward"))
        self.compare_peers("--rows", "causal", "--plans", plans, "--resume", "--out", out / "one.json")
        first, second = json.loads((out / "one.json").read_text())["rows"]
        self.assertEqual((first, second["direction"]), (row, "backward"))

    def test_the_times_of_8_bit_floats(self):
        out = self.folder / "fp8.json"
        process = subprocess.run(
            [sys.executable, "-B", SOURCE / "bench" / "fp8.py", "--attnc", attnc.ATTNC, "--size", "128", "--tokens",
             "256", "--depth", "128", "--masks", "causal", "--runs", "2", "--engine", "cudnn", "--out", out],
            capture_output=True, text=True, timeout=1800, check=False)
        self.assertEqual(process.returncode, 0, process.stderr)
        found = json.loads(out.read_text())
        self.assertEqual([(row["type"], row["direction"]) for row in found["rows"]],
                         [(kind, direction) for kind in ("e4m3", "bf16") for direction in ("fwd", "bwd")])
        rates = [row["peak_tflops"] for row in found["rows"]]
        self.assertEqual(rates[0], 2 * rates[2])
        self.assertIn("| d | mask | keys | e4m3 cudnn | bf16 cudnn | e4m3 published |", process.stdout)
        self.assertEqual(process.stdout.count("| 128 | causal | 128 | "), 2)

    def test_every_spec_of_the_library(self):
        small = ["--bind", "B=1", "--bind", "Sq=64"]
        given = {"document": ["--in", "doc=zeros"]}
        specs = [spec for spec in sorted(SPECS.glob("*.attn"))
                 if spec.stem not in attnc.not_lowered("h200")]
        for spec in specs:
            with self.subTest(spec.stem):
                self.attnc("run", spec, *small, *given.get(spec.stem, []), "--backend", "cudnn",
                           "--engine", "cudnn")


if __name__ == "__main__":
    attnc.main()
