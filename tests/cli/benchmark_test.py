"""bench/: the variant specs, their plans, and the tables of the report. Nothing is measured here."""
import json
import os
import re
import subprocess
import sys
import time
import types
from unittest import mock
from xml.etree import ElementTree

import attnc
from attnc import SOURCE

BENCH = SOURCE / "bench"
sys.path.insert(0, str(BENCH))
import compare_peers  # noqa: E402
import remote  # noqa: E402

VARIANTS = sorted((BENCH / "variants").glob("*.attn"))
CLAUSE = re.compile(r"^  (layout|dtype|outputs|grad|dims) +(.*);$", re.MULTILINE)
SHAPE = "4,32,8,4096,128"


def row(variant, direction, ours, peers, form="composite", errors=None):
    measured = {} if ours is None else {"ours_ms": ours}
    return {"variant": variant, "direction": direction, **measured, "form": form, "peers": peers,
            "errors": errors or {}}


def results(*rows, **changes):
    return {"gpu": "NVIDIA H200", "cudnn": "9.19.0", "torch": "2.11.0", "torch_cudnn": 91900,
            "date": "2026-11-22T01:02:03+00:00", "shape": [4, 32, 8, 4096, 128], "runs": 15,
            "absent": {"cudnn_flex": "ModuleNotFoundError: No module named 'cudnn'"},
            "rows": list(rows)} | changes


OLD = results(
    row("noop", "forward", 1.6, {"flexattention": 2.4, "sdpa_cudnn": 1.6, "sdpa_flash": 2.0}),
    row("noop", "backward", 5.0, {"flexattention": 6.5, "sdpa_cudnn": 5.0, "sdpa_flash": 5.5}),
    row("natten_13", "forward", 0.9, {"flexattention": 0.72}, form="composite: derive, cudnn"),
    row("natten_13", "backward", 1.5, {}, errors={"flexattention": "CUDA out of memory"}),
    row("causal", "forward", 0.9, {"flexattention": 1.44, "sdpa_cudnn": 0.9}),
    row("causal", "backward", None, {"flexattention": 4.2}, None, {"ours": "every engine refuses"}),
)
NEW = results(
    row("noop", "forward", 1.65, {"flexattention": 2.42}),
    row("natten_13", "forward", 0.3, {"flexattention": 0.72}, form="parts: 3 cudnn, merge"),
    row("natten_13", "backward", 1.6, {}),
    row("causal", "forward", 0.91, {"flexattention": 1.44}),
    row("causal", "backward", 2.8, {"flexattention": 4.2}),
    date="2026-11-23T01:02:03+00:00",
)
PUBLISHED = results(
    row("noop", "forward", None, {"flexattention": 1.1, "flash_attn_4": 1.5}),
    row("causal", "backward", None, {"flash_attn_4": 2.5}),
)


class Process:
    """What the tests of remote.py have in a process."""

    def twice(self, number):
        return 2 * number

    def fail(self):
        raise ValueError("no such thing")

    def end(self):
        os._exit(3)

    def sleep(self):
        time.sleep(60)


class Attentions:
    """Takes the place of peers.Attentions."""

    broken = False
    row = None

    def prepare(self, row, name, direction):
        assert row[1:] == ((1, 2, 1, 64, 64), 2)
        self.row = row
        if name == "sdpa_flash" and (row[0], direction) == ("noop", "forward"):
            raise RuntimeError("wrong: differs by 1.0e+00 from flexattention")
        if name == "flash_attn_4" and row[0] == "causal":
            self.broken = True
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if name == "flash_attn_4_options":
            os._exit(3)
        return name != "sdpa_cudnn"

    def milliseconds(self, name):
        if name == "flash_attn_4" and self.row[0] == "alibi":
            os._exit(3)
        if name == "sdpa_flash" and self.row[0] == "alibi":
            raise RuntimeError("CUDA out of memory")
        return {"flexattention": 2.0, "sdpa_flash": 4.0, "flash_attn_4": 1.0, "cudnn_flex": 3.0}[name]

    def synchronize(self):
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")


class Ours:
    shape = (1, 2, 1, 64, 64)
    options = types.SimpleNamespace(runs=2)

    def time(self, variant, direction, row):
        row["ours_ms"] = 0.5


