"""The profiles of the benchmarks: what perf says is read, and each work runs. What is slow does not matter here."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.profiling.__main__ import main
from benchmarks.profiling.recording import profile, why_not
from benchmarks.profiling.works import WORKS

WHY_NOT = why_not()
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
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
@pytest.mark.parametrize("name", WORKS)
def test_a_work_is_profiled(name: str, tmp_path: Path) -> None:
    page = tmp_path / "profiles.md"
    answer = CliRunner().invoke(main, [name, "--count", "2000", "--page", str(page)], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    text = page.read_text(encoding="utf-8")
    assert f"## {WORKS[name].title}" in text
    assert "the interpreter" in text
