"""Every shipped spec compiles at its default sizes for the target $ATTN_TARGET; those listed in
tests/conformance/not_lowered.txt are refused. Needs no GPU and no driver."""
import json
import os

import attnc
from attnc import SOURCE, SPECS


class Offline(attnc.Case):
    def test_every_spec(self):
        target = os.environ["ATTN_TARGET"]
        specs = sorted(SPECS.glob("*.attn"))
        self.assertGreaterEqual(len(specs), 20)
        refused = attnc.not_lowered(target)
        capability = self.attnc_json("target", "show", target)["deviceVer"] // 10
        self.assertLess(refused, {spec.stem for spec in specs})
        for spec in specs:
            with self.subTest(spec.name):
                if spec.stem in refused:
                    self.attnc("compile", spec, "--target", target, "--engine", "cudnn", "-o",
                               self.folder / "x", code=3)
                    continue
                plan = self.compile(spec, "--direction", "fwd", target=target)
                manifest = self.attnc_json("inspect", plan)
                self.assertEqual(manifest["spec"]["name"], spec.stem)
                self.assertEqual(manifest["target"]["sm"], capability)
                self.assertGreater(manifest["compiled"][0]["plan_bytes"], 1000)

    def test_a_branch_that_cudnn_does_not_build(self):
        """cuDNN is predicted to be faster for one of them, and refuses its backward when it is built."""
        if os.environ["ATTN_TARGET"] != "l40s":
            self.skipTest("of one target")
        plan = self.folder / "nsa.attnplan"
        self.attnc("compile", SPECS / "nsa.attn", "--direction", "bwd", "--target", "l40s", "-o", plan)
        refused = [each["refused"] for each in self.attnc_json("inspect", plan)["choice"] if "refused" in each]
        self.assertRegex(refused[0], "cuDNN's backward")

    def test_every_spec_by_kernels_of_attncs_own(self):
        if os.environ["ATTN_TARGET"] != "h200":
            self.skipTest("docs/support.md says what those for other GPUs serve")
        process = attnc.run("support", "--all", SPECS, "--target", "h200", "--engine", "native",
                            "--format", "json")
        cells = {spec["spec"]: spec["targets"][0] for spec in json.loads(process.stdout)["specs"]}
        not_served = {name: cell for name, cell in cells.items() if cell["outcome"] != "served"}
        self.assertLessEqual(set(not_served), {"mxfp8"}, not_served)

    def test_everything_that_is_derived(self):
        target = os.environ["ATTN_TARGET"]
        if target != "h200":
            self.skipTest("DerivedKernels compiles the kernels for the others, without cuDNN's")
        specs = sorted((SOURCE / "tests" / "gpu" / "derived").glob("*.attn"))
        self.assertGreaterEqual(len(specs), 19)
        deriving = 0
        for spec in specs:
            with self.subTest(spec.name):
                manifest = self.attnc_json("inspect", self.compile(spec, target=target))
                self.assertEqual(manifest["format"], 1)
                kernels = [step for step in manifest["program"]["steps"]
                           if step["step"] == "derive"]
                made = manifest.get("kernels", [])
                # An extra kernel checks gathered indices when tensors are bound.
                self.assertIn(len(made) - len(kernels), (0, 1))
                self.assertTrue(all(kernel["bytes"] > 1000 for kernel in made))
                deriving += len(kernels) > 0
        # The others only divide indices by constants, which cuDNN's kernel does in reals.
        self.assertGreaterEqual(deriving, 16)


if __name__ == "__main__":
    attnc.main()
