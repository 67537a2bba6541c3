#!/usr/bin/env python3
"""typing_latency.py ATTNC SPEC...: the time from a keystroke to its diagnostics, in every spec.

    --stride N   measures every N-th keystroke, and types those between at once (1)
    --most MS    exits with 1 if the 99th percentile of all is longer
    --json       prints the figures of all

Each spec is typed from nothing into an empty document, one character a change, and the next character is sent
when the diagnostics of the last one are there. So most texts are broken, as they are while somebody types. At
every line end, completion at that place and the outline are asked for too, and count as one more measurement.
Then the whole spec is edited: a space is typed and deleted at the end of each line. At last, the hints are
asked for, which wait for the checks that depend on sizes and for the shares of the masks: `settled`. `cpu_ms` is
the server's processor time for all of it, a keystroke.
"""
import argparse
import json
import pathlib
import sys
import time

from client import Client


def keystrokes(text, stride):
    return [text[at:at + stride] for at in range(0, len(text), stride)]


def end_of(text):
    lines = text.split("\n")
    return {"line": len(lines) - 1, "character": len(lines[-1].encode("utf-16-le")) // 2}


class Typist:
    """Edits one document, and keeps the time that each change takes."""

    def __init__(self, client, uri):
        self.client, self.uri, self.version, self.times = client, uri, 0, []
        client.open(uri, "", 0)
        client.diagnostics(uri, 0)

    def change(self, begin, end, text):
        self.version += 1
        start = time.perf_counter()
        self.client.change(self.uri, self.version, [{"range": {"start": begin, "end": end}, "text": text}])
        self.client.diagnostics(self.uri, self.version)
        self.times.append(time.perf_counter() - start)
        self.client.published.clear()

    def ask(self, *methods, **params):
        start = time.perf_counter()
        for method in methods:
            self.client.request(method, {"textDocument": {"uri": self.uri}, **params})
        return time.perf_counter() - start


def replay(client, path, stride):
    """The times of keystrokes, and the time until the slow checks are done."""
    uri = path.resolve().with_name("typed_" + path.name).as_uri()
    typist = Typist(client, uri)
    whole, text = path.read_text(encoding="utf-8"), ""
    for typed in keystrokes(whole, stride):
        typist.change(end_of(text), end_of(text), typed)
        text += typed
        if "\n" in typed:
            typist.times.append(typist.ask("textDocument/completion", "textDocument/documentSymbol",
                                           position=end_of(text)))
    for number, line in list(enumerate(whole.split("\n")))[::stride]:
        begin = {"line": number, "character": len(line)}
        end = {"line": number, "character": len(line) + 1}
        typist.change(begin, begin, " ")
        typist.change(begin, end, "")
    settled = typist.ask("textDocument/inlayHint",
                         range={"start": end_of(""), "end": end_of(whole)})
    client.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    return typist.times, settled


def percentile(times, part):
    ordered = sorted(times)
    return 1000 * ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("attnc")
    parser.add_argument("specs", nargs="+", type=pathlib.Path)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--most", type=float, default=None)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    client = Client(options.attnc)
    replays = {path.name: replay(client, path, options.stride) for path in options.specs}
    cpu_seconds = client.cpu_seconds()
    client.stop()
    by_spec = {name: times for name, (times, _) in replays.items()}
    settled = {name: seconds for name, (_, seconds) in replays.items()}
    everything = [one for times in by_spec.values() for one in times]
    slowest = max(by_spec, key=lambda name: percentile(by_spec[name], 0.99))
    result = {"keystrokes": len(everything), "p50_ms": round(percentile(everything, 0.5), 2),
              "p99_ms": round(percentile(everything, 0.99), 2), "max_ms": round(1000 * max(everything), 2),
              "slowest": slowest, "slowest_p99_ms": round(percentile(by_spec[slowest], 0.99), 2),
              "settled_p50_ms": round(percentile(settled.values(), 0.5)),
              "settled_max_ms": round(percentile(settled.values(), 1)),
              "settles_last": max(settled, key=settled.get),
              "cpu_ms": round(1000 * cpu_seconds / len(everything), 2)}
    if options.json:
        print(json.dumps(result))
    else:
        for name, times in sorted(by_spec.items()):
            print(f"{name:32} {len(times):6} p50 {percentile(times, 0.5):7.2f} ms  "
                  f"p99 {percentile(times, 0.99):7.2f} ms  settled {1000 * settled[name]:6.0f} ms")
        print(result)
    sys.exit(1 if options.most is not None and result["p99_ms"] > options.most else 0)


if __name__ == "__main__":
    main()
