"""What names of outputs mean, whatever branches are called."""

import pytest

from attn.outputs import is_amax, is_o, is_statistic, value_of_nothing


@pytest.mark.parametrize("name", ["amax_s", "amax_o", "amax_dp", "amax_dq", "amax_dk", "amax_dv"])
def test_magnitudes_have_exact_names(name):
    assert is_amax(name) and not is_o(name) and not is_statistic(name)


@pytest.mark.parametrize("branch", ["far", "amax_far", "amaxed", "maximal", "lse_near", "d_far"])
def test_a_branch_may_be_called_as_outputs_begin(branch):
    o, lse = f"{branch}_o", f"{branch}_lse"
    assert is_o(o) and not is_amax(o) and not is_statistic(o)
    assert is_statistic(lse) and not is_amax(lse) and not is_o(lse)
    assert value_of_nothing(o) == 0 and value_of_nothing(lse) == float("-inf")


@pytest.mark.parametrize("name, value", [("o", 0), ("o_inner", 0), ("sum_exp", 0), ("amax_o", 0),
                                         ("lse", float("-inf")), ("max_with_sink", float("-inf"))])
def test_outputs_of_no_key(name, value):
    assert value_of_nothing(name) == value
