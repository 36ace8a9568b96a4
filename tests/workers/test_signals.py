"""Signals as bytes in a pipe, and signals held back."""

from __future__ import annotations

import select
import signal

from rmqclient.workers.processes import signals
from rmqclient.workers.processes.signals import SignalPipe


def test_a_signal_makes_the_pipe_readable_and_is_read_once() -> None:
    with SignalPipe(signal.SIGUSR1, signal.SIGUSR2) as pipe:
        # Given a pipe that has taken over two signals
        pipe.install()
        assert pipe.read() == []

        # When both arrive
        signal.raise_signal(signal.SIGUSR2)
        signal.raise_signal(signal.SIGUSR1)

        # Then they are read in order, once
        assert select.select([pipe], [], [], 0)[0] == [pipe]
        assert pipe.read() == [signal.SIGUSR2, signal.SIGUSR1]
        assert pipe.read() == []


def test_signals_of_others_are_not_reported() -> None:
    former = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        with SignalPipe(signal.SIGUSR1) as pipe:
            pipe.install()
            signal.raise_signal(signal.SIGUSR2)
            assert pipe.read() == []
    finally:
        signal.signal(signal.SIGUSR2, former)


def test_the_former_handlers_come_back() -> None:
    former = signal.getsignal(signal.SIGUSR1)
    with SignalPipe(signal.SIGUSR1) as pipe:
        pipe.install()
        assert signal.getsignal(signal.SIGUSR1) is not former
    assert signal.getsignal(signal.SIGUSR1) is former


def test_a_signal_that_was_held_back_arrives_afterwards() -> None:
    with SignalPipe(signal.SIGTERM) as pipe:
        pipe.install()
        with signals.blocked():
            signal.raise_signal(signal.SIGTERM)
            assert pipe.read() == []
        assert pipe.read() == [signal.SIGTERM]
