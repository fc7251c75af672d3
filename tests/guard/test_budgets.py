"""What one tenant may take of what all share."""

from __future__ import annotations

import random

from otel_specdecode.guard.budgets import Budgets
from otel_specdecode.guard.policy import Budget


def test_without_numbers_everybody_takes_what_he_likes_and_nobody_is_kept() -> None:
    budgets = Budgets(Budget(), 10)
    for number in range(100):
        budgets.begin(f"t{number}", 0.0)
        budgets.spend(f"t{number}", 10**12, 0.0)
        assert budgets.allows(f"t{number}", number, 0.0)
    assert not budgets._accounts


def test_a_tenant_alone_may_have_all_streams() -> None:
    budgets = Budgets(Budget(share_of_streams=0.5), 10)
    for running in range(5):
        assert budgets.allows("a", running, 0.0)
        budgets.begin("a", 0.0)


def test_a_share_of_streams_binds_where_there_are_others_and_leaves_each_a_first_one() -> None:
    budgets = Budgets(Budget(share_of_streams=0.25), 10)
    budgets.begin("a", 0.0)
    assert budgets.allows("b", 1, 0.0)
    budgets.begin("b", 0.0)
    assert not budgets.allows("a", 2, 0.0)
    assert budgets.allows("a", 7, 0.0)
    budgets.end("b")
    assert budgets.allows("a", 1, 0.0)


def test_streams_that_ended_are_given_back_once() -> None:
    budgets = Budgets(Budget(share_of_streams=0.5), 10)
    budgets.begin("a", 0.0)
    for _ in range(3):
        budgets.end("a")
    budgets.end("never seen")
    assert budgets._accounts["a"].streams == 0
    budgets.begin("a", 0.0)
    budgets.begin("a", 0.0)
    budgets.end_all()
    assert budgets._accounts["a"].streams == 0


def test_draft_tokens_of_a_minute_fill_up_again() -> None:
    budgets = Budgets(Budget(draft_tokens_per_minute=600), 10)
    assert budgets.allows("a", 0, 0.0)
    budgets.spend("a", 600, 0.0)
    assert not budgets.allows("a", 0, 0.0)
    assert budgets.allows("b", 0, 0.0)
    assert budgets.allows("a", 0, 1.0)


def test_a_debt_is_a_minute_at_most() -> None:
    budgets = Budgets(Budget(draft_tokens_per_minute=600), 10)
    budgets.spend("a", 10**9, 0.0)
    assert not budgets.allows("a", 0, 60.0)
    assert budgets.allows("a", 0, 60.1)


def test_a_clock_that_jumps_neither_fills_nor_locks_an_account() -> None:
    budgets = Budgets(Budget(draft_tokens_per_minute=600), 10)
    budgets.spend("a", 900, 1e6)
    assert not budgets.allows("a", 0, 0.0)
    assert not budgets.allows("a", 0, 29.0)
    assert budgets.allows("a", 0, 31.0)
    assert budgets._account("a", 1e12).left == 600


def test_only_so_many_accounts_are_kept() -> None:
    budgets = Budgets(Budget(draft_tokens_per_minute=600), 10)
    for number in range(1000):
        budgets.spend(f"t{number}", 1, 0.0)
    assert len(budgets._accounts) == 10


def test_who_owes_or_runs_is_kept_while_there_are_others() -> None:
    budgets = Budgets(Budget(share_of_streams=0.5, draft_tokens_per_minute=600), 10)
    budgets.spend("owes", 1200, 0.0)
    budgets.begin("runs", 0.0)
    for number in range(1000):
        budgets.spend(f"t{number}", 20, 0.05 * number)
    assert not budgets.allows("owes", 1, 50.0)
    assert budgets._accounts["runs"].streams == 1
    assert len(budgets._accounts) == 10


def test_among_those_that_owe_the_one_that_owes_least_is_forgotten_and_those_that_run_last() -> None:
    budgets = Budgets(Budget(draft_tokens_per_minute=600), 10)
    budgets.begin("runs", 0.0)
    for number in range(100):
        budgets.spend(f"t{number:02}", 600 + number, 0.0)
    assert sorted(budgets._accounts) == ["runs", *(f"t{number}" for number in range(91, 100))]


def test_a_tenant_whose_stream_ended_is_forgotten_like_any_other() -> None:
    budgets = Budgets(Budget(share_of_streams=0.5), 3)
    for tenant in "abc":
        budgets.begin(tenant, 0.0)
    budgets.begin("d", 1.0)
    assert len(budgets._accounts) == 3
    budgets.end("c")
    budgets.begin("e", 2.0)
    assert "c" not in budgets._accounts
    budgets.end_all()
    budgets.begin("f", 3.0)
    assert sorted(budgets._accounts) == ["d", "e", "f"]


def test_the_queue_of_accounts_is_bounded_whatever_tenants_do() -> None:
    dice, budgets = random.Random(7), Budgets(Budget(share_of_streams=0.5, draft_tokens_per_minute=600), 20)
    for step in range(20_000):
        tenant = f"t{dice.randrange(40)}"
        act = dice.randrange(4)
        if act == 0:
            budgets.spend(tenant, dice.randrange(900), step / 10)
        elif act == 1:
            budgets.begin(tenant, step / 10)
        elif act == 2:
            budgets.end(tenant)
        else:
            budgets.allows(tenant, 3, step / 10)
        assert len(budgets._accounts) <= 20
        assert len(budgets._queue) <= 2 * 20 + 64
