"""Who watches a piece of code, told by the frames it is called from."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Generator
from typing import Any

import pytest

from otel_specdecode.engines.llama_cpp.frames import DEPTH, Frames


def asking(frames: Frames[str], times: int = 2) -> Generator[str | None, Any, None]:
    """A generator that yields who watches the code it calls."""
    for _ in range(times):
        yield frames.nearest(sys._getframe())


def nested(frames: Frames[str], depth: int) -> str | None:
    """Ask from further down the stack."""
    return frames.nearest(sys._getframe()) if depth == 0 else nested(frames, depth - 1)


def test_code_inside_a_claimed_generator_is_its_owners() -> None:
    """Each time it is resumed; and whoever resumes it is not."""
    frames: Frames[str] = Frames()
    watched = asking(frames)
    frames.claim(watched, "outer")
    assert next(watched) == "outer"
    assert nested(frames, 3) is None
    assert next(watched) == "outer"


def test_without_a_claim_nobody_watches() -> None:
    """Neither before the first claim nor in a generator beside the claimed one."""
    frames: Frames[str] = Frames()
    assert next(asking(frames)) is None
    claimed = asking(frames)
    frames.claim(claimed, "other")
    assert next(asking(frames)) is None


def test_the_nearest_of_several_is_found() -> None:
    """A draft's code runs inside the draft's owner, not the target's around it."""
    frames: Frames[str] = Frames()

    def outer() -> Generator[Any, Any, None]:
        yield list(inner)
        yield frames.nearest(sys._getframe())

    inner = asking(frames)
    around = outer()
    frames.claim(around, "target")
    frames.claim(inner, "draft")
    assert list(around) == [["draft", "draft"], "target"]


def test_whether_code_runs_inside_a_claimed_frame() -> None:
    """runs() answers for owners that are nobody too, which nearest() cannot."""
    frames: Frames[None] = Frames()

    def body() -> Generator[bool, Any, None]:
        yield frames.runs(sys._getframe())

    claimed = body()
    frames.claim(claimed, None)
    assert next(claimed) is True
    assert next(body()) is False
    with frames.claimed(id(sys._getframe()), None):
        assert next(body()) is True
    assert frames.runs(sys._getframe()) is False


def test_a_claimed_function_owns_what_it_calls_in_the_block() -> None:
    """And nothing after it, also where the block raises."""
    frames: Frames[str] = Frames()

    def call(fails: bool) -> None:
        with frames.claimed(id(sys._getframe()), "call"):
            assert nested(frames, 5) == "call"
            if fails:
                raise LookupError
        assert nested(frames, 0) is None

    call(fails=False)
    with pytest.raises(LookupError):
        call(fails=True)
    assert len(frames.held) == 0


def test_a_function_that_calls_itself_claims_each_frame() -> None:
    """A chat whose handler chats: the inner call is the inner owner's."""
    frames: Frames[str] = Frames()

    def call(names: list[str]) -> list[str | None]:
        with frames.claimed(id(sys._getframe()), names[0]):
            inner = call(names[1:]) if names[1:] else []
            return [*inner, nested(frames, 1)]

    assert call(["a", "b", "c"]) == ["c", "b", "a"]


def test_a_generator_resumed_on_another_thread_is_still_its_owners() -> None:
    """As web servers resume them: one thread a chunk."""
    frames: Frames[str] = Frames()
    watched = asking(frames, times=4)
    frames.claim(watched, "stream")
    found: list[str | None] = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: found.append(next(watched)))
        thread.start()
        thread.join()
    assert found == ["stream"] * 3
    assert next(watched) == "stream"


def test_threads_do_not_see_each_other() -> None:
    """What is claimed on one thread's stack says nothing of code on another."""
    frames: Frames[str] = Frames()
    found: list[str | None] = []

    def elsewhere() -> None:
        found.append(nested(frames, 1))

    with frames.claimed(id(sys._getframe()), "here"):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert nested(frames, 1) == "here"
    assert found == [None]


@pytest.mark.parametrize("how", ["exhausted", "closed", "dropped", "collected", "never started"])
def test_a_generator_that_is_gone_is_forgotten(how: str) -> None:
    """By itself, and whoever waits for the last one is told once."""
    emptied: list[str] = []
    frames: Frames[str] = Frames(lambda: emptied.append(how))
    watched = asking(frames)
    frames.claim(watched, "gone")
    assert len(frames.held) == 1
    if how == "exhausted":
        list(watched)
    elif how != "never started":
        next(watched)
    if how == "closed":
        watched.close()
    if how == "collected":
        holder: dict[str, Any] = {"stream": watched}
        holder["self"] = holder
        del holder
    del watched
    gc.collect()
    assert len(frames.held) == 0
    assert emptied == [how]


def test_a_finished_generator_that_is_kept_owns_nothing() -> None:
    """Its frame is gone, and another may have taken that place in memory."""
    frames: Frames[str] = Frames()
    kept = []
    for _ in range(50):
        watched = asking(frames, times=1)
        frames.claim(watched, "finished")
        list(watched)
        kept.append(watched)
    assert all(next(asking(frames)) is None for _ in range(50))
    assert nested(frames, 2) is None


def test_the_last_one_is_told_after_functions_as_well() -> None:
    """Not while another is in flight."""
    emptied: list[int] = []
    frames: Frames[str] = Frames(lambda: emptied.append(len(frames.held)))
    watched = asking(frames)
    frames.claim(watched, "stream")
    with frames.claimed(id(sys._getframe()), "call"):
        pass
    assert emptied == []
    del watched
    assert emptied == [0]
    with frames.claimed(id(sys._getframe()), "call"):
        assert emptied == [0]
    assert emptied == [0, 0]


def test_frames_far_down_are_not_looked_for() -> None:
    """The look up the stack is bounded; what a handler or a draft calls is well within it."""
    frames: Frames[str] = Frames()
    with frames.claimed(id(sys._getframe()), "here"):
        assert nested(frames, DEPTH - 2) == "here"
        assert nested(frames, DEPTH) is None


@pytest.mark.parametrize("how", ["nearest", "runs", "claimed"])
def test_no_frame_is_held(how: str) -> None:
    """What a call holds is freed as it returns, without the collector."""

    class Local:
        pass

    frames: Frames[str] = Frames()
    around = asking(frames)
    frames.claim(around, "around")

    def call() -> weakref.ref[Local]:
        local = Local()
        if how == "claimed":
            with frames.claimed(id(sys._getframe()), "call"):
                pass
        else:
            getattr(frames, how)(sys._getframe())
        return weakref.ref(local)

    gc.collect()
    gc.disable()
    try:
        assert call()() is None
    finally:
        gc.enable()
