"""Builds the compiled kernel; everything else about the distribution stands in pyproject.toml."""

from pathlib import Path

from Cython.Build import cythonize
from Cython.Compiler.Options import extra_warnings
from setuptools import Extension, setup

PARTS = Path("rmqclient", "store", "kernel")  # by the name under which it is installed

KERNEL = Extension(
    "rmqclient.store.kernel._kernel",
    sources=[str(PARTS / "_kernel.pyx")],
    depends=sorted(str(path) for pattern in ("*.pxi", "*.h") for path in PARTS.rglob(pattern)),  # for an sdist
    extra_compile_args=["-O3", "-pthread"],
    extra_link_args=["-pthread"],
)

setup(
    ext_modules=cythonize(
        [KERNEL],
        language_level=3,
        compiler_directives=extra_warnings,  # what ``cython -Wextra`` turns on
    )
)
