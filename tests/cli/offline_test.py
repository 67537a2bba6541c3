"""Every shipped spec compiles, at its own sizes, for the target in ATTN_TARGET, and the plan says
so; or is refused there for a known reason. Needs no GPU and no driver."""
import os

import attnc
from attnc import SPECS

SMS = {"h200": 90, "a100": 80, "l40s": 89, "b200": 100, "rtx5090": 120}

# Where cuDNN 9.19 has only an engine that computes these wrongly; refusing them is the right answer.
WRONG_INDICES = "computes wrong indices"
REFUSED = {
    "a100": ["alibi", "document", "prefix_lm", "relative_bias"],
    "l40s": ["alibi", "document", "prefix_lm", "relative_bias"],
    "rtx5090": ["prefix_lm"],
}


class Offline(attnc.Case):
    def test_every_spec(self):
        target = os.environ["ATTN_TARGET"]
        specs = sorted(SPECS.glob("*.attn"))
        self.assertGreaterEqual(len(specs), 20)
        for spec in specs:
            with self.subTest(spec.name):
                if spec.stem in REFUSED.get(target, []):
                    process = self.attnc("compile", spec, "--target", target, "-o",
                                         self.folder / "x", code=3)
                    self.assertIn(WRONG_INDICES, process.stderr)
                    continue
                manifest = self.attnc_json("inspect", self.compile(spec, target=target))
                self.assertEqual(manifest["spec"]["name"], spec.stem)
                self.assertEqual(manifest["target"]["sm"], SMS[target])
                self.assertGreater(manifest["compiled"][0]["plan_bytes"], 1000)


if __name__ == "__main__":
    attnc.main()
