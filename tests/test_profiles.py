"""The profiles of the benchmarks: what perf says is read, and each work runs. What is slow does not matter here."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.profiling.__main__ import PAGE, main
from benchmarks.profiling.recording import profile, why_not
from benchmarks.profiling.works import WORKS

REPORT = """
    28.12%|[kernel.kallsyms]|[k] clear_page_erms
    17.50%|_kernel.cpython-311-x86_64-linux-gnu.so|[.] __pyx_pw_9rmqclient_5store_6kernel_7_kernel_8Appender_5append
    40.00%|python3.11|[.] _PyEval_EvalFrameDefault
    13.88%|libc.so.6|[.] __memmove_avx_unaligned_erms
     0.50%|python3.11|[.] PyObject_Free
"""


def test_each_function_belongs_to_a_part_of_the_system() -> None:
    found = profile("Send", 100, REPORT)
    assert found.parts == {"Linux": 28.12, "our kernel": 17.5, "the interpreter": 40.5, "libraries": 13.88}
    assert [each.name for each in found.functions][:2] == ["clear_page_erms", "Appender_append"]
    assert len(found.functions) == 4, "the last one has less than a hundredth"


@pytest.mark.sweep
@pytest.mark.parametrize("name", WORKS)
def test_a_work_is_profiled_and_shown_and_the_page_of_all_stays(name: str) -> None:
    if reason := why_not():
        pytest.skip(reason)
    before = PAGE.read_bytes()
    answer = CliRunner().invoke(main, [name, "--count", "2000"], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    assert f"## {WORKS[name].title}" in answer.output
    assert "the interpreter" in answer.output
    assert PAGE.read_bytes() == before


@pytest.mark.sweep
def test_the_page_goes_where_it_is_to(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    page = tmp_path / "profiles.md"
    answer = CliRunner().invoke(main, ["send", "--count", "2000", "--page", str(page)], catch_exceptions=False)
    assert (answer.exit_code, answer.output) == (0, "")
    assert "## Send, each answered" in page.read_text(encoding="utf-8")
