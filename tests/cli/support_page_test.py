"""docs/support.md: which engine serves which spec on which GPU. Repeats the page's command for one GPU of each
kind and compares; ATTN_UPDATE_GOLDEN=1 repeats it for all of them, and rewrites the table."""
import os
import re
import shlex

import attnc
from attnc import SOURCE

PAGE = SOURCE / "docs" / "support.md"
COMMAND = re.compile(r"^```bash\nbuild/attnc (support .*?)^```$", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"(?<=<!-- support: begin \(generated\) -->\n).*(?=<!-- support: end -->)", re.DOTALL)
TARGETS = ("h200", "a100", "l40s", "b200", "rtx5090")
REFUSED = 3
NUMBER = re.compile(r"\d+(?:\.\d+)*|\.\.")


def columns(text):
    """The cells of a table by target and spec, with reasons in place of their codes."""
    titles, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")]
                        for line in text.splitlines() if line.startswith("|")]
    reasons = {code: NUMBER.sub("#", words)
               for code, words in re.findall(r"^- \*\*(r\d+)\*\* \([^)]*\): (.*)$", text, re.MULTILINE)}
    found = {}
    for at, title in enumerate(titles[1:], 1):
        for target in title.split(", "):
            found[target] = {row[0]: [reasons.get(word, word) for word in row[at].split(" / ")]
                             for row in rows}
    return found


class SupportPage(attnc.Case):
    def test_table(self):
        page = PAGE.read_text(encoding="utf-8")
        command = shlex.split(COMMAND.search(page).group(1).replace("\\\n", " "))
        targets = command.index("--target") + 1
        if os.environ.get("ATTN_UPDATE_GOLDEN") == "1":
            table = self.attnc(*command, code=REFUSED, folder=SOURCE).stdout
            page = TABLE.sub(lambda _: table, page)
            PAGE.write_text(page, encoding="utf-8")
        self.assertLessEqual(set(TARGETS), set(command[targets].split(",")))
        command[targets] = ",".join(TARGETS)
        table = self.attnc(*command, code=REFUSED, folder=SOURCE).stdout
        expected = columns(TABLE.search(page).group())
        for target, cells in columns(table).items():
            self.assertEqual(cells, expected[target], target)


if __name__ == "__main__":
    attnc.main()
