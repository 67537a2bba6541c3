"""Pictures of pages, which keep the text of the page that they were made of."""
import base64
import re
import struct
import tempfile
import zlib

import browser

KEYWORD = b"Description\0\0\0\0\0"  # not compressed, in no language
HEAD = 8 + 4 + 4 + 13 + 4  # bytes of a PNG's signature and of its first chunk


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write(picture, page, text, size, scale):
    """Draws the top of a page (a path) in a Chromium, `size` of it in pixels before it is scaled."""
    with tempfile.TemporaryDirectory() as profile:
        opened = browser.Browser(browser.find(), profile)
        try:
            opened.call("Emulation.setScrollbarsHidden", hidden=True)
            opened.open(page, *size)
            clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": scale}
            png = base64.b64decode(opened.call("Page.captureScreenshot", format="png", clip=clip)["data"])
        finally:
            opened.close()
    said = chunk(b"iTXt", KEYWORD + text.encode())
    picture.write_bytes(png[:HEAD] + said + png[HEAD:])


def text_of(picture):
    """The text that write() was given; "" if there is none."""
    data, at = picture.read_bytes(), 8
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        content = data[at + 8:at + 8 + size]
        if kind == b"iTXt" and content.startswith(KEYWORD):
            return content[len(KEYWORD):].decode()
        at += 12 + size
    return ""


def predictions(text):
    """The text without its predicted figures, and these."""
    figure = re.compile(r"(\d[\d.,]*) (?=(?:ms|%) ?predicted)")
    return figure.sub("", text), [float(each.replace(",", "")) for each in figure.findall(text)]
