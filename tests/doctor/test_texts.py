"""Texts of others cannot steer a terminal."""

from __future__ import annotations

from otel_specdecode.doctor.checks import Check
from otel_specdecode.doctor.texts import one_line, printable


def test_what_does_not_print_is_written_as_an_escape_and_line_breaks_stay() -> None:
    assert printable("a\x1b[31m\u202eb\ud800\x85\r\n\U0001f999é") == r"a\x1b[31m\u202eb\ud800\x85\x0d" + "\n\U0001f999é"


def test_one_line_is_one_line_and_not_a_long_one() -> None:
    assert one_line("a\nb\u2028c") == r"a\x0ab\u2028c"
    assert len(one_line("x" * 5000)) < 310


def test_no_check_holds_a_text_that_steers_a_terminal() -> None:
    check = Check("id", "\x1btitle", "ok", "\u202edetail", "fix\x07")
    assert (check.title, check.detail, check.fix) == (r"\x1btitle", r"\u202edetail", r"fix\x07")
