"""Builds the compiled kernel and names the command; everything else about the distribution stands in pyproject.toml."""

import runpy
import sys
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from Cython.Compiler.Options import extra_warnings
from setuptools import Extension, setup

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    sys.exit(
        "rmqclient needs a Python with the GIL: this is a free-threaded build, in which its handles are not safe for "
        "threads. Use the usual build of the same version; a process of it uses every core with `rmq run`."
    )

STORE = Path("rmqclient", "store")  # by the name under which it is installed
PARTS = STORE / "kernel"

runpy.run_path(str(PARTS / "constants.py"))["write"](STORE, PARTS / "constants.pxi")

KERNEL = Extension(
    "rmqclient.store.kernel._kernel",
    sources=[str(PARTS / "_kernel.pyx")],
    depends=sorted(str(path) for pattern in ("*.pxi", "*.h") for path in PARTS.rglob(pattern)),  # for an sdist
    extra_compile_args=["-O3", "-g0", "-pthread"],  # what Python was built with asks for debug information
    extra_link_args=["-pthread"],
)

setup(
    scripts=[str(Path("rmqclient", "workers", "rmq"))],  # an entry point would import before its first line
    ext_modules=cythonize(
        [KERNEL],
        language_level=3,
        compiler_directives=extra_warnings,  # what ``cython -Wextra`` turns on
    ),
)
