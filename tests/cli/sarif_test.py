"""check --format sarif: requirements of SARIF 2.1.0."""
import json

import attnc
from attnc import NOOP, SPECS

BAD = """attention x(window = 4) {
  # é
  let     near = 1;
  let     near = q_idx - kv_idx < windw;
  mask    near;
}
"""


class Sarif(attnc.Case):
    def sarif(self, *arguments, **how):
        process = self.attnc("check", *arguments, "--format", "sarif", **how)
        log = json.loads(process.stdout)
        self.assertEqual(log["version"], "2.1.0")
        run, = log["runs"]
        rules = run["tool"]["driver"]["rules"]
        self.assertEqual(len({rule["id"] for rule in rules}), len(rules))
        for result in run["results"]:
            self.assertEqual(rules[result["ruleIndex"]]["id"], result["ruleId"])
            self.assertIn(result["level"], ("error", "warning", "note"))
            for place in result["locations"] + result.get("relatedLocations", []):
                region = place["physicalLocation"]["region"]
                self.assertLessEqual((region["startLine"], region["startColumn"]),
                                     (region["endLine"], region["endColumn"]))
        return run, process

    def test_results(self):
        path = self.write("a b.attn", BAD)
        run, process = self.sarif(path, SPECS / "noop.attn", code=1)
        self.assertEqual(process.stderr, "")
        by_code = {result["ruleId"]: result for result in run["results"]}
        unknown = by_code["E0201"]
        self.assertEqual(unknown["message"]["text"],
                         "unknown name `windw`\nhelp: did you mean `window`?")
        place = unknown["locations"][0]["physicalLocation"]
        self.assertEqual(place["artifactLocation"]["uri"],
                         path.as_uri())
        self.assertEqual(place["region"], {"startLine": 4, "startColumn": 35,
                                           "endLine": 4, "endColumn": 40})
        self.assertEqual(unknown["fixes"], [{
            "description": {"text": "write `window`"},
            "artifactChanges": [{"artifactLocation": place["artifactLocation"], "replacements": [{
                "deletedRegion": place["region"], "insertedContent": {"text": "window"}}]}]}])
        self.assertEqual(len(by_code["E0202"]["relatedLocations"]), 1)
        self.assertTrue(run["invocations"][0]["executionSuccessful"])

    def test_a_right_spec_has_no_results(self):
        run, _ = self.sarif("-", stdin=NOOP)
        self.assertEqual(run["results"], [])

    def test_a_relative_path_stays_relative(self):
        self.write("bad.attn", BAD)
        run, _ = self.sarif("bad.attn", folder=self.folder, code=1)
        place = run["results"][0]["locations"][0]["physicalLocation"]
        self.assertEqual(place["artifactLocation"]["uri"], "bad.attn")

    def test_a_file_that_cannot_be_read_is_told(self):
        run, process = self.sarif(self.folder / "none.attn", code=4)
        self.assertIn("none.attn", process.stderr)
        invocation, = run["invocations"]
        self.assertFalse(invocation["executionSuccessful"])
        self.assertIn("none.attn", invocation["toolExecutionNotifications"][0]["message"]["text"])

    def test_usage(self):
        self.attnc("check", SPECS / "noop.attn", "--format", "xml", code=2)


if __name__ == "__main__":
    attnc.main()
