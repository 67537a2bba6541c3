"""The kernels of the engine `native` on a GPU of compute capability 9.0: each of the specs in
tests/gpu/native takes another path through them. Skipped on other machines."""
import subprocess
import sys

import attnc

GPU_TESTS = attnc.SOURCE / "tests" / "gpu"


class GpuNative(attnc.Case):
    def test_every_spec_at_its_own_sizes(self):
        process = subprocess.run(
            [sys.executable, GPU_TESTS / "verify_folder.py", attnc.ATTNC, GPU_TESTS / "native", self.folder,
             self.folder / "verified.json", "--engine", "native", "--shapes", "own"],
            capture_output=True, text=True, timeout=1800, check=False)
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)


if __name__ == "__main__":
    if attnc.device().get("sm") != 90:
        attnc.skip("no GPU of compute capability 9.0")
    attnc.main()
