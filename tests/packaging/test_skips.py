"""What a run says of the tests that it skipped."""

from __future__ import annotations

from tests.support.host.skips import told


def test_one_line_counts_the_skipped_tests_by_what_would_bring_them() -> None:
    reasons = ["Spark comes with make install-all", "needs root", "no django: make install-all brings it"]
    assert told(reasons) == "skipped: 3 (2: `make install-all` brings what they need; 1: needs root)"


def test_a_run_that_skipped_nothing_says_nothing() -> None:
    assert told([]) == ""
