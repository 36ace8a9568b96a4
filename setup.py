"""Builds the compiled kernel; everything else about the distribution stands in pyproject.toml."""

from pathlib import Path

from Cython.Build import cythonize
from Cython.Compiler.Options import extra_warnings
from setuptools import Extension, setup

KERNEL = Extension(
    "store._kernel",
    sources=["store/_kernel.pyx"],
    depends=[  # for an sdist
        *sorted(map(str, Path("store").glob("*.pxi"))),
        "store/_crc32.h",
        "store/_shared_memory.h",
    ],
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
