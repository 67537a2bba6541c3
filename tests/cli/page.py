"""Reads the page that `attnc report` writes, and checks that it is well-formed and needs no other file."""
import html.parser
import json
import re

VOID = {"meta", "br", "hr", "img", "input", "link", "wbr"}
EXTERNAL = re.compile(r"""\s(src|action)=|\shref="[^#]|url\(|@import|https?://(?!www\.w3\.org/)""")


class Page(html.parser.HTMLParser):
    """`text` of the page without scripts and style, `data` of its scripts, and `tags`, each (name,
    attributes). Raises ValueError if elements are not nested."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.tags = []
        self.open = []
        self.pieces = []
        self.scripts = []
        self.feed(self.source)
        self.close()
        if self.open:
            raise ValueError(f"not closed: {self.open}")
        self.text = "".join(self.pieces)
        self.data = json.loads(self.scripts[0])

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            raise ValueError(f"<{tag}> has an attribute twice")
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            raise ValueError(f"line {self.getpos()[0]}: </{tag}> within {self.open}")
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif "style" not in self.open:
            self.pieces.append(data)

    def all(self, tag, kind=None):
        """The attributes of all elements of this name, and of this class."""
        return [attributes for name, attributes in self.tags
                if name == tag and (kind is None or kind in (attributes.get("class") or "").split())]

    def problems(self):
        """What is wrong with links, and what would be loaded from elsewhere."""
        ids = [attributes["id"] for _, attributes in self.tags if "id" in attributes]
        links = [attributes["href"] for attributes in self.all("a")]
        tags = re.findall(r"<[a-z][^>]*>", self.source)
        style = re.findall(r"<style>(.*?)</style>", self.source, re.DOTALL)
        return ([f"id {name} twice" for name in set(ids) if ids.count(name) > 1]
                + [f"link to {link}" for link in links if link[:1] != "#" or link[1:] not in ids]
                + [f"external: {text}" for text in tags + style if EXTERNAL.search(text)])
