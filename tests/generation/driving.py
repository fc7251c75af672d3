"""What a consumer may do to a generator, in any order, and what it gets: a watched one is compared with a bare one."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from hypothesis import strategies as st

Operation = tuple[str, Any]
OPERATIONS = st.lists(
    st.one_of(
        st.just(("next", None)),
        st.just(("close", None)),
        st.tuples(st.just("send"), st.integers(0, 2)),
        st.tuples(st.just("throw"), st.sampled_from([LookupError, KeyboardInterrupt, StopIteration, GeneratorExit])),
    ),
    max_size=9,
)


def drive(stream: Generator[Any, Any, None], operations: list[Operation]) -> list[object]:
    """Apply operations to a generator; return what each gave or raised."""
    trace: list[object] = []
    for name, value in operations:
        try:
            if name == "next":
                trace.append(next(stream))
            elif name == "send":
                trace.append(stream.send(value))
            elif name == "throw":
                trace.append(stream.throw(value("thrown")))
            else:
                trace.append(stream.close())
        except BaseException as error:
            trace.append((type(error), str(error)))
    return trace
