"""Functions and methods of torch and NumPy, in terms of the language's.

A function is found by its name alone: torch.tanh, Tensor.tanh, numpy.tanh and torch.ops.aten.tanh are one.
Each takes the tracer and what the mod gave, and returns an expression.

    table         the functions by name, and errors of others
    conditions    comparisons, conditions and bits
    arithmetic    operators on numbers, functions of one number or two
    conversions   conversions and constants
    rows          elements of captured tensors, sums of rows and their like, and the least and the largest
"""
from attn.tracing.functions import arithmetic, conditions, conversions, rows  # noqa: F401: they define functions
from attn.tracing.functions.table import (READS_VALUES, find, in_place_error, is_in_place, is_random, name_of,
                                          of_operator, random_error, reading_error, unknown)

__all__ = ["READS_VALUES", "find", "in_place_error", "is_in_place", "is_random", "name_of", "of_operator",
           "random_error", "reading_error", "unknown"]
