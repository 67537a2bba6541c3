"""convert: lossless conversion of DSL to JSON and back, including comments."""
import json

import attnc
import json_schema
from attnc import NOOP, SOURCE, SPECS

COMMENTED = """# Above.
attention f(w = 0x10, c = .5) {  # behind the brace

  # of dims
  dims    B = 2, Hq = 4, Sq, Skv = 2 * Sq, D = 16;
  layout  q: bshd, k: strides(1, 2, 3, 4);  # of layout

  tensor  doc: i32[B, Skv];
  mask    -1 < doc[b, kv_idx] <= w && !(kv_idx == 3);
  # at the end
}
# below
""".replace("brace\n\n", "brace\n")


EVERYTHING = """# Every clause there is.
import "masks.attn";
# A function of the file.
fn near(w) = abs(q_idx - kv_idx) < w;
fn capped(x, limit) {
  ratio = x / limit;
  return limit * tanh(ratio);
}

attention everything(w = 4) {
  dims    B = 2, Hq = 4, Hkv = 2, Sq = {64, 128}, Skv, D = 64;
  dtype   f16;
  layout  q: bshd, k: paged(page = 64, pages = 2 * 8, strides = bound), v: paged(page = 64),
          o: thd(strides = bound);
  tensor  offsets: i32[B, 8] monotone runs(8, 2 * 4) = 8 * i1;
  learn   sinks: f32[Hq];
  param   cap: f32;
  let     scaled = 2 * score;
  # A function of the attention.
  fn inside(j) = offsets[b, j] <= kv_idx;
  scale   1 / sqrt(D);
  score   capped(scaled, cap);
  mask    causal() && near(w) && any(j in 0..4 + 4: inside(j));
  mask    sum(j in 0..2: int(score * 0)) == 0;
  sink    sinks[h];
  dropout 0.1, kv_idx % 2 == 0;
  lengths q, kv = Skv - i0;
  align   bottom_right;
  outputs o, lse, max, sum_exp;
  grad    q, k, v, sinks;
  deterministic;
}
"""
LIBRARY = """import "masks.attn";
# One.
fn one() = 1;  # beside it

# Last.
"""


class Convert(attnc.Case):
    def there_and_back(self, path):
        as_json = self.folder / (path.stem + ".attn.json")
        self.attnc("convert", path, "-o", as_json)
        json.loads(as_json.read_text(encoding="utf-8"))
        self.assertEqual(self.attnc("convert", as_json).stdout, path.read_text(encoding="utf-8"))
        again = self.folder / "again.json"
        self.attnc("convert", path, "-o", again)
        self.assertEqual(again.read_bytes(), as_json.read_bytes())
        return as_json

    def test_every_spec(self):
        files = [*SPECS.rglob("*.attn"), *(SOURCE / "tests" / "gpu" / "forms").glob("*.attn")]
        for path in files[::3]:
            with self.subTest(path.name):
                self.there_and_back(path)

    def test_every_clause(self):
        self.there_and_back(self.write("everything.attn", EVERYTHING))
        self.there_and_back(self.write("library.attn", LIBRARY))

    def test_comments(self):
        path = self.write("x.attn", COMMENTED)
        as_json = self.there_and_back(path)
        self.assertEqual(json.loads(as_json.read_text(encoding="utf-8"))["below"], ["# below"])

    def test_both_forms_mean_the_same(self):
        as_json = self.there_and_back(SPECS / "gemma2_local.attn")
        lines = [self.attnc("check", path).stdout.split(": ", 2)[2]
                 for path in (SPECS / "gemma2_local.attn", as_json)]
        self.assertEqual(*lines)

    def test_to(self):
        as_json = self.attnc("convert", "-", stdin=NOOP).stdout
        self.assertEqual(self.attnc("convert", "-", "--to", "json", stdin=NOOP).stdout, as_json)
        self.assertEqual(self.attnc("convert", "-", "--to", "dsl", stdin=NOOP).stdout, NOOP)
        path = self.write("x.attn.json", as_json)
        self.assertEqual(self.attnc("convert", path, "--to", "json").stdout, as_json)
        copy = self.folder / "copy.attn"
        self.attnc("convert", path, "-o", copy)
        self.assertEqual(copy.read_text(encoding="utf-8"), NOOP)

    def test_imports_are_written_into_the_spec(self):
        self.write("rows.attn", "fn after(n) = q_idx >= kv_idx + n;\nfn never() = false;\n")
        path = self.write("x.attn", 'import "rows.attn";\n\nattention x {\n  dims B, Hq, Sq, D;\n  mask after(2);\n}\n')
        alone = self.attnc("convert", path, "--to", "dsl", "--inline-imports").stdout
        self.assertIn("fn after(n) = q_idx >= kv_idx + n;", alone)
        self.assertNotRegex(alone, "import|never")
        self.attnc("check", "-", stdin=alone)
        self.assertEqual(self.attnc("convert", "-", "--inline-imports", "--to", "dsl", stdin=NOOP).stdout, NOOP)
        (self.folder / "rows.attn").unlink()
        self.assertIn("rows.attn", self.attnc("convert", path, "--inline-imports", code=1).stderr)

    def test_json_is_as_the_schema_says(self):
        schema = json.loads((SOURCE / "grammar" / "attn.schema.json").read_text(encoding="utf-8"))
        paths = [*SPECS.glob("*.attn"), *SPECS.glob("lib/*.attn"), self.write("x.attn", COMMENTED),
                 self.write("everything.attn", EVERYTHING)]
        for path in paths:
            value = json.loads(self.attnc("convert", path).stdout)
            self.assertEqual(list(json_schema.mistakes(value, schema, schema)), [], path)
        for wrong in ({"above": "# a"}, {"above": ["a"]}, {"beside": ""}, {"clauses": {}},
                      {"clauses": [{"mask": None}]}, {"clauses": [{"mask": 1, "above": 1}]}, {"x": 1}):
            self.assertNotEqual(list(json_schema.mistakes({**value, **wrong}, schema, schema)), [])

    def test_json_may_be_nested_deeper_than_text(self):
        deep = "1"
        for _ in range(101):
            deep = '{"op": "*", "args": [2, {"op": "+", "args": [1, %s]}]}' % deep
        text = '{"attention": "f", "clauses": [{"scale": %s}]}' % deep
        path = self.write("deep.attn.json", text)
        self.assertIn("error[E0105]", self.attnc("convert", path, code=1).stderr)
        self.attnc("convert", path, "--to", "json")

    def test_comments_that_are_not_utf8_have_no_json(self):
        text = NOOP.encode() + b"# \xe9t\xe9\n"
        path = self.write("latin.attn", text)
        self.assertIn("latin.attn:7:3", self.attnc("convert", path, code=1).stderr)
        self.attnc("fmt", path)
        self.assertEqual(path.read_bytes(), text)

    def test_errors(self):
        bad = self.write("bad.attn", NOOP.replace("layout ", "lay out"))
        output = self.folder / "out.json"
        self.assertIn("error[E0204]", self.attnc("convert", bad, "-o", output, code=1).stderr)
        self.assertFalse(output.exists())
        self.attnc("convert", self.folder / "none.attn", code=4)
        self.attnc("convert", SPECS / "noop.attn", "-o", self.folder / "no" / "x.json", code=4)
        self.attnc("convert", SPECS / "noop.attn", "--to", "yaml", code=2)


if __name__ == "__main__":
    attnc.main()
