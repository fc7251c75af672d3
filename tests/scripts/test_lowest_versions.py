"""The constraints for the lowest declared versions."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from scripts.lowest_versions import constraint, main, requirements


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("wrapt>=1.16.0", "wrapt==1.16.0"),
        ("wrapt<3,>=1.16.0", "wrapt==1.16.0"),
        ("mlx[cpu]>=0.29.2; sys_platform == 'linux'", 'mlx==0.29.2; sys_platform == "linux"'),
        ("opentelemetry-instrumentation>=0.58b0", "opentelemetry-instrumentation==0.58b0"),
    ],
)
def test_a_requirement_is_pinned_to_its_lower_bound(requirement: str, expected: str) -> None:
    assert constraint(Requirement(requirement)) == expected


def test_a_requirement_without_lower_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="wrapt<3 has no lower bound"):
        constraint(Requirement("wrapt<3"))


def test_an_extra_of_the_project_itself_is_followed() -> None:
    project = {
        "name": "p",
        "dependencies": ["a>=1"],
        "optional-dependencies": {"x": ["p[y]", "b>=2"], "y": ["c>=3"]},
    }
    assert {constraint(each) for each in requirements(project, ["x"])} == {"a==1", "b==2", "c==3"}


def test_every_run_time_dependency_of_this_project_declares_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mlx", "llama-cpp", "zero-code", "acceptance", "demo"]) == 0
    assert "opentelemetry-api==1.37.0" in capsys.readouterr().out
