"""What a report is, and its JSON."""

from __future__ import annotations

import json

from otel_specdecode.doctor.checks import Check, Report, Section, as_document, section_of

OK = Check("python", "Python", "ok", "CPython 3.12")
WARN = Check("otel.sdk", "SDK", "warn", "no SDK", "install it")
UNKNOWN = Check("host.power_mode", "power mode", "unknown", "no pmset")
ERROR = Check("engine.any", "an engine", "error", "none", "install one")


def report(*checks: Check) -> Report:
    return Report((Section("one", "One", checks),))


def test_only_what_is_broken_makes_the_exit_status_1() -> None:
    assert report(OK, WARN, UNKNOWN).exit_status == 0
    assert report(OK, ERROR).exit_status == 1
    assert report(OK, ERROR).broken == [ERROR]


def test_the_document_has_every_check_with_stable_keys() -> None:
    document = json.loads(json.dumps(as_document(report(OK, ERROR))))
    assert sorted(document) == ["exit_status", "format", "otel_specdecode", "sections"]
    assert document["exit_status"] == 1
    (section,) = document["sections"]
    assert (section["id"], section["title"]) == ("one", "One")
    assert [check["status"] for check in section["checks"]] == ["ok", "error"]
    assert {key for check in section["checks"] for key in check} == {"id", "title", "status", "detail", "fix", "facts"}


def test_a_part_that_breaks_down_is_told_and_breaks_nothing_else() -> None:
    def broken() -> list[Check]:
        raise KeyError("/Users/maria/secret")

    section = section_of("host", "Host", broken)
    (check,) = section.checks
    assert (check.id, check.status) == ("host.failed", "warn")
    assert "KeyError" in check.detail
    assert "maria" not in check.detail
