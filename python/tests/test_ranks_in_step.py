"""What ranks tell each other through a store: no answer is stale, no key is left, and a call that fails on one
rank is an error of all. Ranks are threads, and the time of lost ranks is told by the tests."""

import pickle
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
from attn.torch.board import BEAT, SILENCE, Board  # noqa: E402
from attn.torch.group import Group  # noqa: E402
from attn.torch.meeting import Meetings  # noqa: E402
from attn.torch.ranked import Kernels, check_graphs  # noqa: E402
from attn.torch.steps import Steps  # noqa: E402

SOON = 0.2  # seconds


@pytest.fixture
def group(monkeypatch):
    """Boards of three ranks, which show no signs of life by themselves."""
    monkeypatch.setattr(Board, "_beat", lambda self: None)
    monkeypatch.setattr(meeting, "_MORE", 0.0)
    store = dist.HashStore()
    return store, [Board(store, rank, 3) for rank in range(3)]


@pytest.fixture
def clock(monkeypatch):
    """The time by which ranks are lost; `sleep` sets it forward."""
    told = SimpleNamespace(now=1000.0)
    told.monotonic = lambda: told.now
    told.sleep = lambda seconds: setattr(told, "now", told.now + seconds)
    monkeypatch.setattr(boards, "time", told)
    return told


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


def words(meetings, ranks=range(3), about="words", seconds=5.0):
    return in_ranks(ranks, lambda rank: meetings[rank].hold(about, rank, seconds))


def group_of(board):
    """As attentions have it, without a process group."""
    here = object.__new__(Group)
    here.rank, here.size, here.device = board.rank, board.size, torch.device("cuda", board.rank)
    here.seconds, here._meetings, here._refused = 5.0, Meetings(board), None
    return here


def test_all_hear_the_words_of_all(group):
    meetings = [Meetings(board) for board in group[1]]
    for _ in range(3):
        assert words(meetings) == [[0, 1, 2]] * 3


def test_an_error_of_rank_0_is_that_of_all(group):
    def refuse():
        raise attn.BindingError("the words are wrong", ["a note"])

    for error in in_ranks(range(3), lambda rank: group_of(group[1][rank]).of_rank_0(refuse)):
        assert type(error) is attn.BindingError and error.notes == ("a note",), error
        assert error.message == "the words are wrong"


def test_nobody_hears_the_answer_to_a_question_that_was_given_up(group):
    meetings = [Meetings(board) for board in group[1]]
    for error in words(meetings, ranks=(1, 2), seconds=SOON):
        assert isinstance(error, attn.NcclError) and "rank 0 did not come within 0.2 s" in str(error)
    (error,) = words(meetings, ranks=(0,), seconds=SOON)
    assert isinstance(error, attn.NcclError) and "rank 1 did not come within 0.2 s, nor did 1 more" in str(error)
    for error in words(meetings, ranks=(0, 2), seconds=SOON):
        assert isinstance(error, attn.NcclError), error
    assert words(meetings, about="others") == [[0, 1, 2]] * 3
    again = [Meetings(board) for board in group[1]]  # as in another life of the group
    assert words(again) == [[0, 1, 2]] * 3


def test_a_library_that_one_rank_lacks_is_an_error_of_all(group, monkeypatch):
    def runtime(device):
        if device == 1:
            raise attn.CompilerError("cuDNN was not found")

    monkeypatch.setattr(_libattn, "runtime", runtime)
    for error in in_ranks(range(3), lambda rank: Kernels(group_of(group[1][rank]), b"", Steps(group[1][rank]))):
        assert type(error) is attn.CompilerError and "cuDNN was not found" in str(error), error


def test_an_answer_counts_even_if_it_cannot_be_removed(group, monkeypatch):
    def fails(key):
        raise attn.NcclError("the group's store does not answer", (), "nccl")

    monkeypatch.setattr(group[1][1], "remove", fails)
    meetings = [Meetings(board) for board in group[1]]
    for _ in range(2):
        assert words(meetings) == [[0, 1, 2]] * 3


