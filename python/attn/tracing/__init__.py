"""The parts of the tracer, see attn/trace.py.

    expressions   a mod's expressions: hash-consed, typed
    tracer        the state of one trace
    values, rows  what a mod computes with instead of numbers, and of tensors
    functions     torch's and NumPy's functions, in terms of the language's
    narrow        integers of less than 32 bits
    tables        parts, views and functions of captured tensors, element by element
    captures      captured tensors: their names and types
    recipes       how captured tensors, and those computed of them, are found again
    origins       which line indexes a captured tensor, for errors about the spec
    reads         what a trace read, and whether a later call reads the same
    calling       one call of a mod
    clauses       from what mods return to the clauses of a spec
    watching      a copy of a mod that tells what it reads, of
      copies      functions, also Python's own
      containers  lists and dicts
      objects     modules, classes and objects
    places        where in the user's source something happened
    names         names of captured tensors and lets
    words         functions of the language
    writing       expressions as text
"""
