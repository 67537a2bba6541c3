#!/usr/bin/env python3
"""Compares the compiler's values of every operation, folded and evaluated by the reference, and its two
derivatives of real functions with tests/oracle/operations.py, over numbers that are special.

    operations_test.py OPERATION_VALUES
"""

import collections
import math
import subprocess
import sys
import unittest

import numpy

from operations import REAL, SLOPES, VALUES

PROGRAM = sys.argv.pop(1)
VALUE_TOLERANCE = 1e-14  # relative: numpy and the C library round differently
SLOPE_TOLERANCE = 1e-13
BITS = {"int": 32, "wide": 64}
SIGN_OF_ZERO_IS_OPEN = ("min", "max", "mod")


def rows():
    """The program's output: lists of words."""
    done = subprocess.run([PROGRAM], capture_output=True, text=True, timeout=600, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


def number(word, kind):
    if word == "-":
        return None
    if kind == "bool":
        return word == "1"
    return int(word) if kind in BITS else REAL(float.fromhex(word))


def wrapped(value, bits):
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def in_32_bits(value):
    return value is not None and -(2**31) <= value < 2**31


def same(op, actual, expected, tolerance):
    """Whether two reals agree."""
    if actual is None or math.isnan(expected) or math.isinf(expected):
        return actual is not None and (actual == expected or math.isnan(actual) and math.isnan(expected))
    if expected == 0 and op not in SIGN_OF_ZERO_IS_OPEN:
        return actual == 0 and math.copysign(1, actual) == math.copysign(1, expected)
    return abs(actual - expected) <= tolerance * abs(expected)


class Values(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rows = [row[1:] for row in rows() if row[0] == "value"]

    def test_every_operation_is_compared(self):
        compared = collections.defaultdict(set)
        for op, kind, *_ in self.rows:
            compared[kind].add(op)
        self.assertEqual(compared, {kind: set(table) for kind, table in VALUES.items()})

    def test_values(self):
        for op, kind, result, *words in self.rows:
            *operands, folded, evaluated = words
            first = ["bool"] if op == "select" else []
            kinds = first + [kind] * (len(operands) - len(first))
            with numpy.errstate(all="ignore"):
                expected = VALUES[kind][op](*map(number, operands, kinds))
            with self.subTest(op=op, operands=operands):
                evaluated = number(evaluated, result)
                is_wide = "wide" in (kind, result)
                if is_wide:
                    self.assertEqual(folded, "-")
                elif result == "int":
                    self.assertEqual(number(folded, result), expected if in_32_bits(expected) else None)
                folded = evaluated if is_wide or result == "int" else number(folded, result)
                self.check(op, result, expected, folded, evaluated)

    def check(self, op, result, expected, folded, evaluated):
        if result in BITS:
            self.assertEqual(evaluated, None if expected is None else wrapped(expected, BITS[result]))
        elif result == "bool":
            self.assertEqual((folded, evaluated), (bool(expected), bool(expected)))
        else:
            self.assertTrue(same(op, folded, expected, VALUE_TOLERANCE), (folded, expected))
            self.assertTrue(same(op, evaluated, expected, VALUE_TOLERANCE), (evaluated, expected))


class Slopes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rows = [row[1:] for row in rows() if row[0] == "slope"]

    def test_every_real_function_is_compared(self):
        self.assertEqual({row[0] for row in self.rows}, set(SLOPES))

    def test_slopes(self):
        """Slopes by the symbolic derivative and by reverse mode."""
        compared = 0
        for op, operand, *words in self.rows:
            *operands, symbolic, reverse = (number(word, "real") for word in words)
            with numpy.errstate(all="ignore"):
                expected = SLOPES[op][int(operand)](*operands)
            if not math.isfinite(expected):
                continue
            compared += 1
            with self.subTest(op=op, operands=operands):
                for actual in (symbolic, reverse):
                    error = abs(actual - expected)
                    self.assertLessEqual(error, SLOPE_TOLERANCE * max(1, abs(expected)))
        self.assertGreater(compared, 100)

    def test_the_oracle_is_right(self):
        """Its derivatives are those of its values."""
        for op, slopes in SLOPES.items():
            for place in ([0.7, 1.9], [2.3, 0.4], [0.2, 2.8]):
                for operand, slope in enumerate(slopes):
                    with self.subTest(op=op, operand=operand, place=place):
                        operands = [REAL(x) for x in place[: len(slopes)]]
                        value, step = VALUES["real"][op], 1e-5
                        up, down = list(operands), list(operands)
                        up[operand] += step
                        down[operand] -= step
                        difference = (value(*up) - value(*down)) / (2 * step)
                        expected = slope(*operands)
                        self.assertLess(abs(difference - expected), 1e-7 * max(1, abs(expected)))


if __name__ == "__main__":
    unittest.main()
