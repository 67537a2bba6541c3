"""The parts of the tracer, see attn/trace.py.

    expressions   a mod's expressions: hash-consed, typed
    values        what a mod computes with instead of tensors
    functions     torch's and NumPy's functions, in terms of the language's
    captures      captured tensors: their names, and how they are indexed
    rebuilding    a copy of a mod in which NumPy arrays can be indexed
    origins       which line indexes a captured tensor, for errors about the spec
    places        where in the user's source something happened
    names         names of captured tensors and lets
    writing       expressions as text
"""
