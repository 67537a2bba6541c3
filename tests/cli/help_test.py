"""Help texts: golden files, and completeness."""
import re

import attnc

COMMANDS = ["check", "compile", "explain", "draw", "report", "run", "verify", "bench", "inspect", "fmt", "lsp", "opt",
            "convert", "explain-code", "support", "target", "cache", "version", "completion", "help"]
PRINT_NO_DATA = ["lsp", "cache", "completion"]  # cache has commands of its own
CACHE_COMMANDS = ["path", "list", "info", "verify", "prune", "clear"]


class Help(attnc.Case):
    def test_texts(self):
        for command in [[]] + [[name] for name in COMMANDS] + [
                ["target", name] for name in ("list", "show", "dump")] + [
                ["cache", name] for name in CACHE_COMMANDS]:
            process = self.attnc(*command, "--help")
            self.assertEqual(process.stderr, "")
            self.expect_golden("-".join(["help"] + command) + ".txt", process.stdout)

    def test_lists_every_command_and_no_other(self):
        text = self.attnc("--help").stdout
        listed = re.findall(r"^  ([a-z-]+)  ", text.split("Commands:")[1].split("\n\n")[0], re.MULTILINE)
        self.assertEqual(sorted(listed), sorted(COMMANDS))

    def test_commands_that_print_data_take_a_format(self):
        for name in COMMANDS:
            if name not in PRINT_NO_DATA:
                self.assertIn("--format", self.attnc(name, "--help").stdout, name)
        for name in CACHE_COMMANDS:
            self.assertIn("--format", self.attnc("cache", name, "--help").stdout, name)


if __name__ == "__main__":
    attnc.main()
