"""What ranks tell each other through a store: no answer is stale, no key is left, and a call that fails on one
rank is an error of all. Ranks are threads."""

import sys
import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import attn  # noqa: E402
from attn import _libattn  # noqa: E402
from attn.torch import board as boards  # noqa: E402
from attn.torch import meeting, ranked  # noqa: E402
from attn.torch.board import Board  # noqa: E402
from attn.torch.group import Group  # noqa: E402
from attn.torch.meeting import Meetings  # noqa: E402
from attn.torch.ranked import Kernels, check_graphs  # noqa: E402
from attn.torch.steps import Steps  # noqa: E402

SOON = 0.2  # seconds


@pytest.fixture
def group(monkeypatch):
    """Boards of three ranks, which show no signs of life."""
    monkeypatch.setattr(boards._Signs, "run", lambda self, over: None)
    monkeypatch.setattr(meeting, "_MORE", 0.0)
    store = dist.HashStore()
    return store, [Board(store, rank, 3) for rank in range(3)]


def in_ranks(ranks, body):
    """What body(rank) returns or raises."""
    found = {}

    def work(rank):
        try:
            found[rank] = body(rank)
        except attn.Error as error:
            found[rank] = error

    threads = [threading.Thread(target=work, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in ranks]


def total(meetings, ranks=range(3), about="sums", seconds=5.0):
    return in_ranks(ranks, lambda rank: meetings[rank].hold(about, 10**rank, sum, seconds))


def test_all_hear_what_rank_0_makes_of_their_words(group):
    meetings = [Meetings(board) for board in group[1]]
    for _ in range(3):
        assert total(meetings) == [111] * 3


def test_an_error_of_rank_0_is_that_of_all(group):
    def refuse(words):
        raise attn.BindingError(f"the words are {words}", ["a note"])

    meetings = [Meetings(board) for board in group[1]]
    for error in in_ranks(range(3), lambda rank: meetings[rank].hold("words", rank, refuse, 5.0)):
        assert type(error) is attn.BindingError and error.notes == ("a note",), error
        assert error.message == "the words are [0, 1, 2]"


def test_nobody_hears_the_answer_to_a_question_that_was_given_up(group):
    meetings = [Meetings(board) for board in group[1]]
    for error in total(meetings, ranks=(1, 2), seconds=SOON):
        assert isinstance(error, attn.NcclError) and "rank 0 did not come within 0.2 s" in str(error)
    (error,) = total(meetings, ranks=(0,), seconds=SOON)
    assert isinstance(error, attn.NcclError) and "rank 1 did not come within 0.2 s, nor did 1 more" in str(error)
    for error in total(meetings, ranks=(0, 2), seconds=SOON):
        assert isinstance(error, attn.NcclError), error
    assert total(meetings, about="others") == [111] * 3
    again = [Meetings(board) for board in group[1]]  # as in another life of the group
    assert total(again) == [111] * 3


def test_a_library_that_one_rank_lacks_is_an_error_of_all(group, monkeypatch):
    def runtime(device):
        if device == 1:
            raise attn.CompilerError("cuDNN was not found")

    def opened(rank):
        here = object.__new__(Group)
        here.device, here.seconds, here._meetings = torch.device("cuda", rank), 5.0, Meetings(group[1][rank])
        here._refused = None
        Kernels(here, b"", Steps(group[1][rank], "x", 5.0))

    monkeypatch.setattr(_libattn, "runtime", runtime)
    for error in in_ranks(range(3), opened):
        assert type(error) is attn.CompilerError and "cuDNN was not found" in str(error), error


def test_an_answer_counts_even_if_it_cannot_be_removed(group, monkeypatch):
    def fails(key):
        raise attn.NcclError("the group's store does not answer", (), "nccl")

    monkeypatch.setattr(group[1][1], "remove", fails)
    meetings = [Meetings(board) for board in group[1]]
    for _ in range(2):
        assert total(meetings) == [111] * 3


def test_ranks_that_ask_for_different_things_are_told_and_can_meet_again(group):
    meetings = [Meetings(board) for board in group[1]]
    about = ("a file", "a file", "a spec")
    for error in in_ranks(range(3), lambda rank: meetings[rank].hold(about[rank], rank, sum, 5.0)):
        assert isinstance(error, attn.NcclError), error
        assert "rank 0 asks about a file, but rank 2 about a spec" in str(error)
    assert total(meetings) == [111] * 3


def test_meetings_leave_no_keys_but_one_of_each_rank(group, monkeypatch):
    monkeypatch.setattr(meeting, "_PART", 100)
    store, board = group
    meetings = [Meetings(each) for each in board]
    assert total(meetings) == [111] * 3
    kept = 3  # two questions, and the name of the life
    assert store.num_keys() == kept
    made = bytes(range(256)) * 4
    for _ in range(3):
        found = in_ranks(range(3), lambda rank: meetings[rank].hold("x", None, lambda words: made, 5.0, 10.0))
        assert found == [made] * 3
    assert store.num_keys() == kept


def test_a_rank_without_signs_of_life_is_lost_until_it_shows_itself_again(group):
    store, board = group
    signs = [boards._Signs(each) for each in settled(board)]
    watch(signs[0], 0.0, 1000.0)
    assert board[2].lost() is None, "rank 1 may not have come yet"
    signs[1].beat(1000.0)
    watch(signs[0], 1002.0, 1002.0 + 0.9 * boards.SILENCE)
    assert board[2].lost() is None
    watch(signs[0], 1020.0, 1022.0)
    assert board[2].lost() == "rank 1 is lost: it gave no sign of life for 20 s"
    (error,) = in_ranks([2], lambda rank: Meetings(board[rank]).hold("x", 0, sum, 60.0))
    assert isinstance(error, attn.NcclError) and "rank 1 is lost: it gave no sign of life for 20 s" in str(error)
    signs[1].beat(1030.0)
    assert board[2].lost() is None
    signs[0].end(failed=True)
    assert board[2].lost() == "rank 0 is lost: its process ended with an exception"
    signs[1].beat(1060.0)
    watch(signs[0], 1060.0, 1060.0 + boards.SILENCE)
    assert board[2].lost() == "rank 1 is lost: it gave no sign of life for 20 s"


def settled(board):
    """As after a meeting."""
    for each in board:
        assert each.life() == board[0].life()
        each.settle()
    return board


def watch(signs, begin, end):
    for turn in range(round((end - begin) / boards.BEAT) + 1):
        signs.beat(begin + turn * boards.BEAT)


def test_a_process_that_stood_still_does_not_call_another_one_lost(group):
    signs = [boards._Signs(each) for each in settled(group[1])]
    signs[1].beat(0.0)
    watch(signs[0], 0.0, 4.0)
    watch(signs[0], 1000.0, 1010.0)
    assert group[1][2].lost() is None
    watch(signs[0], 1012.0, 1020.0)
    assert group[1][2].lost() == "rank 1 is lost: it gave no sign of life for 20 s"


def test_signs_go_on_when_the_store_did_not_answer_once(monkeypatch):
    monkeypatch.setattr(boards, "BEAT", 0.01)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    beats = []

    def beat(self, now):
        beats.append(now)
        if len(beats) == 2:
            raise RuntimeError("timeout")

    monkeypatch.setattr(boards._Signs, "beat", beat)
    board = Board(dist.HashStore(), 0, 2)
    assert board.wait(lambda: len(beats) > 4 or None, 5.0, ())
    board.close()


def test_a_rank_that_gives_up_while_rank_0_hears_it_is_missed_by_all(group, monkeypatch):
    meetings = [Meetings(board) for board in group[1]]
    hear = meetings[0]._hear

    def hear_and_lose(seconds):
        found = hear(seconds)
        group[1][1].write("asks/1", b"")
        return found

    monkeypatch.setattr(meetings[0], "_hear", hear_and_lose)
    for rank, error in zip(range(3), total(meetings, seconds=1.0)):
        assert isinstance(error, attn.NcclError) and "rank 1 did not come" in str(error), rank


def test_signs_are_given_while_a_board_is_open(monkeypatch):
    monkeypatch.setattr(boards, "BEAT", 0.01)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    store = dist.HashStore()
    board = [Board(store, rank, 2) for rank in range(2)]
    first = board[0].wait(lambda: board[0].read("sign/1"), 5.0, ())
    assert board[0].wait(lambda: board[0].read("sign/1") != first or None, 5.0, ())
    board[1].settle()
    monkeypatch.setattr(sys, "last_type", ValueError, raising=False)  # printed once, by an interactive Python
    board[0].close()
    assert board[1].lost() is None, "it is a good end"
    assert board[1].wait(lambda: board[1].lost([0]), 5.0, ()) == "rank 0 is lost: it has ended"
    monkeypatch.setattr(boards, "_boards", {board[1]})
    boards._close_all()
    assert board[0].lost() == "rank 1 is lost: its process ended with an exception"


def test_a_rank_that_has_ended_well_is_lost_to_those_alone_who_wait_for_it(group):
    board = settled(group[1])
    signs = [boards._Signs(each) for each in board]
    for each in signs:
        each.beat(0.0)
    signs[1].end(failed=False)
    for turn in range(30):
        signs[0].beat(turn * boards.BEAT)
        signs[2].beat(turn * boards.BEAT)
    assert [each.lost() for each in board] == [None] * 3
    assert board[0].lost([2]) is None
    assert board[0].lost([1, 2]) == "rank 1 is lost: it has ended"
    assert board[0].wait(iter([None, "said before"]).__next__, 5.0, [1]) == "said before"
    for error in total([Meetings(each) for each in board], ranks=(0, 2), seconds=60.0):
        assert isinstance(error, attn.NcclError) and "rank 1 is lost: it has ended" in str(error), error
    # Its watch is taken over.
    watch(signs[0], 100.0, 104.0 + boards.SILENCE)
    assert board[0].lost() == "rank 2 is lost: it gave no sign of life for 20 s"


def test_an_ended_rank_that_shows_itself_again_is_not_lost(group):
    store, board = group[0], settled(group[1])
    signs = [boards._Signs(each) for each in board]
    for turn in range(2):
        signs[1].beat(4.0 * turn)
        signs[0].beat(4.0 * turn + 1)
        assert board[2].lost([1]) is None
        signs[1].end(failed=False)
        signs[0].beat(4.0 * turn + 2)
        assert board[2].lost([1]) == "rank 1 is lost: it has ended"


def test_the_end_of_a_rank_that_was_never_answered_is_not_that_of_a_later_one(group):
    store, board = group
    late = boards._Signs(board[1])
    late.beat(0.0)
    again = settled([Board(store, rank, 3) for rank in range(3)])
    signs = [boards._Signs(each) for each in again]
    for each in [*signs, late]:  # which finds the name of their life
        each.beat(1.0)
    for failed in (False, True):
        late.end(failed)
        watch(signs[0], 2.0, 4.0)
        assert again[2].lost([1]) is None
        signs[1].beat(5.0)
        watch(signs[0], 6.0, 14.0)
        assert again[2].lost([1]) is None


def test_a_rank_that_fails_before_it_was_answered_is_missed_soon(group):
    board = group[1]
    signs = [boards._Signs(each) for each in board]
    for each in reversed(signs):
        each.beat(0.0)
    signs[1].end(failed=True)
    watch(signs[0], 2.0, 6.0)
    assert board[0].lost() is None, "another process of the rank may show itself"
    watch(signs[0], 8.0, 8.0)
    assert board[0].lost() == "rank 1 is lost: its process ended with an exception"
    for error in total([Meetings(each) for each in board], ranks=(0, 2), seconds=60.0):
        assert isinstance(error, attn.NcclError) and "rank 1 is lost" in str(error), error
    signs[1].beat(12.0)
    assert board[0].lost() is None


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_process_that_fails_does_not_hasten_the_loss_of_another_one(group, is_seen):
    """The other one is of the same rank, whose thread then stands still. `is_seen`: whether rank 0 looked at both
    before."""
    store, board = group
    watching, failing = boards._Signs(board[0]), boards._Signs(board[1])
    living = boards._Signs(Board(store, 1, 3))
    for each in (failing, living):
        each.beat(0.0)
        if is_seen:
            watching.beat(0.0)
    failing.end(failed=True)
    watch(watching, 2.0, boards.SILENCE)
    assert board[0].lost() is None
    living.beat(1.0 + boards.SILENCE)
    watch(watching, 2.0 + boards.SILENCE, 10.0 + boards.SILENCE)
    assert board[0].lost() is None
    failing.end(failed=True)
    watch(watching, 12.0 + boards.SILENCE, 12.0 + 2 * boards.SILENCE)
    assert board[0].lost() == "rank 1 is lost: its process ended with an exception"


def test_a_rank_may_make_calls_while_its_end_is_told(group, monkeypatch):
    board = settled(group[1])[1]
    board.calls["x"] = 1

    def write(calls):
        told = []
        for name in calls:
            board.calls["y"] = 1  # as another thread
            told.append(name)
        return " ".join(told)

    monkeypatch.setattr(boards.json, "dumps", write)
    boards._Signs(board).end(failed=False)
    assert board.read("sign/1") == b"ended x"


@pytest.mark.parametrize("made", [1, 2])
def test_an_ended_rank_is_lost_to_calls_that_it_did_not_make(group, made):
    steps = calls(group)
    for each in [*steps[:2] * 2, *steps[2:] * made]:
        assert run(each) == "done"
    signs = [boards._Signs(each) for each in group[1]]
    signs[2].end(failed=False)
    assert steps[0].in_vain() is None, "nobody looked yet"
    watch(signs[1], 0.0, boards.BEAT)
    if made == 2:
        assert steps[0].in_vain() is None
        with steps[0].opening():
            assert steps[0].in_vain() == "rank 2 is lost: it has ended after call 2"
    else:
        assert steps[0].in_vain() == "rank 2 is lost: it has ended after call 1"


def test_nothing_of_an_earlier_life_counts(group, monkeypatch):
    """A store that outlives its ranks: questions, signs and losses of theirs are still there."""
    store, board = group
    signs = [boards._Signs(each) for each in settled(board)]
    signs[1].beat(0.0)
    watch(signs[0], 0.0, 2.0 + boards.SILENCE)
    assert "rank 1 is lost" in board[2].lost()
    board[2].write("asks/2", meeting.pickle.dumps(("old", "sums", 10**6)))
    late = [Board(store, rank, 3) for rank in (1, 2)]  # before rank 0
    found, asked = {}, [threading.Event() for _ in late]
    monkeypatch.setattr(boards, "_ASKING", 0.0)
    for each, event in zip(late, asked):
        monkeypatch.setattr(each, "lost", lambda *awaited, lost=each.lost, event=event: event.set() or lost(*awaited))

    def others():
        found.update(enumerate(in_ranks((0, 1), lambda place: Meetings(late[place]).hold(
            "sums", 10 ** (place + 1), sum, 20.0))))

    thread = threading.Thread(target=others)
    thread.start()
    assert all(event.wait(20.0) for event in asked)  # whether anything is lost
    first = Board(store, 0, 3)
    assert Meetings(first).hold("sums", 1, sum, 20.0) == 111
    thread.join()
    assert found == {0: 111, 1: 111}


def test_no_thread_goes_back_to_an_earlier_life(group, monkeypatch):
    """One has read its name, and goes on when another one was answered in the next one."""
    store, (_, board, _) = group
    read, is_read, is_answered = boards._read, threading.Event(), threading.Event()

    def read_slowly(*key):
        found = read(*key)
        if threading.current_thread() is late:
            is_read.set()
            is_answered.wait(SOON)
        return found

    monkeypatch.setattr(boards, "_read", read_slowly)
    late = threading.Thread(target=board.life)
    late.start()
    is_read.wait()
    again = Board(store, 0, 3)
    board.life()
    board.settle()
    is_answered.set()
    late.join()
    assert board.life() == again.life()


def calls(group, seconds=5.0):
    return [Steps(board, "x", seconds) for board in settled(group[1])]


def run(steps, error=None):
    with steps.call():
        if error is not None:
            raise error
        steps.exchanges()
    return "done"


def test_a_call_that_fails_on_all_ranks_is_followed_by_others(group):
    steps = calls(group)
    for _ in range(2):
        assert in_ranks(range(3), lambda rank: run(steps[rank])) == ["done"] * 3
        for error in in_ranks(range(3), lambda rank: run(steps[rank], attn.CudaError("no memory"))):
            assert isinstance(error, attn.CudaError)
        for each in steps:
            each.refuse(attn.BindingError("q is no tensor"))
        assert in_ranks(range(3), lambda rank: run(steps[rank])) == ["done"] * 3
    assert [each.in_vain() for each in steps] == [None] * 3


def test_what_fails_on_one_rank_is_an_error_of_all(group):
    steps = calls(group)
    assert in_ranks(range(3), lambda rank: run(steps[rank])) == ["done"] * 3
    with pytest.raises(ValueError):
        run(steps[1], ValueError("no memory\nat all"))
    assert steps[0].in_vain() is None, "it did not make that call yet"
    with steps[2].call():
        assert steps[2].in_vain() is None, "it may fail here, too"
        steps[2].exchanges()
    assert steps[2].in_vain() == "call 2 failed on rank 1 alone: ValueError: no memory"
    for rank, why in ((1, "rank 2: call 2 failed on rank 1 alone"), (2, "call 2 failed on rank 1 alone")):
        for _ in range(2):
            with pytest.raises(attn.NcclError, match=why):
                run(steps[rank])
    assert run(steps[0]) == "done"  # it only enqueues it; while it waits, it is told
    assert "rank 1" in steps[0].in_vain()
    with pytest.raises(attn.NcclError, match="rank 1"):
        run(steps[0])


def test_a_rank_hears_what_failed_before_it_came(group):
    board = settled(group[1])
    with pytest.raises(ValueError):
        run(Steps(board[1], "x", SOON), ValueError("no memory"))
    late = Steps(board[0], "x", SOON)
    assert run(late) == "done"
    assert late.in_vain() == "call 1 failed on rank 1 alone: ValueError: no memory"


def test_a_call_that_fails_keeps_tensors_whose_values_were_compared(group, monkeypatch):
    def refuse(name, value):
        raise attn.BindingError("other values than those that the attention was divided for")

    binding = SimpleNamespace(set_addresses=lambda addresses, checked, stream: None, set_param=refuse, kept=[])
    doc = torch.zeros(4, dtype=torch.int32)
    kernels = object.__new__(Kernels)
    kernels._device = kernels._stream = None
    kernels._rank = SimpleNamespace(tensors={"fwd": [SimpleNamespace(name="doc", role="captured")]})
    monkeypatch.setattr(kernels, "_binding", lambda *_: binding)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=0))
    monkeypatch.setattr(ranked, "is_capturing", lambda: False)
    with pytest.raises(attn.BindingError):
        kernels._execute("fwd", {"doc": doc}, {"slope": 1.0})
    assert binding.kept == [doc]


