"""The tests of tests/interop/cluster/behaviour/test_application.py, on a server."""

from __future__ import annotations

from tests.interop.cluster.behaviour.test_application import *  # noqa: F403 - every test of that file
