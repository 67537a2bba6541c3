"""Writes .npy files for numpy_test.cpp (`write FOLDER`), or checks those it wrote (`check FOLDER`)."""

import pathlib
import sys

import numpy as np

TYPES = ["f2", "f4", "f8", "i1", "u1", "i2", "i4", "i8", "b1"]
SHAPES = [(), (5,), (2, 3, 4), (3, 1, 2, 2)]
NAMES = {"f16": "f2", "f32": "f4", "f64": "f8", "i8": "i1", "u8": "u1", "i32": "i4", "i64": "i8",
         "bool": "b1"}


def values(code, shape):
    count = int(np.prod(shape, dtype=int))
    numbers = np.arange(count) * 7 % 120 - 20
    if code == "u1":
        numbers = numbers + 20
    return numbers.reshape(shape).astype(code)


def save(path, array, version):
    with open(path, "wb") as file:
        np.lib.format.write_array(file, array, version=version)


def write(folder):
    for code in TYPES:
        for rank, shape in enumerate(SHAPES):
            array = values(code, shape)
            save(folder / f"{code}_{rank}_c1.npy", array, (1, 0))
            save(folder / f"{code}_{rank}_f1.npy", np.asfortranarray(array).reshape(shape, order="F")
                 if shape else array, (1, 0))
            save(folder / f"{code}_{rank}_c2.npy", array, (2, 0))


def check(folder):
    for name, code in NAMES.items():
        array = np.load(folder / f"{name}.npy", allow_pickle=False)
        wanted = values(code, (2, 3, 4))
        assert array.dtype == wanted.dtype, (name, array.dtype)
        assert array.shape == wanted.shape and (array == wanted).all(), name


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](pathlib.Path(sys.argv[2]))
