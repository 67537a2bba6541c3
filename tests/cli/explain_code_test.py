"""explain-code: every code. (A unit test compiles the examples.)"""
import json

import attnc


class ExplainCode(attnc.Case):
    def test_one(self):
        text = self.attnc("explain-code", "E0203").stdout
        self.expect_golden("explain-code-E0203.txt", text)
        self.assertEqual(self.attnc("explain-code", "e0203").stdout, text)
        as_json = self.attnc_json("explain-code", "E0203")
        self.assertEqual(as_json["code"], "E0203")
        self.assertIn("tahn", as_json["wrong"])
        self.assertIn("tanh", as_json["right"])

    def test_every_listed_code_is_explained(self):
        codes = self.attnc_json("explain-code", "--list")["codes"]
        self.assertGreaterEqual(len(codes), 35)
        lines = self.attnc("explain-code", "--list").stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines], [code["code"] for code in codes])
        for code in codes:
            text = self.attnc("explain-code", code["code"]).stdout
            self.assertIn(code["summary"], text)
            self.assertIn("Wrong:", text)

    def test_usage(self):
        self.assertIn("E9999", self.attnc("explain-code", "E9999", code=2).stderr)
        self.attnc("explain-code", code=2)
        self.attnc("explain-code", "E0203", "--list", code=2)

    def test_wrong_examples_are_right_about_their_code(self):
        wrong = self.attnc_json("explain-code", "E0301")["wrong"]
        process = self.attnc("check", "-", "--format", "json", stdin=wrong, code=1)
        entry, = json.loads(process.stdout)["specs"]
        self.assertEqual([d["code"] for d in entry["diagnostics"]], ["E0301"])


if __name__ == "__main__":
    attnc.main()
