#!/usr/bin/env python3
"""The extension for VS Code: what attn.vsix contains, and, with node, what its client shows of a spec by
`attnc lsp`, in a stand-in for VS Code.

    vscode_test.py attn.vsix ATTNC
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
import zipfile

VSIX, ATTNC = sys.argv.pop(1), sys.argv.pop(1)
CLIENT = pathlib.Path(__file__).with_name("vscode_client.js")


class Extension(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        with zipfile.ZipFile(VSIX) as archive:
            self.names = archive.namelist()
            archive.extractall(self.folder.name)
        self.extension = pathlib.Path(self.folder.name) / "extension"

    def test_the_manifests_name_what_is_there(self):
        types = ElementTree.parse(self.extension.parent / "[Content_Types].xml").getroot()
        known = {entry.get("Extension") for entry in types}
        for name in self.names:
            if not name.endswith("/") and name != "[Content_Types].xml":
                self.assertIn(name.rsplit(".", 1)[-1], known)
        manifest = ElementTree.parse(self.extension.parent / "extension.vsixmanifest").getroot()
        schema = {"v": "http://schemas.microsoft.com/developer/vsx-schema/2011"}
        for asset in manifest.iterfind(".//v:Asset", schema):
            self.assertIn(asset.get("Path"), self.names)
        package = json.loads((self.extension / "package.json").read_text())
        identity = manifest.find(".//v:Identity", schema)
        self.assertEqual(identity.get("Version"), package["version"])
        contributes = package["contributes"]
        paths = [package["main"], contributes["languages"][0]["configuration"],
                 contributes["grammars"][0]["path"], contributes["jsonValidation"][0]["url"]]
        for path in paths:
            self.assertTrue((self.extension / path).is_file(), path)

    def test_every_command_is_registered(self):
        package = json.loads((self.extension / "package.json").read_text())
        client = (self.extension / "client" / "extension.js").read_text()
        for command in package["contributes"]["commands"]:
            self.assertIn(f'"{command["command"]}":', client)

    def shown(self, attnc):
        node = shutil.which("node")
        if node is None:
            self.skipTest("node is not installed")
        done = subprocess.run([node, CLIENT, self.extension, attnc], capture_output=True, text=True,
                              timeout=600, check=True)
        return json.loads(done.stdout)

    def test_a_mistake_is_shown_and_mended(self):
        shown = self.shown(ATTNC)
        self.assertNotIn("error", shown, shown.get("error"))
        first = shown["first"]
        self.assertEqual((first["code"], first["line"]), ("E0201", 2))
        self.assertTrue(first["message"].startswith("unknown name `windw`"), first["message"])
        self.assertEqual(shown["fix"]["text"], "window")
        self.assertIn(["parameter window = 4", 0], shown["completes"])
        library = [edits for detail, edits in shown["completes"] if detail.startswith("fn window")]
        self.assertEqual(library, [1])  # the import that it needs
        self.assertTrue(shown["hovers"])
        self.assertGreaterEqual(shown["renames"], 1)
        self.assertEqual(shown["outline"], ["x"])
        self.assertEqual(shown["diagnostics"], [])  # after the fix

    def test_a_missing_attnc_is_said(self):
        (message,) = self.shown("/no/attnc")["messages"]
        self.assertIn('Set "attn.path" to the path of attnc', message)


if __name__ == "__main__":
    unittest.main()
