"""Runs every ```sh block of README.md and docs/*.md, in a folder with specs/, bench/, examples/, build/attnc and
the programs of the examples. Blocks marked ```sh gpu need a GPU."""
import re
import subprocess

import attnc
from attnc import SOURCE

BLOCK = re.compile(r"^```sh( gpu)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Docs(attnc.Case):
    def setUp(self):
        super().setUp()
        for name in ("specs", "bench", "examples"):
            (self.folder / name).symlink_to(SOURCE / name)
        (self.folder / "build").mkdir()
        for program in ("attnc", "embed", "embed_c", "server", "cuda_graph", "layers",
                        "batches", "train"):
            (self.folder / "build" / program).symlink_to(attnc.beside(program))

    def test_commands(self):
        pages = [SOURCE / "README.md", *sorted((SOURCE / "docs").glob("*.md"))]
        gpu = attnc.has_gpu()
        count = 0
        done = set()
        for page in pages:
            for needs_gpu, script in BLOCK.findall(page.read_text(encoding="utf-8")):
                if (needs_gpu and not gpu) or script in done:  # pages repeat commands
                    continue
                done.add(script)
                count += 1
                with self.subTest(page.name, script=script):
                    process = subprocess.run(["bash", "-euo", "pipefail", "-c", script],
                                             cwd=self.folder, capture_output=True, text=True,
                                             timeout=1800, check=False)
                    self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        self.assertGreaterEqual(count, 5, "too few commands in the pages")


if __name__ == "__main__":
    attnc.main()
