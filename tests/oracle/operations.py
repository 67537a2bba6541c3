"""The value and the derivatives of every operation of expressions, in Python and numpy.

Written from the descriptions in the language manual, independent of the compiler. Integers are exact: what
happens where 32 bits, or 64 of wide ones, do not hold the result is a matter of the comparison. None: there is
no value.
"""

import math

import numpy

REAL = numpy.float64


def divided(x, y, quotient):
    return None if y == 0 else quotient(x, y)


def shifted(x, y, shift, bits=32):
    return shift(x, y) if 0 <= y < bits else None


def truncated(x):
    if not math.isfinite(x):
        return None
    whole = math.trunc(x)
    return whole if -(2**31) <= whole < 2**31 else None


COMPARISONS = {
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
}

INTEGERS = COMPARISONS | {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "floordiv": lambda x, y: divided(x, y, lambda x, y: x // y),
    "mod": lambda x, y: divided(x, y, lambda x, y: x % y),
    "min": min,
    "max": max,
    "neg": lambda x: -x,
    "abs": abs,
    "select": lambda c, x, y: x if c else y,
    "bit_and": lambda x, y: x & y,
    "bit_or": lambda x, y: x | y,
    "bit_xor": lambda x, y: x ^ y,
    "bit_not": lambda x: ~x,
    "to_real": float,
}

# {type of the operands: {operation: value}}; of a select, the type of what it selects.
VALUES = {
    "bool": {
        "and": lambda x, y: x and y,
        "or": lambda x, y: x or y,
        "not": lambda x: not x,
        "select": lambda c, x, y: x if c else y,
        "to_real": lambda x: 1.0 if x else 0.0,
        "to_int": lambda x: 1 if x else 0,
    },
    "int": INTEGERS
    | {
        "shift_left": lambda x, y: shifted(x, y, lambda x, y: x << y),
        "shift_right": lambda x, y: shifted(x, y, lambda x, y: x >> y),
        "widen": lambda x: x,
    },
    "wide": INTEGERS
    | {
        "shift_left": lambda x, y: shifted(x, y, lambda x, y: x << y, 64),
        "shift_right": lambda x, y: shifted(x, y, lambda x, y: x >> y, 64),
        "narrow": lambda x: max(-(2**31), min(x, 2**31 - 1)),
    },
    "real": COMPARISONS
    | {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "floordiv": lambda x, y: numpy.floor(x / y),
        "mod": lambda x, y: x - y * numpy.floor(x / y),
        "min": numpy.minimum,
        "max": numpy.maximum,
        "neg": numpy.negative,
        "abs": numpy.abs,
        "select": lambda c, x, y: x if c else y,
        "truncate": truncated,
        "div": lambda x, y: x / y,
        "pow": numpy.power,
        "floor": numpy.floor,
        "ceil": numpy.ceil,
        "exp": numpy.exp,
        "exp2": numpy.exp2,
        "log": numpy.log,
        "log2": numpy.log2,
        "sqrt": numpy.sqrt,
        "rsqrt": lambda x: 1 / numpy.sqrt(x),
        "tanh": numpy.tanh,
        "sigmoid": lambda x: 1 / (1 + numpy.exp(-x)),
        "erf": lambda x: REAL(math.erf(x)),
        "sin": numpy.sin,
        "cos": numpy.cos,
        "tan": numpy.tan,
        "log1p": numpy.log1p,
        "expm1": numpy.expm1,
        "atan2": numpy.arctan2,
    },
}

# {operation on reals: (the derivative by the first operand, by the second)}
SLOPES = {
    "div": (lambda x, y: 1 / y, lambda x, y: -x / y**2),
    "pow": (lambda x, y: y * x ** (y - 1), lambda x, y: x**y * numpy.log(x)),
    "floor": (lambda x: 0.0,),
    "ceil": (lambda x: 0.0,),
    "exp": (numpy.exp,),
    "exp2": (lambda x: numpy.exp2(x) * math.log(2),),
    "log": (lambda x: 1 / x,),
    "log2": (lambda x: 1 / (x * math.log(2)),),
    "sqrt": (lambda x: 1 / (2 * numpy.sqrt(x)),),
    "rsqrt": (lambda x: -0.5 * x**-1.5,),
    "tanh": (lambda x: 1 / numpy.cosh(x) ** 2,),
    "sigmoid": (lambda x: 0.25 / numpy.cosh(x / 2) ** 2,),
    "erf": (lambda x: 2 / math.sqrt(math.pi) * numpy.exp(-x * x),),
    "sin": (numpy.cos,),
    "cos": (lambda x: -numpy.sin(x),),
    "tan": (lambda x: 1 / numpy.cos(x) ** 2,),
    "log1p": (lambda x: 1 / (1 + x),),
    "expm1": (numpy.exp,),
    "atan2": (lambda x, y: y / numpy.hypot(x, y) ** 2, lambda x, y: -x / numpy.hypot(x, y) ** 2),
}