def test_ranks_that_ask_for_different_things_are_told_and_can_meet_again(group):
    meetings = [Meetings(board) for board in group[1]]
    about = ("a file", "a file", "a spec")
    for error in in_ranks(range(3), lambda rank: meetings[rank].hold(about[rank], rank, 5.0)):
        assert isinstance(error, attn.NcclError), error
        assert "rank 0 asks about a file, but rank 2 about a spec" in str(error)
    assert words(meetings) == [[0, 1, 2]] * 3


def test_meetings_leave_no_keys_but_those_of_each_rank_and_the_last_answer(group, monkeypatch):
    monkeypatch.setattr(meeting, "_PART", 500)
    store, board = group
    meetings = [Meetings(each) for each in board]
    assert words(meetings) == [[0, 1, 2]] * 3
    kept = store.num_keys()
    assert kept == 8, "a state and a question of each rank, the name of the life, and one answer"
    made = bytes(range(256)) * 4
    for _ in range(3):
        found = in_ranks(range(3), lambda rank: meetings[rank].hold("x", made if rank == 0 else None, 5.0, 10.0))
        assert found == [[made, None, None]] * 3
        assert store.num_keys() == kept + 2
    assert words(meetings) == [[0, 1, 2]] * 3
    assert store.num_keys() == kept


def test_words_that_are_equal_are_sent_once(group):
    store, board = group
    meetings = [Meetings(each) for each in board]
    word = {"the spec": "x" * 1000}
    for same in (True, False):
        assert in_ranks(range(3), lambda rank: meetings[rank].hold("x", [word, rank * (not same)], 5.0)) == [
            [[word, rank * (not same)] for rank in range(3)]] * 3
        (key,) = meetings[0]._said
        assert (len(board[0].read([key])[0]) < 2000) == same


def asking(name, word):
    return pickle.dumps((name, "words", pickle.dumps(word)))


def test_a_rank_that_gives_up_while_rank_0_hears_the_others_is_missed(group):
    board = answered(group[1])
    board[1].write(boards.question_of(1), asking("name", 1))
    heard, read = [], board[0].read

    def read_and_lose(keys):
        found = read(keys)
        if any(found) and not heard:  # rank 1 has asked, and rank 2 will
            heard.append(found)
            board[1].write(boards.question_of(1), b"")
            board[2].write(boards.question_of(2), asking("other", 2))
        return found

    board[0].read = read_and_lose
    with pytest.raises(attn.NcclError, match="rank 1 did not come within 0.2 s$|rank 1 did not come within 0.2 s\n"):
        Meetings(board[0]).hold("words", 0, SOON)
    assert heard


def answered(board):
    """As after a meeting."""
    for each in board:
        assert each.find_life() == board[0].find_life()
        each.is_answered = True
        each.tell()
    return board


def end(board, failed=False):
    """As a process does."""
    board._over.set()
    board._failed = failed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "is_initialized", lambda: False)
        BEATING(board)


BEATING = Board._beat


def lost(board, awaited=()):
    return board.lost(board.states(), awaited)


def watch(board, clock, seconds, *living):
    """What it finds lost meanwhile."""
    found = None
    for _ in range(round(seconds / BEAT)):
        for each in living:
            each.tell()
        found = lost(board) or found
        clock.now += BEAT
    return found


