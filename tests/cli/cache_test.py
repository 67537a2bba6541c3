"""cache: the folder of cached plans. The tests create its files by renaming plan files to their
signatures, as run and bench do."""
import os
import pathlib
import time

import attnc

HOUR = 3600
DAY = 24 * HOUR


class Cache(attnc.Case):
    def setUp(self):
        super().setUp()
        self.cache = pathlib.Path(os.environ["ATTN_CACHE_DIR"])

    def keep(self, *binds, age=0):
        """Caches a plan of the noop spec, last used `age` seconds ago."""
        plan = self.compile(attnc.NOOP, *binds)
        signature = self.attnc_json("inspect", plan)["signature"]
        self.cache.mkdir(exist_ok=True)
        kept = plan.rename(self.cache / f"{signature}.attnplan")
        used = time.time() - age
        os.utime(kept, (used, used))
        return kept

    def damage(self, path):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    def names(self):
        return sorted(path.name for path in self.cache.iterdir())

    def test_path_is_the_first_that_is_set(self):
        self.assertEqual(self.attnc("cache", "path").stdout, f"{self.cache}\n")
        self.assertEqual(self.attnc_json("cache", "path"), {"folder": str(self.cache)})
        del os.environ["ATTN_CACHE_DIR"]
        before = {name: os.environ.pop(name, None) for name in ("XDG_CACHE_HOME", "HOME")}
        try:
            self.assertIn("ATTN_CACHE_DIR", self.attnc("cache", "path", code=2).stderr)
            os.environ["HOME"] = "/home/me"
            self.assertEqual(self.attnc("cache", "path").stdout, "/home/me/.cache/attnc\n")
            os.environ["XDG_CACHE_HOME"] = "/xdg"
            self.assertEqual(self.attnc("cache", "path").stdout, "/xdg/attnc\n")
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value

    def test_without_a_folder_there_is_nothing(self):
        self.assertEqual(self.attnc("cache", "list").stdout, "no cached plans\n")
        self.assertEqual(self.attnc_json("cache", "info")["plans"], 0)
        self.assertIn("0 of 0 plans", self.attnc("cache", "verify").stdout)
        for command in ("prune", "clear"):
            self.assertEqual(self.attnc_json("cache", command)["removed"], 0)
        self.assertFalse(self.cache.exists())

    def test_list_and_info(self):
        old = self.keep(age=2 * DAY)
        new = self.keep("--bind", "B=2", age=HOUR)
        listed = self.attnc_json("cache", "list")["plans"]
        self.assertEqual([entry["file"] for entry in listed], [str(new), str(old)])
        for entry, path in zip(listed, (new, old)):
            self.assertEqual(entry["bytes"], path.stat().st_size)
            self.assertEqual(entry["signature"], path.stem)
            self.assertEqual((entry["name"], entry["direction"], entry["target"]),
                             ("noop", "forward", "h200"))
            self.assertEqual(entry["used"], time.strftime("%Y-%m-%dT%H:%M:%SZ",
                                                          time.gmtime(path.stat().st_mtime)))
        lines = self.attnc("cache", "list").stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines[1:]], [new.stem, old.stem])
        info = self.attnc_json("cache", "info")
        self.assertEqual(info["plans"], 2)
        self.assertEqual(info["bytes"], sum(path.stat().st_size for path in (old, new)))
        part, = info["targets"]
        self.assertEqual((part["target"], part["plans"]), ("h200", 2))
        self.assertEqual(part["cudnn_version"], listed[0]["cudnn_version"])
        self.assertIn("2 plans", self.attnc("cache", "info").stdout)
        self.assertEqual(self.names(), sorted([old.name, new.name]))

    def test_verify_finds_damage_and_removes_it_when_asked(self):
        good = self.keep()
        bad = self.keep("--bind", "B=2")
        self.assertIn("2 of 2 plans", self.attnc("cache", "verify").stdout)
        self.damage(bad)
        process = self.attnc("cache", "verify", code=6)
        self.assertIn("1 of 2 plans", process.stdout)
        self.assertIn(bad.name, process.stderr)
        self.assertIn("unreadable", self.attnc("cache", "list").stdout)
        self.assertEqual(self.attnc_json("cache", "info")["unreadable"], 1)
        removed = self.attnc_json("cache", "verify", "--remove")
        self.assertEqual(removed["bad"][0]["error"]["code"], "plan_damaged")
        self.assertEqual(self.names(), [good.name])

    def test_verify_removes_plans_of_development_versions(self):
        old = self.keep()
        old.write_bytes(old.read_bytes().replace(b"\x89ATP", b"\x89ATN", 1))
        self.assertIn("of a development version", self.attnc("cache", "verify", code=6).stderr)
        removed = self.attnc_json("cache", "verify", "--remove")
        self.assertEqual(removed["bad"][0]["error"]["code"], "plan_foreign")
        self.assertEqual(self.names(), [])

    def test_verify_knows_a_plan_under_the_name_of_another(self):
        first, second = self.keep(), self.keep("--bind", "B=2")
        first.replace(second)
        self.assertIn("another plan", self.attnc("cache", "verify", code=6).stderr)

    def test_prune_by_age_and_by_size(self):
        paths = [self.keep("--bind", f"B={i + 1}", age=(i + 1) * DAY) for i in range(3)]
        self.assertEqual(self.attnc_json("cache", "prune")["removed"], 0)
        self.assertEqual(self.attnc_json("cache", "prune", "--max-days", "2.5")["removed"], 1)
        self.assertFalse(paths[2].exists())
        size = paths[0].stat().st_size
        pruned = self.attnc_json("cache", "prune", "--max-bytes", size)
        self.assertEqual((pruned["removed"], pruned["bytes"] > 0), (1, True))
        self.assertEqual(self.names(), [paths[0].name])
        self.attnc("cache", "prune", "--max-bytes", "-1", code=2)
        self.attnc("cache", "prune", "--max-days", "soon", code=2)

    def test_clear_leaves_what_is_not_a_cached_plan(self):
        self.keep()
        leftover = self.cache / ("0" * 32 + ".attnplan.1.0.tmp")
        leftover.write_bytes(b"half")
        (self.cache / "mine.attnplan").write_bytes(b"mine")
        cleared = self.attnc_json("cache", "clear")
        self.assertEqual((cleared["removed"], cleared["temporaries"]), (1, 1))
        self.assertEqual(self.names(), ["mine.attnplan"])

    def test_usage(self):
        self.attnc("cache", code=2)
        self.attnc("cache", "empty", code=2)


if __name__ == "__main__":
    attnc.main()