class Benchmark(attnc.Case):
    def python(self, script, *arguments, code=0):
        process = subprocess.run([sys.executable, "-B", BENCH / script, *map(str, arguments)],
                                 capture_output=True, text=True, timeout=1800, check=False)
        self.assertEqual(process.returncode, code, process.stdout + process.stderr)
        return process

    def saved(self, name, found):
        return self.write(name, json.dumps(found))

    def test_the_variants_are_of_one_kind(self):
        self.attnc("check", *VARIANTS)
        for path in VARIANTS:
            with self.subTest(path.stem):
                clauses = dict(CLAUSE.findall(path.read_text(encoding="utf-8")))
                self.assertEqual(clauses, {
                    "dims": "B = 4, Hq = 32, Hkv = 8, Sq = 4096, Skv = Sq, D = 128",
                    "dtype": "bf16", "layout": "bshd", "outputs": "o, lse", "grad": "q, k, v"})

    def test_plans_are_made_without_a_gpu(self):
        out = self.folder / "plans"
        self.python("plans.py", "--attnc", attnc.ATTNC, "--target", "h200", "--out", out,
                    "--shape", "1,4,2,512,64", "--rows", "chunked_256", "bias_full")
        folder = out / "b1hq4hkv2s512d64"
        listed = json.loads((folder / "plans.json").read_text(encoding="utf-8"))
        self.assertEqual([plan["variant"] for plan in listed["plans"]], ["chunked_256", "bias_full"])
        for plan in listed["plans"]:
            self.assertEqual(plan["errors"], {})
            both = self.attnc_json("inspect", folder / plan["file"])["plans"]
            self.assertEqual([one["direction"] for one in both], list(plan["forms"]))
            sizes = both[0]["manifest"]["shape"]["sizes"]
            self.assertEqual((sizes["B"], sizes["Sq"], sizes["Dqk"]), (1, 512, 64))

    def test_what_is_refused_is_told(self):
        process = self.python("plans.py", "--attnc", attnc.ATTNC, "--out", self.folder, "--target",
                              self.refusing_target(), "--rows", "noop", code=1)
        self.assertIn("refused: ", process.stdout)
        listed, = self.folder.glob("*/plans.json")
        plan, = json.loads(listed.read_text(encoding="utf-8"))["plans"]
        self.assertEqual((plan["file"], plan["forms"]), (None, {}))
        self.assertEqual(set(plan["errors"]), {"forward", "backward"})
        self.python("plans.py", "--out", self.folder, "--target", "h200", "--shape", "1,2", code=2)

    def test_the_table(self):
        page = self.python("report.py", self.saved("a.json", OLD), "--chart").stdout
        self.expect_golden("report.md", page)

    def test_peers_of_another_run(self):
        page = self.python("report.py", self.saved("a.json", OLD),
                           "--also", self.saved("b.json", PUBLISHED)).stdout
        self.expect_golden("report_also.md", page)

    def test_a_chart(self):
        svg = self.folder / "chart.svg"
        self.python("report.py", self.saved("a.json", OLD), "--svg", svg)
        text = svg.read_text(encoding="utf-8")
        bars = [part for part in ElementTree.fromstring(text) if part.get("x") == "190"]
        measured = [row for row in OLD["rows"] if "ours_ms" in row]
        self.assertEqual(len(bars), len(measured) + sum(len(row["peers"]) for row in OLD["rows"]))
        self.expect_golden("report.svg", text)

    def test_the_comparison(self):
        old, new = self.saved("old.json", OLD), self.saved("new.json", NEW)
        self.expect_golden("report_compare.md",
                           self.python("report.py", "--compare", old, new, code=1).stdout)
        self.python("report.py", "--compare", old, old)
        self.assertIn("No longer served: causal backward.",
                      self.python("report.py", "--compare", new, old, code=1).stdout)

    def test_the_table_of_the_readme(self):
        measured = (BENCH / "results" / "native" /
                    "NVIDIA_H200-cudnn9.19.0-b4hq32hkv8s4096d128.json")
        table = self.python("report.py", "--readme", measured).stdout
        self.assertEqual(table.count("\n"), 2 + len(VARIANTS))
        page = (SOURCE / "README.md").read_text(encoding="utf-8")
        self.assertIn(table, page, "write what `bench/report.py --readme` prints into README.md")
        whole = self.python("report.py", measured).stdout
        means = [line for line in whole.splitlines() if line.startswith("| **geometric mean**")]
        (to_flex, to_fastest), (back_flex, back_fastest) = (
            re.findall(r"\*\*([\d.]+)\*\*", line) for line in means)
        words = " ".join(page.split())
        self.assertIn(f"attnc is {float(to_flex):.1f} times as fast as FlexAttention, and {to_fastest} times",
                      words)
        self.assertIn(f"backward: {float(back_flex):.1f} and {back_fastest} times", words)

    def test_an_object_in_a_process_of_its_own(self):
        process = remote.Remote(Process)
        self.assertEqual(process.call("twice", 21), 42)
        with self.assertRaisesRegex(RuntimeError, "^no such thing$"):
            process.call("fail")
        self.assertEqual(process.call("twice", 1), 2)
        with self.assertRaisesRegex(remote.Ended, "no answer within 0.1 s"):
            process.call("sleep", limit=0.1)
        process.stop()
        process = remote.Remote(Process)
        with self.assertRaisesRegex(remote.Ended, "exit code 3"):
            process.call("end")
        with self.assertRaises(remote.Ended):
            process.call("twice", 1)
        process.stop()

    def timed(self, directions, idle):
        """The rows of these variants, by the peers of Attentions."""
        with mock.patch.object(compare_peers.peers, "Attentions", Attentions):
            rows = [compare_peers.Row(variant, compare_peers.peers.PEERS, Ours(), idle)
                    for variant in directions]
            found = list(compare_peers.time_rows(rows, directions))
        self.assertEqual([process.process.is_alive() for process in idle], [True] * len(rows))
        for process in idle:
            process.stop()
        self.assertEqual({(row["variant"], row["direction"]) for row in found},
                         {(variant, direction) for variant in directions
                          for direction in directions[variant]})
        return {(row["variant"], row["direction"]): row for row in found}

    def test_peers_that_break_their_process(self):
        """They are left out of the next one; the others are timed."""
        found = self.timed({"noop": ["forward", "backward"], "causal": ["forward"]}, [])
        noop, causal = found["noop", "forward"], found["causal", "forward"]
        self.assertEqual(noop["peers"], {"flexattention": 2.0, "flash_attn_4": 1.0, "cudnn_flex": 3.0})
        self.assertEqual(set(noop["errors"]), {"sdpa_flash", "flash_attn_4_options"})
        self.assertEqual(causal["peers"], {"flexattention": 2.0, "sdpa_flash": 4.0, "cudnn_flex": 3.0})
        self.assertIn("illegal memory access", causal["errors"]["flash_attn_4"])
        self.assertIn("exit code 3", causal["errors"]["flash_attn_4_options"])
        # What is wrong in one direction only is timed in the other.
        backward = found["noop", "backward"]
        self.assertEqual(backward["peers"], noop["peers"] | {"sdpa_flash": 4.0})
        self.assertEqual(set(backward["errors"]), {"flash_attn_4_options"})

    def test_peers_that_break_their_process_while_they_are_timed(self):
        """They are blamed, and nobody else."""
        found = self.timed({"alibi": ["forward", "backward"]}, [])
        forward, backward = found["alibi", "forward"], found["alibi", "backward"]
        self.assertEqual(forward["peers"], {"flexattention": 2.0, "cudnn_flex": 3.0})
        self.assertEqual(set(forward["errors"]), {"sdpa_flash", "flash_attn_4", "flash_attn_4_options"})
        self.assertIn("out of memory", forward["errors"]["sdpa_flash"])
        self.assertIn("exit code 3", forward["errors"]["flash_attn_4"])
        self.assertEqual((backward["peers"], backward["errors"]), (forward["peers"], forward["errors"]))

    def test_an_idle_process_that_ended_is_nobodys_fault(self):
        idle = [remote.Remote(Attentions)]
        idle[0].process.kill()
        row = self.timed({"noop": ["backward"]}, idle)["noop", "backward"]
        self.assertEqual(set(row["errors"]), {"flash_attn_4_options"})
        self.assertIn("flexattention", row["peers"])

    def test_learned_tensors(self):
        self.python("learned.py", "--compile-only", code=2)
        folder = self.folder / "learned"
        output = self.python("learned.py", "--attnc", attnc.ATTNC, "--target", "h200",
                             "--compile-only", "--plans", folder, "--size", "256", "--rows", "slope", "t5_buckets", "sink")
        made = sorted(plan.stem for plan in folder.glob("*.attnplan"))
        self.assertEqual(made, ["sink_256", "slope_256", "t5_buckets_256"], output.stdout)

    def test_usage(self):
        self.python("report.py", code=2)
        self.python("report.py", "a.json", "--compare", "a.json", "b.json", code=2)
        self.python("compare_peers.py", "--shape", SHAPE, "--shape", SHAPE, "--out", "a.json", code=2)


if __name__ == "__main__":
    attnc.main()
