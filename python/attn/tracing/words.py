"""Functions of the language, and those of one real. tests/editors/editors_test.py writes this file."""

FUNCTIONS = """
    abs all any atan2 band bnot bor bxor ceil clamp cos erf exp exp2 expm1 float floor gelu int
    isnan log log1p log2 long max maximum min minimum pow relu rsqrt shl shr sigmoid silu sin
    softplus sqrt sum tan tanh where
""".split()

REAL_FUNCTIONS = """
    exp exp2 log log2 sqrt rsqrt tanh sigmoid erf sin cos tan log1p expm1
""".split()
