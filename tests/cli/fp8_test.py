"""docs/fp8.md has what cuDNN takes of the specs of tests/gpu/fp8, fp8_training and mxfp8 on each GPU, and why not.

`ATTN_UPDATE_GOLDEN=1 tests/cli/fp8_test.py` writes it.
"""
import os
import re
import textwrap

import attnc
from attnc import SOURCE

PAGE = SOURCE / "docs" / "fp8.md"
# The cheaper of two targets with the same engines stands for both, which the rules alone must confirm.
COLUMNS = {"h200": "H100, H200", "a100": "A100", "l40s": "L40S", "b200": "B200", "rtx5090": "RTX 5090"}
FOLDERS = {"fp8": "Scales of tensors, forward", "fp8_training": "Scales of tensors, training",
           "mxfp8": "Scales of blocks, training where the spec has `grad`"}


def purpose(path):
    """The comment at the top of a spec, without its stop."""
    comment = re.match(r"(?:# .*\n)+", path.read_text(encoding="utf-8")).group()
    return comment.replace("# ", "").replace("\n", " ").strip().rstrip(".")


def reason_of(cell):
    """Why the spec is refused, without what other strategies say."""
    reason = cell["reason"].partition("; strategy `")[0]
    return re.sub(r"^(forward|backward): |; these are \d+ and \d+", "", reason)


class Fp8(attnc.Case):
    def cells(self, folder, targets, tier, engine="cudnn", code=3):
        """{spec: {target: cell}}"""
        specs = sorted((SOURCE / "tests" / "gpu" / folder).glob("*.attn"))
        grad = () if folder == "fp8" else ("--grad",)
        result = self.attnc_json("support", *specs, "--target", ",".join(targets), "--tier", tier, "--engine",
                                 engine, *grad, code=code)
        return {spec["spec"]: {cell["target"]: cell for cell in spec["targets"]} for spec in result["specs"]}

    def matrix(self):
        text, reasons = "", []

        def mark(cell, own):
            if cell["outcome"] == "served":
                return "yes"
            if own["outcome"] == "served":
                return "own"
            reason = reason_of(cell)
            if reason not in reasons:
                reasons.append(reason)
            return str(reasons.index(reason) + 1)

        for folder, title in FOLDERS.items():
            text += f"\n{title}:\n\n| spec | {' | '.join(COLUMNS.values())} |\n|---{'|---' * len(COLUMNS)}|\n"
            cells = self.cells(folder, COLUMNS, "heuristics")
            # attnc's own kernels serve all but scales of blocks.
            own = self.cells(folder, COLUMNS, "rules", "native", code=3 if folder == "mxfp8" else 0)
            for path in sorted((SOURCE / "tests" / "gpu" / folder).glob("*.attn")):
                name = re.search(r"^attention (\w+)", path.read_text(), re.MULTILINE).group(1)
                row = [mark(cells[name][target], own[name][target]) for target in COLUMNS]
                text += f"| [{path.stem}](../tests/gpu/{folder}/{path.name}): {purpose(path)} | {' | '.join(row)} |\n"
        lines = [textwrap.fill(reason, 110, initial_indent=f"{number}. ", subsequent_indent=" " * len(f"{number}. "))
                 for number, reason in enumerate(reasons, 1)]
        return text + "\n" + "\n".join(lines) + "\n"

    def test_the_page(self):
        begin, end = "<!-- matrix -->\n", "<!-- end -->\n"
        page = PAGE.read_text(encoding="utf-8")
        head, _, rest = page.partition(begin)
        _, _, tail = rest.partition(end)
        expected = head + begin + self.matrix() + "\n" + end + tail
        if os.environ.get("ATTN_UPDATE_GOLDEN"):
            PAGE.write_text(expected, encoding="utf-8")
        self.assertEqual(page if not os.environ.get("ATTN_UPDATE_GOLDEN") else expected, expected)

    def test_an_h100_takes_what_an_h200_takes(self):
        for folder in FOLDERS:
            for spec, cells in self.cells(folder, ["h100", "h200"], "rules").items():
                outcomes = [(cell["outcome"], cell.get("reason")) for cell in cells.values()]
                self.assertEqual(outcomes[0], outcomes[1], spec)


if __name__ == "__main__":
    attnc.main()