def test_a_rank_without_signs_of_life_is_lost_until_it_shows_itself_again(group, clock):
    board = answered(group[1])
    assert watch(board[2], clock, 0.9 * SILENCE, board[0]) is None
    assert watch(board[2], clock, 3 * BEAT, board[0]) == "rank 1 is lost: it gave no sign of life for 20 s"
    error, = in_ranks([2], lambda rank: Meetings(board[rank]).hold("x", 0, 60.0))
    assert isinstance(error, attn.NcclError) and "rank 1 is lost: it gave no sign of life for 20 s" in str(error)
    board[1].tell()
    assert lost(board[2]) is None
    end(board[0], failed=True)
    assert lost(board[2]) == "rank 0 is lost: its process ended with an exception"
    assert watch(board[1], clock, 2 * SILENCE, board[2]) == "rank 0 is lost: its process ended with an exception"


def test_a_rank_that_has_not_come_is_not_lost(group, clock):
    assert watch(group[1][0], clock, 2 * SILENCE) is None
    board = answered(group[1])
    assert "is lost" in watch(board[0], clock, 2 * SILENCE)


def test_a_process_that_stood_still_does_not_call_another_one_lost(group, clock):
    board = answered(group[1])
    assert watch(board[0], clock, BEAT) is None
    clock.now += 1000.0
    assert watch(board[0], clock, 0.9 * SILENCE) is None
    assert watch(board[0], clock, 3 * BEAT) == "rank 1 is lost: it gave no sign of life for 20 s"


def test_a_rank_that_has_met_others_is_missed(group, monkeypatch, clock):
    """A rank looks at the others while it waits for them alone, so silence counts from then on."""
    monkeypatch.setattr(clock, "sleep", time.sleep)
    meetings = [Meetings(board) for board in group[1]]
    assert words(meetings) == [[0, 1, 2]] * 3
    begin = clock.now
    monkeypatch.setattr(clock, "sleep", lambda seconds: setattr(clock, "now", clock.now + seconds))
    with pytest.raises(attn.NcclError, match="rank 1 is lost: it gave no sign of life for 20 s"):
        meetings[0].hold("x", 0, 600.0)
    assert SILENCE <= clock.now - begin < SILENCE + 3 * boards._ASKING


def test_signs_go_on_when_the_store_did_not_answer_once(monkeypatch):
    monkeypatch.setattr(boards, "BEAT", 0.01)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    signs = []

    def tell(self):
        signs.append(self.rank)
        if len(signs) == 2:
            raise attn.NcclError("the group's store does not answer", (), "nccl")

    monkeypatch.setattr(Board, "tell", tell)
    board = Board(dist.HashStore(), 0, 2)
    assert board.wait(lambda: len(signs) > 4 or None, 5.0, lambda: None)
    board.close()


def test_signs_end_when_the_store_does_not_answer_any_more(monkeypatch):
    monkeypatch.setattr(boards, "BEAT", 0.01)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    signs = []

    def tell(self):
        signs.append(self.rank)
        raise attn.NcclError("the group's store does not answer", (), "nccl")

    monkeypatch.setattr(Board, "tell", tell)
    board = Board(dist.HashStore(), 0, 2)
    board._thread.join()
    assert len(signs) == boards._TRIES, "nor is its end told"
    board.close()


def test_signs_are_given_while_a_board_is_open(monkeypatch):
    monkeypatch.setattr(boards, "BEAT", 0.01)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    store = dist.HashStore()
    board = answered([Board(store, rank, 2) for rank in range(2)])
    first = board[0].states()[1].sign
    assert board[0].wait(lambda: board[0].states()[1].sign != first or None, 5.0, lambda: None)
    monkeypatch.setattr(sys, "last_type", ValueError, raising=False)  # printed once, by an interactive Python
    board[0].close()
    assert lost(board[1]) is None, "it is a good end"
    assert lost(board[1], [0]) == "rank 0 is lost: it has ended"
    monkeypatch.setattr(boards, "_boards", {board[1]})
    boards._close_all()
    assert lost(board[0]) == "rank 1 is lost: its process ended with an exception"


