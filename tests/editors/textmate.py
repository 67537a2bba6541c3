"""A reader of TextMate grammars, as far as ours needs one: what VS Code shows of a text.

Patterns are matched line by line: of all that may match, the leftmost, and of those the first; the end of the
innermost `begin` comes before its patterns. A pattern may only use what Python's `re` has too."""

import re


class Grammar:
    def __init__(self, tree):
        self._tree = tree

    def tokens(self, text):
        """(text, scope) of each part that has a scope of its own, in order."""
        found, stack = [], [(None, self._tree["patterns"], None)]
        for line in text.splitlines():
            self._line(line + "\n", stack, found)
        return found

    def _line(self, line, stack, found):
        at = 0
        while at <= len(line):
            end, patterns, scope = stack[-1]
            candidates = [] if end is None else [(re.compile(end).search(line, at), None)]
            for rule in self._rules(patterns):
                candidates.append((re.compile(rule.get("match") or rule["begin"]).search(line, at), rule))
            matches = [(match.start(), place, match, rule)
                       for place, (match, rule) in enumerate(candidates) if match]
            if not matches:
                _add(found, line[at:], scope)
                return
            _, _, match, rule = min(matches, key=lambda each: each[:2])
            _add(found, line[at : match.start()], scope)
            if rule is None:
                _add(found, match[0], scope)
                stack.pop()
            elif "begin" in rule:
                _captured(found, match, rule.get("beginCaptures", {}), rule.get("name"))
                stack.append((rule["end"], rule.get("patterns", []), rule.get("name")))
            else:
                _captured(found, match, rule.get("captures", {}), rule.get("name"))
            moved = match.end() > at or rule is None or "begin" in rule
            at = match.end() if moved else at + 1

    def _rules(self, patterns):
        for pattern in patterns:
            if "include" in pattern:
                yield from self._rules([self._tree["repository"][pattern["include"][1:]]])
            elif "match" in pattern or "begin" in pattern:
                yield pattern
            else:
                yield from self._rules(pattern["patterns"])


def _captured(found, match, captures, name):
    if not captures:
        _add(found, match[0], name)
    for number, capture in captures.items():
        _add(found, match[int(number)], capture["name"])


def _add(found, text, scope):
    if scope is not None and text.strip():
        found.append((text, scope.removesuffix(".attn")))
