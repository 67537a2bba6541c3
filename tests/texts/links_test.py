"""Links of the pages, and where they say that things go: files are there, and headings."""
import collections
import re
import unittest

from texts import SOURCE, files, read

LINK = re.compile(r"\]\(([^()\s]+)\)|(?:src|href)=\"([^\"]+)\"")
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(FENCED.pattern + r"|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def anchors(text):
    """The anchors that forges give the headings of a page: the second of a name ends in -1."""
    found = collections.Counter()
    names = set()
    for title in re.findall(r"^#+ +(.+)$", FENCED.sub("", text), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        names.add(f"{anchor}-{found[anchor]}" if found[anchor] else anchor)
        found[anchor] += 1
    return names


class Links(unittest.TestCase):
    def test_links_resolve(self):
        count = 0
        for page in files(".md"):
            for link in LINK.findall(CODE.sub("", read(page))):
                name, _, anchor = (link[0] or link[1]).partition("#")
                if re.match(r"[a-z]+:", name):
                    continue
                count += 1
                target = (SOURCE / page).parent / name if name else SOURCE / page
                with self.subTest(page=str(page), link=f"{name}#{anchor}"):
                    self.assertTrue(target.exists())
                    if anchor and target.suffix == ".md":
                        self.assertIn(anchor, anchors(read(target)))
        self.assertGreater(count, 100)

    def test_every_page_is_reached_from_the_readme(self):
        reached, new = set(), {SOURCE / "README.md"}
        while new:
            page = new.pop()
            reached.add(page)
            for link in LINK.findall(CODE.sub("", read(page))):
                target = (page.parent / (link[0] or link[1]).partition("#")[0]).resolve()
                if target.suffix == ".md" and target.is_file() and target not in reached:
                    new.add(target)
        pages = {SOURCE / page for page in files(".md", under="docs")} | {SOURCE / "SECURITY.md"}
        self.assertEqual(pages - reached, set())

    def test_where_things_go_exists(self):
        table = read("docs/architecture.md").split("\n## Where does X go\n")[1]
        count = 0
        for row in table.split("\n"):
            folder = SOURCE
            for name in re.findall(r"`([\w/]+(?:\.\w+)?)`", row):  # a name without a folder is beside the one before
                place = SOURCE / name if "/" in name else folder / name
                if "/" in name or place.suffix in (".cpp", ".h", ".hpp", ".cuh", ".def", ".py", ".txt"):
                    count, folder = count + 1, place.parent
                    with self.subTest(row=row, name=name):
                        self.assertTrue(place.exists())
        self.assertGreater(count, 60)


if __name__ == "__main__":
    unittest.main()