def test_a_rank_that_has_ended_well_is_lost_to_those_alone_who_wait_for_it(group, clock):
    board = answered(group[1])
    end(board[1])
    assert watch(board[0], clock, 3 * SILENCE, board[0], board[2]) is None
    assert watch(board[2], clock, 3 * SILENCE, board[0], board[2]) is None
    assert lost(board[0], [2]) is None
    assert lost(board[0], [1, 2]) == "rank 1 is lost: it has ended"
    assert board[0].wait(iter([None, "said before"]).__next__, 5.0, lambda: "lost") == "said before"
    for rank in (0, 2):
        error, = in_ranks([rank], lambda rank: Meetings(board[rank]).hold("words", rank, 600.0))
        assert isinstance(error, attn.NcclError) and "is lost" in str(error), error
    assert "rank 1 is lost: it has ended" in str(in_ranks([0], lambda _: Meetings(board[0]).hold("x", 0, 600.0))[0])


def test_an_ended_rank_that_shows_itself_again_is_not_lost(group):
    """As another process of the rank does."""
    store, board = group[0], answered(group[1])
    for _ in range(2):
        end(board[1])
        assert lost(board[2], [1]) == "rank 1 is lost: it has ended"
        board[1] = Board(store, 1, 3)
        board[1].find_life()
        board[1].tell()
        assert lost(board[2], [1]) is None
        board[1].is_answered = True


@pytest.mark.parametrize("failed", [False, True])
def test_the_end_of_a_rank_that_was_never_answered_is_not_that_of_a_later_one(group, clock, failed):
    """But if no other process of the rank shows itself, it is missed."""
    store, board = group
    late = board[1]
    late.find_life()
    again = answered([Board(store, rank, 3) for rank in range(3)])
    late.find_life()
    late.tell()
    end(late, failed)
    assert lost(again[2], [1]) is None
    assert watch(again[2], clock, 2 * SILENCE, again[0], again[1]) is None
    assert "rank 1 is lost: it gave no sign" in watch(again[2], clock, 2 * SILENCE, again[0])


@pytest.mark.parametrize("made", [1, 2])
def test_an_ended_rank_is_lost_to_calls_that_it_did_not_make(group, made):
    steps = calls(group)
    for each in [*steps[:2] * 2, *steps[2:] * made]:
        assert run(each) == "done"
    assert steps[0].in_vain() is None
    end(group[1][2])
    if made == 2:
        assert steps[0].in_vain() is None
        with steps[0].opening():
            assert steps[0].in_vain() == "rank 2 is lost: it has ended after call 2"
    else:
        assert steps[0].in_vain() == "rank 2 is lost: it has ended after call 1"


def test_nothing_of_an_earlier_life_counts(group):
    """A store that outlives its ranks: questions, signs and losses of theirs are still there."""
    store, board = group
    end(answered(board)[1], failed=True)
    assert "rank 1 is lost" in lost(board[2])
    board[2].write(boards.question_of(2), asking("old", 10**6))
    late = [Board(store, rank, 3) for rank in (1, 2)]  # before rank 0
    found = {}

    def others():
        found.update(enumerate(in_ranks((0, 1), lambda place: Meetings(late[place]).hold("words", place + 1, 20.0))))

    thread = threading.Thread(target=others)
    thread.start()
    time.sleep(1.2)  # a loss would be asked for
    first = Board(store, 0, 3)
    assert Meetings(first).hold("words", 0, 20.0) == [0, 1, 2]
    thread.join()
    assert found == {0: [0, 1, 2], 1: [0, 1, 2]}


def calls(group, seconds=5.0):
    made = [Steps(board) for board in answered(group[1])]
    for each in made:
        each.seconds = seconds
    return made


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
        assert [each.in_vain() for each in steps] == [None] * 3, "though some still have told what failed"
    for board in group[1]:
        board.tell()
    assert not any(state.failed for state in group[1][0].states().values()), "what is settled is not told for ever"


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
    for rank in (1, 2):
        for _ in range(2):
            with pytest.raises(attn.NcclError, match="call 2 failed on rank 1 alone: ValueError: no memory"):
                run(steps[rank])
    assert run(steps[0]) == "done"  # it only enqueues it; while it waits, it is told
    assert "rank 1" in steps[0].in_vain()
    with pytest.raises(attn.NcclError, match="rank 1"):
        run(steps[0])


