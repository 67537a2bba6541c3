"""What the last line of ./test counts."""
import pathlib
import subprocess
import tempfile
import unittest

from texts import SOURCE

REPORT = """<testsuite>
  <testcase name="alone" status="run"/>
  <testcase name="fails" status="fail"><failure/></testcase>
  <testcase name="absent" status="notrun"/>
  <testcase name="shard" status="{shard}"/>
</testsuite>"""
SHARD = """<testsuites><testsuite>
  <testcase name="A" status="run" result="completed"/>
  <testcase name="B" status="run" result="completed"/>
  <testcase name="C" status="run" result="skipped"><skipped/></testcase>
  <testcase name="D" status="run" result="{result}">{inside}</testcase>
  <testcase name="E" status="notrun" result="suppressed"/>
</testsuite></testsuites>"""


class Count(unittest.TestCase):
    def counted(self, shard, report):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "report.xml").write_text(REPORT.format(shard=shard), encoding="utf-8")
            if report:
                (folder / "shard.xml").write_text(report, encoding="utf-8")
            command = [SOURCE / ".ci" / "count-tests", folder / "report.xml", folder]
            process = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(process.returncode, 1, process.stderr)
        return process.stdout.strip()

    def test_each_test_of_a_program(self):
        passing = SHARD.format(result="completed", inside="")
        self.assertEqual(self.counted("run", passing), "4 passed, 1 failed, 2 skipped")
        failing = SHARD.format(result="completed", inside="<failure/>")
        self.assertEqual(self.counted("fail", failing), "3 passed, 2 failed, 2 skipped")

    def test_a_program_that_ended_early_has_failed(self):
        self.assertEqual(self.counted("fail", None), "1 passed, 2 failed, 1 skipped")
        passing = SHARD.format(result="completed", inside="")
        self.assertEqual(self.counted("fail", passing), "4 passed, 2 failed, 2 skipped")


if __name__ == "__main__":
    unittest.main()
