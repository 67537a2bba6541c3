"""libattn's C API (runtime/api/attn.h) by ctypes.

Objects of this package may be used by any number of threads at once, except Binding and Schedule, which
are for one thread at a time. ctypes releases the GIL during each call. Tensors are given as addresses:
their owner must keep them alive, and must order work on streams.

    declarations  the structures and functions of attn.h, and the library
    handles       handles and errors
    plan_files    the plans of a file, and which of them serve a call
    executables   plans that are loaded, bindings, and schedules
    operations    append and merge
"""
from attn._libattn.declarations import (_DIRECTIONS, _I32, _I64, _POINTER, _REAL, _SIZE, _TEXT, _BindOptions, _Struct,
                                        declare, library, path, version)
from attn._libattn.executables import Binding, Executable, Runtime, Schedule, runtime
from attn._libattn.handles import Later, _call, _error_handle, _failure, _Handle, of_thread
from attn._libattn.plan_files import (ParamInfo, PlanFile, PlanInfo, Shapes, TensorInfo, _params, _tensors,
                                      arguments_of)

__all__ = ["arguments_of", "Binding", "declare", "Executable", "Later", "library", "of_thread", "ParamInfo", "path",
           "PlanFile", "PlanInfo", "runtime", "Runtime", "Schedule", "Shapes", "TensorInfo", "version",
           "_BindOptions", "_call", "_DIRECTIONS", "_error_handle", "_failure", "_Handle", "_I32", "_I64", "_params",
           "_POINTER", "_REAL", "_SIZE", "_Struct", "_tensors", "_TEXT"]
