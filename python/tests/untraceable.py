"""Mods that cannot be traced. Each function makes a score_mod or a mask_mod; ERRORS has what is said."""
import math
import random

import numpy
import torch

ERRORS = {}
bias = torch.zeros(4, 48, 48)
lens = torch.tensor([3, 4])
shorts = torch.zeros(4, dtype=torch.int16)
complexes = torch.zeros(4, dtype=torch.complex64)
nine = torch.zeros((1,) * 8 + (48,))
array = numpy.zeros((4, 48))
numbers = [1, 2, 3]


def refused(*texts):
    """The message has each of these texts, and the line of the function that ends with `# here`."""
    def register(function):
        ERRORS[function.__name__] = function, texts
        return function

    return register


@refused("neither true nor false", "`if` cannot choose", "torch.where(condition, a, b)")
def branch(score, b, h, q_idx, kv_idx):
    if q_idx > kv_idx:  # here
        return score
    return score * 2


@refused("`if` cannot choose")
def conditional_expression(score, b, h, q_idx, kv_idx):
    return score if q_idx > kv_idx else -1e9  # here


@refused("a chained comparison", "(a <= x) & (x < b)")
def chained(b, h, q_idx, kv_idx):
    return 0 <= q_idx - kv_idx < 5  # here


@refused("`x and y` is written `x & y`")
def conjunction(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx and kv_idx > 3  # here


@refused("`x or y` is written `x | y`")
def disjunction(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx or kv_idx > 3  # here


@refused("`not x` is written `~x`")
def negation(b, h, q_idx, kv_idx):
    return not q_idx >= kv_idx  # here


@refused("torch.minimum")
def least(score, b, h, q_idx, kv_idx):
    return min(score, 3.0)  # here


@refused("torch.isin")
def membership(b, h, q_idx, kv_idx):
    return kv_idx in (1, 2, 3)  # here


@refused("a loop cannot end")
def loop(score, b, h, q_idx, kv_idx):
    while q_idx > 0:  # here
        q_idx = q_idx - 1
    return score


@refused("cannot index a list or be a size")
def counted(score, b, h, q_idx, kv_idx):
    for _ in range(q_idx):  # here
        score = score + 1
    return score


@refused("cannot index a list", "capture a tensor")
def listed(score, b, h, q_idx, kv_idx):
    return score + numbers[h]  # here


@refused("`item` cannot be traced")
def item(score, b, h, q_idx, kv_idx):
    return score * q_idx.item()  # here


@refused("reads the value of the captured tensor `lens`")
def captured_item(score, b, h, q_idx, kv_idx):
    return score * lens[0].item()  # here


@refused("write `x.float()`, and `torch.exp(x)`")
def math_function(score, b, h, q_idx, kv_idx):
    return score + math.exp(q_idx)  # here


@refused("a score_mod returns one value for each score, this one returns 48")
def vector(score, b, h, q_idx, kv_idx):  # here
    return score + bias[h, q_idx]


@refused("`bias` has 3 dimensions, but 1 index is given")
def too_few_indexes(score, b, h, q_idx, kv_idx):
    return score + bias[h]  # here


@refused("`array` has 2 dimensions, but 3 indexes are given")
def too_many_indexes(score, b, h, q_idx, kv_idx):
    return score + array[h, q_idx, kv_idx]  # here


@refused("index 100 of `bias` is out of range; the dimension has size 48")
def out_of_range(score, b, h, q_idx, kv_idx):
    return score + bias[h, q_idx, 100]  # here


@refused("an index of `bias` is a real number", "`//` in place of `/`")
def real_index(score, b, h, q_idx, kv_idx):
    return score + bias[h, q_idx / 2, kv_idx]  # here


@refused("an index of `bias` is a boolean", "torch.where")
def boolean_index(score, b, h, q_idx, kv_idx):
    return score + bias[h, q_idx > 3, kv_idx]  # here


@refused("cannot draw random numbers", "dropout_p")
def random_tensor(score, b, h, q_idx, kv_idx):
    return score + torch.rand(())  # here


@refused("cannot draw random numbers", "dropout=0.1")
def dropout(score, b, h, q_idx, kv_idx):
    return torch.nn.functional.dropout(score, 0.1)  # here


@refused("cannot draw random numbers")
def random_number(score, b, h, q_idx, kv_idx):
    return score + random.random()  # here


@refused("cannot write to tensors")
def write(score, b, h, q_idx, kv_idx):
    bias[h, q_idx, kv_idx] = 3  # here
    return score


@refused("cannot write to tensors", "x = x.add(..)")
def in_place(score, b, h, q_idx, kv_idx):
    return score.add_(1)  # here


@refused("a score_mod returns a score, this one returns None")
def nothing(score, b, h, q_idx, kv_idx):  # here
    score + 1


@refused("a mask_mod returns a condition, this one returns True")
def always(b, h, q_idx, kv_idx):  # here
    return True


@refused("a mask_mod returns a condition, this one returns a real number", "x != 0")
def real_mask(b, h, q_idx, kv_idx):  # here
    return bias[h, q_idx, kv_idx]


@refused("`&` of a real number")
def real_condition(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & bias[h, q_idx, kv_idx]  # here


@refused("a score_mod returns a number, this one returns a condition", "mask_mod")
def mask_as_score(score, b, h, q_idx, kv_idx):  # here
    return q_idx >= kv_idx


@refused("a score_mod takes 5 parameters, (score, b, h, q_idx, kv_idx); this function has (score, b, h)")
def parameters(score, b, h):  # here
    return score


@refused("is of type int16", "shorts.to(int32)")
def short_integers(score, b, h, q_idx, kv_idx):
    return score + shorts[h]  # here


@refused("is of type complex64", "complexes.to(float32)")
def complex_numbers(score, b, h, q_idx, kv_idx):
    return score + complexes[h]  # here


@refused("`nine` has 9 dimensions, at most 8")
def dimensions(score, b, h, q_idx, kv_idx):
    return score + nine[b, b, b, b, b, b, b, b, q_idx]  # here


@refused("`softmax` needs more than one score")
def softmax(score, b, h, q_idx, kv_idx):
    return torch.softmax(score, -1)  # here


@refused("cannot be traced", "docs/language.md")
def unknown_function(score, b, h, q_idx, kv_idx):
    return score + torch.digamma(score)  # here


@refused("`stack` cannot be traced", "scores are computed one by one")
def stacked(score, b, h, q_idx, kv_idx):
    return torch.stack([score, score]).sum()  # here


@refused("the first argument of `where` is a real number")
def real_choice(score, b, h, q_idx, kv_idx):
    return torch.where(score, q_idx, kv_idx)  # here


@refused("the mod failed while it was traced: NameError")
def undefined_name(score, b, h, q_idx, kv_idx):
    return score + undefined  # noqa: F821  # here


@refused("vectors of 2 and 48 elements meet")
def sizes(score, b, h, q_idx, kv_idx):
    return score + (lens * bias[h, q_idx]).sum()  # here


ints = torch.zeros(4, dtype=torch.int32)


@refused("1099511627776 does not fit in the 32 bits", "`x.long()`")
def beyond_32_bits(score, b, h, q_idx, kv_idx):
    return score + (ints[h] + (1 << 40))  # here


@refused("does not fit in the 32 bits", "`x.long()`")
def bits_beyond_32(b, h, q_idx, kv_idx):
    return (ints[h] & 1 << 33) != 0  # here


@refused("does not fit in the 32 bits", "`x.long()`")
def clamped_beyond_32_bits(b, h, q_idx, kv_idx):
    return lens[b].int().clamp(max=2**33) > kv_idx  # here


@refused("-7 does not fit in the uint8 beside it", "`x.int()`")
def divided_by_what_is_no_byte(b, h, q_idx, kv_idx):
    return q_idx.to(torch.uint8) // -7 > 3  # here


@refused("300 does not fit in the int8", "`x.int()`")
def chosen_what_is_no_byte(b, h, q_idx, kv_idx):
    return torch.where(q_idx > 3, kv_idx.to(torch.int8), 300) > 3  # here


@refused("-1 does not fit in the uint8", "`x.int()`")
def compared_with_what_is_no_byte(b, h, q_idx, kv_idx):
    return q_idx.to(torch.uint8) > -1  # here


@refused("8589934592 does not fit in the 32 bits", "`x.long()`")
def compared_beyond_32_bits(b, h, q_idx, kv_idx):
    return ints[h] < 2**33  # here


@refused("the integer 100000000000000000000 does not fit in 64 bits", "real number")
def beyond_64_bits(b, h, q_idx, kv_idx):
    return lens[b] < 10**20  # here


@refused("specs have no integers of type uint32", "`.long()`")
def unsigned_integers(b, h, q_idx, kv_idx):
    return q_idx.to(torch.uint32) > 3  # here
