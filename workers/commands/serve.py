"""``rmq serve``: a store for other languages, other hosts and RocketMQ's own tools."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import contextlib
import gc
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rmqclient.workers.console.opening import StoreCannotBeOpened, opening
from rmqclient.workers.console.parameters import refuse, store_of_all, with_log_options
from rmqclient.workers.exit_codes import EXPLAINED

if TYPE_CHECKING:
    from rmqclient.broker.address import Address
    from rmqclient.broker.settings import ServeSettings
    from rmqclient.workers.processes.logs import LogFormat

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(epilog=EXPLAINED)
@click.argument("root", metavar="ROOT", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--listen",
    "listen",
    multiple=True,
    metavar="HOST:PORT",
    default=("127.0.0.1:9876",),
    show_default=True,
    help="Address of the name server and the broker; port 0 picks one; repeatable.",
)
@click.option("--advertise", metavar="HOST:PORT", help="Address in routes.  [default: the one a client connected to]")
@click.option("--ha-listen", metavar="HOST:PORT", help="Address at which replicas follow the log.  [default: nowhere]")
@click.option(
    "--wait-for",
    type=click.Choice(["none", "memory", "disk"]),
    default="none",
    show_default=True,
    help="Where replicas must have a message before its send is answered, from any process.",
)
@click.option("--followers", type=int, default=1, show_default=True, help="How many replicas must have it.")
@click.option(
    "--on-lost",
    type=click.Choice(["refuse", "degrade"]),
    default="refuse",
    show_default=True,
    help="While too few replicas are in sync: refuse sends, or accept them and record what is missing.",
)
@click.option(
    "--replica-timeout-ms", type=int, default=3_000, show_default=True, help="How long a send waits for them."
)
@click.option("--replica", metavar="HOST:PORT", help="Where a replica answers reads, for clients that are far behind.")
@click.option(
    "--memory-percent",
    type=click.IntRange(0, 100),
    default=40,
    show_default=True,
    help="Percent of the host's memory that a client may be behind before it is sent to the replica.",
)
@click.option("--ephemeral", is_flag=True, help="Use a new directory in place of ROOT, and remove it at the end.")
@click.option("--die-with-parent", is_flag=True, help="End when the process that started this one has ended.")
@click.option("--sync", is_flag=True, help="Answer a send when its message is on the disk.")
@click.option("--read-only", is_flag=True, help="Refuse every request that writes.")
@click.option("--acl", "acl_file", type=_FILE, help="File of access keys, and what they may do.")
@click.option("--make-key", metavar="NAME", help="Make an access key: print its secret, and its account for --acl.")
@click.option(
    "--tls",
    "tls_mode",
    type=click.Choice(["disabled", "permissive", "enforcing"]),
    default="permissive",
    show_default=True,
    help="Accept plain connections only, both kinds, or TLS only.",
)
@click.option("--tls-cert", type=_FILE, help="Certificate (PEM).  [default: generated, self-signed]")
@click.option("--tls-key", type=_FILE, help="Its private key (PEM), unless it is in the same file.")
@click.option("--tls-client-ca", type=_FILE, help="Require client certificates signed by these (PEM).")
@click.option("--fail", "failures", multiple=True, metavar="CODE:TIMES:ANSWER", help="For tests, with --ephemeral.")
@click.option(
    "--clock-factor",
    type=click.IntRange(1, 1_000),
    help="For tests, with --ephemeral: seconds of its clock per real second.",
)
@with_log_options
def serve(root: Path | None, make_key: str | None, log_level: str, log_format: LogFormat, **options: Any) -> None:
    """Answer RocketMQ's clients and tools over the store in ROOT, which is created if it does not exist.

    Prints one line of JSON when it is ready. TERM and Ctrl-C let running answers finish; a second one does not wait.
    """
    if make_key is not None:
        refuse(["root", "log_level", "log_format", *options], "beside --make-key, which starts no server")
        from rmqclient.broker.access.accounts import made_account

        click.echo(json.dumps(made_account(make_key)))
        return
    is_ephemeral = options["ephemeral"]
    if root is None and not is_ephemeral and (named := store_of_all(click.get_current_context())):
        root = Path(named)
    if is_ephemeral is (root is not None):
        raise click.UsageError("either ROOT or --ephemeral: the directory of the store, or a new one for this run")
    if options["failures"] and not is_ephemeral:
        raise click.UsageError("--fail is for tests: it needs --ephemeral")
    if options["clock_factor"] is not None and not is_ephemeral:
        raise click.UsageError(
            "--clock-factor is for tests: it needs --ephemeral, since a store that stays has true times"
        )
    if is_ephemeral:
        options["clock_factor"] = options["clock_factor"] or 1
    gc.disable()  # until the server is ready: what it imports stays
    from rmqclient.broker.life.ephemeral import ephemeral_root
    from rmqclient.broker.server import serve as run
    from rmqclient.errors import ReadOnlyReplica, StoreReplaced
    from rmqclient.health.service_manager import ServiceManager
    from rmqclient.workers.processes.logs import configure_logging

    configure_logging(log_level.upper(), log_format)
    with contextlib.ExitStack() as stack:
        manager = stack.enter_context(ServiceManager.of_this_process())
        directory = stack.enter_context(ephemeral_root()) / "store" if root is None else root
        stack.enter_context(opening(directory, contextlib.nullcontext))
        try:
            run(_settings(directory, **options), click.echo, manager)
        except (ReadOnlyReplica, StoreReplaced) as error:  # another try would end the same way
            raise StoreCannotBeOpened(str(error)) from error


def _settings(
    root: Path,
    *,
    listen: tuple[str, ...],
    advertise: str | None,
    ha_listen: str | None,
    ephemeral: bool,
    tls_mode: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    wait_for: str,
    followers: int,
    on_lost: str,
    replica_timeout_ms: int,
    replica: str | None,
    **others: Any,
) -> ServeSettings:
    from rmqclient.broker.life.failures import read_failure
    from rmqclient.broker.settings import ServeSettings, TlsMode, TlsSettings, replication_of

    if wait_for == "none":
        refuse(["followers", "on_lost", "replica_timeout_ms"], "without --wait-for: no send waits for a replica")
    elif ha_listen is None:
        raise click.UsageError(f"--wait-for {wait_for} needs --ha-listen: nobody could follow")
    if replica is None:
        refuse(["memory_percent"], "without --replica: there is nowhere to send a client")
    try:
        replication = replication_of(wait_for, on_lost, followers, replica_timeout_ms)
        for text in others["failures"]:
            read_failure(text)
        tls = TlsSettings(TlsMode(tls_mode), tls_cert, tls_key, tls_client_ca)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return ServeSettings(
        root,
        tuple(map(_address, listen)),
        None if advertise is None else _address(advertise),
        None if ha_listen is None else _address(ha_listen),
        replication,
        None if replica is None else _address(replica),
        tls=tls,
        can_fail=ephemeral,
        **others,
    )


def _address(text: str) -> Address:
    from rmqclient.broker.address import Address

    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT with a port from 0 to 65535")
    return Address(host.strip("[]"), int(port))