def test_a_capture_takes_what_a_call_before_it_has_bound(monkeypatch):
    kernels = object.__new__(Kernels)
    kernels._captured, kernels._bound = {}, {}
    kernels._rank = SimpleNamespace(bind=lambda *_: object())
    tensors = {"q": torch.zeros(2, 3)}
    with pytest.raises(attn.BindingError, match="call it once before the capture"):
        kernels._binding("fwd", True, tensors, {})
    bound = kernels._binding("fwd", False, tensors, {})
    assert all(kernels._binding("fwd", True, tensors, {}) is bound for _ in range(2))
    assert kernels._binding("fwd", False, tensors, {}) is not bound


class Reasons:
    def __init__(self):
        self.all = []

    def note(self, why):
        self.all.append(why)


def test_a_rank_goes_on_only_when_the_others_failed_too(group):
    steps = calls(group, seconds=SOON)
    steps[0].refuse(attn.BindingError("q is no tensor"))
    reasons = Reasons()
    steps[0].add(reasons.note)
    for _ in range(2):
        with pytest.raises(attn.NcclError, match="call 1 failed on rank 0, but not on rank 1 within 0.2 s"):
            run(steps[0])
    assert len(reasons.all) == 1
    later = calls(group)
    later[0].refuse(attn.BindingError("q is no tensor"))
    run(later[1])
    later[1].refuse(attn.BindingError("k is no tensor"))
    with pytest.raises(attn.NcclError, match="call 1 failed on rank 0, but not on rank 1"):
        run(later[0])


