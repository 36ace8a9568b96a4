"""The tests of tests/interop/cluster/behaviour/test_consuming.py, on a server."""

from __future__ import annotations

from tests.interop.cluster.behaviour.test_consuming import *  # noqa: F403 - every test of that file
