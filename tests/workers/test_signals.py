"""Signals as bytes in a pipe, and signals held back."""

from __future__ import annotations

import os
import select
import signal
import threading

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


def test_a_signal_to_a_forked_child_ends_the_child_and_is_not_told_to_its_parent() -> None:
    # Given a pipe that has taken over SIGTERM, and a child that a thread forks, as a handler's thread does
    ends: list[int] = []
    with SignalPipe(signal.SIGTERM) as pipe:
        pipe.install()

        def fork() -> None:
            child = os.fork()
            if child == 0:
                os.kill(os.getpid(), signal.SIGTERM)
                os._exit(0)
            ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

        # When the child gets SIGTERM
        forking = threading.Thread(target=fork)
        forking.start()
        forking.join()

        # Then it ends, and the parent has got no signal
        assert ends == [-signal.SIGTERM]
        assert pipe.read() == []


def test_a_forked_child_keeps_what_others_do_with_signals() -> None:
    # Given a handler of somebody else for a signal that a closed pipe wanted
    pipe = SignalPipe(signal.SIGUSR1)
    with pipe:
        pipe.install()
    former = signal.signal(signal.SIGUSR1, lambda *_: os._exit(7))
    try:
        # When a child gets that signal
        child = os.fork()
        if child == 0:
            signal.raise_signal(signal.SIGUSR1)
            os._exit(0)

        # Then that handler has run
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    finally:
        signal.signal(signal.SIGUSR1, former)


def test_an_ignored_hangup_stays_ignored_and_an_ignored_termination_does_not() -> None:
    former = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        with SignalPipe(signal.SIGHUP, signal.SIGTERM) as pipe:
            pipe.install()
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
            assert pipe.read() == [signal.SIGTERM]
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def test_signals_that_others_took_over_are_taken_back_and_the_first_handlers_come_back_at_the_end() -> None:
    former = signal.getsignal(signal.SIGUSR1)
    with SignalPipe(signal.SIGUSR1) as pipe:
        pipe.install()
        signal.signal(signal.SIGUSR1, lambda *_: os._exit(7))
        signal.set_wakeup_fd(-1)
        pipe.install()
        signal.raise_signal(signal.SIGUSR1)
        assert pipe.read() == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGUSR1) is former
