"""describe: what a spec is, from the IR; and the options that replace clauses of a spec."""
import json

import attnc
from attnc import SPECS

WHOLE = """attention whole(width = 4) {
  dims    B, Hq, Hkv = Hq // 2, Sq, D = 64;
  tensor  doc: i32[B, Skv] monotone;
  tensor  bias: f32[Hq, 2 * Skv - 1];  # of distances
  tensor  cut: f32[Hq];
  tensor  both: f32[Hq];
  learn   sinks: f32[Hq];
  param   cap: f32;
  let     far = cut[h] < 0.5;
  score   where(far, score, cap * tanh(score / cap)) + bias[h, kv_idx - q_idx + Skv - 1] * both[h];
  mask    doc[b, q_idx] == doc[b, kv_idx] && both[h] > 0.0;
  sink    sinks[h];
  outputs lse, o;
}
"""


class Describe(attnc.Case):
    def describe(self, text, *arguments):
        return self.attnc_json("describe", "-", *arguments, stdin=text)

    def body(self, clauses, *arguments):
        return self.describe(f"attention x {{ dims B, Hq, Sq, D; {clauses} }}", *arguments)

    def tensors(self, said):
        return {tensor["name"]: tensor for tensor in said["tensors"]}

    def test_sizes_tensors_and_outputs(self):
        said = self.describe(WHOLE, "--bind", "Hq=8")
        self.assertEqual(said["name"], "whole")
        self.assertEqual(said["parameters"], ["width"])
        self.assertEqual(said["dims"], {"B": None, "Hq": 8, "Hkv": 4, "Sq": None, "Skv": None, "Dqk": 64, "Dv": 64})
        self.assertEqual(said["open"], ["B", "Sq"])
        self.assertEqual(said["outputs"], ["lse", "o"])
        self.assertEqual(said["saved"], ["o", "lse"])
        self.assertEqual(said["gradients"], ["q", "k", "v", "sinks"])
        self.assertEqual(said["params"], [{"name": "cap", "dtype": "f32"}])
        roles = {name: (tensor["role"], tensor["dims"]) for name, tensor in self.tensors(said).items()}
        self.assertEqual(roles["q"], ("query", ["B", "Hq", "Sq", "Dqk"]))
        self.assertEqual(roles["v"], ("value", ["B", "Hkv", "Skv", "Dv"]))
        self.assertEqual(roles["bias"], ("captured", ["Hq", "2 * Skv - 1"]))
        self.assertEqual(roles["lse"], ("stats", ["B", "Hq", "Sq"]))
        self.assertEqual(roles["d_sinks"], ("gradient", ["Hq"]))
        self.assertEqual(roles["do"], ("cotangent", ["B", "Hq", "Sq", "Dv"]))

    def test_what_could_be_learned(self):
        tensors = self.tensors(self.describe(WHOLE))
        could = {name for name, tensor in tensors.items() if tensor.get("differentiable")}
        # `cut` is read by a condition alone, `both` by the mask too.
        self.assertEqual(could, {"bias", "sinks"})
        for name in ("doc", "bias", "cut", "both"):
            text = WHOLE.replace(f"tensor  {name}:", f"learn   {name}:")
            code = 0 if name in ("bias", "cut") else 1
            if name != "doc":  # of integers
                self.attnc("check", "-", stdin=text, code=code)

    def test_a_condition_has_no_gradient(self):
        for score, learns in (("score * t[h]", True), ("where(t[h] > 0.0, score, 0.0)", False),
                              ("score + floor(t[h])", False), ("score + t[int(u[h])] ", True),
                              ("score + u[int(t[h])]", False)):
            said = self.tensors(self.body(f"tensor t: f32[Hq]; tensor u: f32[Hq]; score {score};"))
            self.assertEqual(said["t"]["differentiable"], learns, score)

    def test_how_heads_and_keys_follow(self):
        cases = {"B, Hq, Sq, D": (1, True), "B, Hq, Hkv = Hq // 4, Sq, D": (4, True),
                 "B, Hq = 8, Hkv = 2, Sq, Skv, D": (4, False), "B, Hq, Hkv = 2, Sq, Skv = 64, D": (None, False),
                 "B, Hkv, Hq = 3 * Hkv, Sq, D": (None, True), "B, Hq, Sq, Skv = Sq, D": (1, True),
                 "B, Hq, Sq, Skv = 2 * Sq, D": (1, False)}
        for dims, (group, aligned) in cases.items():
            facts = self.describe(f"attention x {{ dims {dims}; }}")["facts"]
            self.assertEqual((facts["group"], facts["aligned"]), (group, aligned), dims)
        said = self.describe("attention x { dims B, Hq, Sq = {64, 128}, D; }", "--bind", "Hq=8", "--bind", "Hkv=4")
        self.assertEqual((said["facts"]["group"], said["dims"]["Skv"]), (2, [64, 128]))

    def test_what_needs_a_size(self):
        cases = {"B, Hq, Hkv, Sq, D": ["B", "Hq", "Hkv", "Sq", "D"], "B = 1, Hq, Hkv = Hq // 2, Sq, D": ["Hq", "Sq", "D"],
                 "B = 1, Hq = 2, Sq = 8, Skv, Dqk = 8, Dv": ["Skv", "Dv"], "B = {1, 2}, Hq = 2, Sq = 8, D = 8": []}
        for dims, expected in cases.items():
            self.assertEqual(self.describe(f"attention x {{ dims {dims}; }}")["open"], expected, dims)

    def test_what_may_be_padded(self):
        cases = {"": ["B", "Sq", "Skv"], "scale 1 / Sq;": ["B", "Skv"], "mask kv_idx < Skv - 1;": ["B", "Sq"],
                 "tensor t: f32[4096 - Skv]; score score + t[kv_idx];": [],
                 "let n = Skv; mask kv_idx < n;": ["B", "Sq"],
                 "align bottom_right; mask q_idx >= kv_idx;": ["B"]}
        for clauses, padded in cases.items():
            self.assertEqual(self.body(clauses, "--bind", "Sq=64")["facts"]["padded"], padded, clauses)
        text = "align bottom_right; mask q_idx >= kv_idx;"
        self.assertEqual(self.body(text, "--lengths", "q,kv")["facts"]["padded"], ["B", "Sq", "Skv"])

    def test_what_parts_may_have(self):
        cases = {"": ["B", "Hq"], "learn s: f32[Hq]; score score + s[h];": ["B", "Hq"], "score score * (h + 1);": ["B"],
                 "tensor d: i32[B, Skv]; mask d[b, kv_idx] > 0;": ["B", "Hq"], "mask b < 1 || kv_idx > 2;": ["Hq"],
                 "tensor d: i32[4, Skv]; mask d[b % 4, kv_idx] > 0;": ["Hq"], "scale 1 / Hq;": ["B"],
                 "learn s: f32[2 * Hq]; score score + s[h];": ["B"], "dropout 0.1;": [],
                 "lengths q = (i0 + 1) * Sq // B;": ["B", "Hq"], "prologue q: x[d_idx] * 2.0;": ["B", "Hq"],
                 "prologue q: x[d_idx] * (h + 1);": ["B"],
                 "learn f: f32[B, Hq, Skv]; let c = cumsum(f[b, h, kv_idx]); score score + c[q_idx];": ["B", "Hq"],
                 "let c = cumsum(1.0 * b); score score + c[kv_idx];": ["Hq"],
                 "branch far; score score * 2; branch near; combine near - far;": []}
        for clauses, divisible in cases.items():
            self.assertEqual(self.body(clauses)["facts"]["divisible"], divisible, clauses)

    def test_rows_that_tensors_locate(self):
        said = self.attnc_json("describe", SPECS / "thd.attn")
        self.assertTrue(said["facts"]["packed"])
        self.assertEqual(self.tensors(said)["q"]["addressed_by"], "cu_seqlens_q")
        self.assertNotIn("lengths_q", self.tensors(said))
        paged = self.attnc_json("describe", SPECS / "paged_decode.attn")
        self.assertEqual(paged["layouts"]["k"]["table"], "page_table")
        self.assertEqual(self.tensors(paged)["page_table"]["role"], "control")

    def test_strides_of_the_bound_tensor(self):
        said = self.attnc_json("describe", SPECS / "paged_decode.attn", "--layout",
                               "q: bshd, k: paged(page = 16, strides = bound), v: paged(page = 64), o: bshd")
        self.assertEqual(said["layouts"]["k"]["strides"], "bound")
        self.assertNotIn("strides", said["layouts"]["v"])
        bound = {name for name, one in self.tensors(said).items() if one.get("strides") == "bound"}
        self.assertEqual(bound, {"k", "page_table_k"})

    def test_scales_of_8_bits(self):
        said = self.body("dtype e4m3; quantize per_tensor, descale_q = 1.0 / D, scale_o = 2.0;", "--bind", "D=64")
        self.assertEqual(said["quantize"]["scales"]["descale_q"], None)
        self.assertEqual(said["quantize"]["scales"]["scale_o"], 2)
        tensors = self.tensors(said)
        self.assertEqual((tensors["descale_q"]["optional"], tensors["scale_o"]["optional"]), (False, True))

    def test_errors_are_those_of_check(self):
        wrong = "attention x { dims B, Hq, Sq, D; mask q_idx >= kv_index; }"
        process = self.attnc("describe", "-", "--format", "json", stdin=wrong, code=1)
        self.assertIn("kv_index", json.loads(process.stdout)["diagnostics"][0]["message"])
        self.assertIn("error[", process.stderr)
        self.attnc("describe", "-", "--deny", "warnings", code=1,
                   stdin="attention x { dims B = 1, Hq = 1, Sq = 8, D = 8; mask q_idx < 0; }")

    def test_text(self):
        self.expect_golden("describe.txt", self.attnc("describe", "-", stdin=WHOLE).stdout)

    def test_every_spec(self):
        for path in sorted(SPECS.glob("*.attn")):
            said = self.attnc_json("describe", path)
            inputs = ["q", "k"] if said["facts"].get("values_of_keys") else ["q", "k", "v"]
            self.assertEqual([one["name"] for one in said["tensors"]][: len(inputs)], inputs, path.name)