def test_captured_calls_are_not_counted(group):
    steps = calls(group)
    with pytest.raises(ValueError), steps[0].call(counts=False):
        raise ValueError
    assert run(steps[0]) == "done"


def test_a_store_that_is_gone_is_not_forever_waited_for(group, monkeypatch):
    (steps, *_), now = calls(group), [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def fails(*_):
        raise RuntimeError("connection was closed")

    monkeypatch.setattr(boards, "_lost", fails)
    for then, why in ((0.0, None), (15.0, None), (30.0, "connection was closed")):
        now[0] = then
        found = steps.in_vain()
        assert found is None if why is None else why in found, then
    (steps, *_) = calls(group)
    for then in (30.0, 45.0, 90.0, 105.0):  # waits of their own
        now[0] = then
        assert steps.in_vain() is None


def test_groups_that_are_gone_leave_no_news(group, monkeypatch):
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    store = group[0]
    steps = calls(group)
    before = store.num_keys()
    for each in steps:
        each.end("tests end")
    assert store.num_keys() == before + 4  # of each rank, and how many there were
    assert all(group[1][0].read(f"calls/x/{rank}") for rank in range(3))
    del steps, each
    assert not any(group[1][0].read(f"calls/x/{rank}") for rank in range(3))


def test_the_store_of_a_group_that_was_destroyed_is_not_read(group, monkeypatch):
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    steps, asked = calls(group), []
    monkeypatch.setattr(Board, "read", lambda board, key: asked.append(key))
    del steps
    assert not asked


@pytest.mark.parametrize("settings, register, refused", [
    ("", None, False), ("expandable_segments:False", None, False), ("expandable_segments:True", "0", False),
    ("max_split_size_mb:64, expandable_segments: True", None, True), ("expandable_segments:True", "1", True)])
def test_graphs_are_refused_where_nccl_would_hang(monkeypatch, settings, register, refused):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", settings)
    if register is not None:
        monkeypatch.setenv("NCCL_GRAPH_REGISTER", register)
    if refused:
        with pytest.raises(attn.Unsupported, match="NCCL_GRAPH_REGISTER=0"):
            check_graphs()
    else:
        check_graphs()