def test_a_rank_hears_what_failed_before_it_came(group):
    late, early, _ = calls(group, SOON)
    with pytest.raises(ValueError):
        run(early, ValueError("no memory"))
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


def test_ranks_of_which_each_failed_in_another_call_are_told(group, clock):
    steps = calls(group, seconds=600.0)
    steps[0].refuse(attn.BindingError("q is no tensor"))
    run(steps[1])
    steps[1].refuse(attn.BindingError("k is no tensor"))
    begin = clock.now
    for rank in (1, 0):
        with pytest.raises(attn.NcclError, match="call 1 failed on rank 0 alone: BindingError: q is no tensor"):
            run(steps[rank])
    assert clock.now - begin < 5 * boards._ASKING


def test_a_rank_whose_call_failed_does_not_wait_for_one_that_has_ended(group, clock):
    steps = calls(group, seconds=600.0)
    end(group[1][2])
    steps[0].refuse(attn.BindingError("q is no tensor"))
    begin = clock.now
    with pytest.raises(attn.NcclError, match="rank 2 is lost: it has ended after call 0"):
        run(steps[0])
    assert clock.now - begin < 5 * boards._ASKING


def test_captured_calls_are_not_counted(group):
    steps = calls(group)
    with pytest.raises(ValueError), steps[0].call(counts=False):
        raise ValueError
    assert run(steps[0]) == "done"


def test_the_calls_of_one_rank_alone_need_no_others():
    steps = Steps(Board(dist.HashStore(), 0, 1))
    steps.refuse(attn.BindingError("q is no tensor"))
    assert run(steps) == "done"


def test_a_store_that_is_gone_is_not_forever_waited_for(group, monkeypatch):
    steps, now = calls(group)[0], [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def fails(*_):
        raise RuntimeError("connection was closed")

    monkeypatch.setattr(steps.board, "_store", SimpleNamespace(multi_get=fails, set=fails))
    for then, why in ((0.0, None), (15.0, None), (30.0, "connection was closed")):
        now[0] = then
        found = steps.in_vain()
        assert found is None if why is None else why in found, then
    again = Steps(steps.board)
    for then in (30.0, 45.0, 90.0, 105.0):  # waits of their own
        now[0] = then
        assert again.in_vain() is None


def test_calls_leave_no_keys(group):
    steps = calls(group)
    before = group[0].num_keys()
    for each in steps:
        each.refuse(attn.BindingError("q is no tensor"))
        each.end("tests end")
    assert group[0].num_keys() == before


def test_many_ranks_do_not_ask_the_store_all_the_time(group, clock, monkeypatch):
    steps = calls(group)[0]
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    monkeypatch.setattr(steps.board, "size", 1024)
    asked = []
    monkeypatch.setattr(steps.board, "states", lambda: asked.append(clock.now) or {})
    for _ in range(16):
        steps.in_vain()
        clock.now += 1.0
    assert len(asked) == 2


@pytest.mark.parametrize("settings, register, refused", [
    ("", None, False), ("expandable_segments:False", None, False), ("expandable_segments:True", "0", False),
    ("max_split_size_mb:64, expandable_segments: True", None, True), ("expandable_segments:True", "1", True)])
def test_graphs_are_refused_where_nccl_would_hang(monkeypatch, settings, register, refused):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", settings)
    if register is not None:
        monkeypatch.setenv("NCCL_GRAPH_REGISTER", register)
    if refused:
        with pytest.raises(attn.UnsupportedError, match="NCCL_GRAPH_REGISTER=0"):
            check_graphs()
    else:
        check_graphs()
