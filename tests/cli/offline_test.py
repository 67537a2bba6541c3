"""Every shipped spec compiles, at its own sizes, for the target in ATTN_TARGET, and the plan says
so. Needs no GPU and no driver."""
import os

import attnc
from attnc import SPECS

SMS = {"h200": 90, "a100": 80, "l40s": 89, "b200": 100, "rtx5090": 120}


class Offline(attnc.Case):
    def test_every_spec(self):
        target = os.environ["ATTN_TARGET"]
        specs = sorted(SPECS.glob("*.attn"))
        self.assertGreaterEqual(len(specs), 20)
        for spec in specs:
            with self.subTest(spec.name):
                manifest = self.attnc_json("inspect", self.compile(spec, target=target))
                self.assertEqual(manifest["spec"]["name"], spec.stem)
                self.assertEqual(manifest["target"]["sm"], SMS[target])
                self.assertGreater(manifest["compiled"][0]["plan_bytes"], 1000)


if __name__ == "__main__":
    attnc.main()
