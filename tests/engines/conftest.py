"""What the tests of both engines share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engines.both import ENGINES, Engine


@pytest.fixture(
    scope="session",
    params=[pytest.param("mlx_lm", marks=pytest.mark.mlx), pytest.param("llama_cpp", marks=pytest.mark.llama_cpp)],
)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Each of the real engines."""
    made = ENGINES[request.param](tmp_path_factory.mktemp(request.param))
    yield made
    made.close()
