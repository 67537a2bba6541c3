"""Rows of keys in several types, `layout paged(rows = ..)`."""

import typing

import numpy

import fp8


class Format(typing.NamedTuple):
    narrow: int  # columns of e4m3, with a scale for each block of them
    block: int
    wide: int  # columns of bf16


FORMATS = {"fp8_ds_mla": Format(512, 128, 64)}


def bf16(x):
    """Rounded to nearest, ties to even."""
    bits = numpy.asarray(x, numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(numpy.uint32).view(numpy.float32)


def stored(name, rows):
    """What rows [.., narrow + wide] stand for once they are stored."""
    form = FORMATS[name]
    narrow, wide = numpy.split(numpy.asarray(rows, numpy.float64), [form.narrow], axis=-1)
    blocks = narrow.reshape(*narrow.shape[:-1], -1, form.block)
    largest = numpy.abs(blocks).max(axis=-1, keepdims=True)
    scales = numpy.where(largest > 0, largest / 448, 1).astype(numpy.float32)
    elements = fp8.round_to("e4m3", blocks / scales.astype(numpy.float64)).astype(numpy.float32)
    narrow = (elements * scales).reshape(narrow.shape)  # in f32
    return bf16(numpy.concatenate([narrow, wide], axis=-1)).astype(numpy.float64)