class Edits(attnc.Case):
    TEXT = """# Kept.
attention a {
  dims    B = 1, Hq = 2, Sq = 64, D = 64;  # sizes
  dtype   bf16;
  layout  q: bshd,
          k: bhsd;
  lengths kv = 5;
  mask    q_idx >= kv_idx;
}
"""

    def edited(self, *options, text=TEXT):
        return self.attnc("convert", "-", "--to", "dsl", *options, stdin=text).stdout

    def said(self, *options, text=TEXT):
        return self.attnc_json("describe", "-", *options, stdin=text)

    def test_clauses_are_replaced(self):
        said = self.said("--dtype", "f16", "--layout", "q: strides(8192, 64, 128, 1), k: bhsd", "--outputs", "lse,o",
                         "--gradients", "v", "--deterministic", "--lengths", "q,kv")
        self.assertEqual((said["dtype"], said["outputs"], said["gradients"]), ("f16", ["lse", "o"], ["v"]))
        self.assertEqual(said["layouts"]["q"], {"kind": "strided", "strides": [8192, 64, 128, 1]})
        self.assertTrue(said["facts"]["deterministic"])
        self.assertEqual(said["facts"]["lengths"], ["lengths_q", "lengths_kv"])

    def test_a_backward_through_lse_reads_its_gradient(self):
        for options, reads in ((("--gradients", "q,lse"), True), (("--gradients", "q"), False)):
            said = self.said(*options)
            self.assertEqual((said["gradients"], said["facts"]["grad_of_lse"]), (["q"], reads))
            given = {tensor["name"]: tensor for tensor in said["tensors"] if tensor["role"] == "cotangent"}
            self.assertEqual(set(given), {"do", "dlse"} if reads else {"do"})
            if reads:
                self.assertEqual((given["dlse"]["dtype"], given["dlse"]["dims"]), ("f32", ["B", "Hq", "Sq"]))

    def test_comments_defaults_and_lines_stay(self):
        text = self.edited("--lengths", "q,kv", "--layout", "bhsd")
        self.assertIn("# Kept.", text)
        self.assertIn("# sizes", text)
        self.assertIn("kv = 5", text)
        wrong = self.TEXT.replace("kv_idx;", "kv_index;")
        for options in ((), ("--layout", "bhsd"), ("--outputs", "o, lse"), ("--dtype", "f16")):
            found = self.attnc("describe", "-", "--format", "json", *options, stdin=wrong, code=1).stdout
            self.assertEqual(json.loads(found)["diagnostics"][0]["line"], 8, options)

    def test_the_json_form_stays_json(self):
        tree = self.attnc("convert", "-", "--to", "json", stdin=self.TEXT).stdout
        again = self.attnc("convert", "-", "--to", "json", "--dtype", "f16", stdin=tree).stdout
        self.assertEqual(again.count('"dtype"'), 1)
        self.assertEqual(self.said("--dtype", "f16", text=tree)["dtype"], "f16")

    def test_a_plan_keeps_the_edited_text(self):
        plan = self.compile(self.TEXT, "--engine", "native", "--dtype", "f16", "--outputs", "o,lse")
        text = self.attnc_json("inspect", plan)["spec"]["text"]
        self.assertEqual(self.said(text=text)["dtype"], "f16")
        self.assertEqual(self.said(text=text)["outputs"], ["o", "lse"])

    def test_results_are_those_of_the_edited_spec(self):
        wanted = ("--backend", "reference", "--in", "q=random:1")
        one = self.attnc_json("run", "-", *wanted, "--dtype", "f16", "--outputs", "lse", stdin=self.TEXT)
        text = self.TEXT.replace("bf16", "f16").replace("mask ", "outputs lse; mask ")
        self.assertEqual(one, self.attnc_json("run", "-", *wanted, stdin=text))

    def test_what_is_no_clause_is_refused(self):
        for option, value in (("--dtype", "f16; mask q_idx < 0"), ("--layout", ""), ("--outputs", "o lse"),
                              ("--dtype", "f16 }")):
            process = self.attnc("describe", "-", option, value, stdin=self.TEXT, code=2)
            self.assertIn("not a clause", process.stderr)
        process = self.attnc("describe", "-", "--dtype", "f15", stdin=self.TEXT, code=1)
        self.assertIn("f15", process.stderr)

    def test_a_plan_has_its_own_clauses(self):
        plan = self.compile(self.TEXT, "--engine", "native")
        for command in (("explain", plan), ("run", plan),
                        ("compile", "--recompile", plan, "-o", self.folder / "new.attnplan")):
            process = self.attnc(*command, "--dtype", "f16", code=2)
            self.assertIn("--dtype f16 cannot be used with a plan file", process.stderr)


if __name__ == "__main__":
    attnc.main()
