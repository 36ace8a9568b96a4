"""Tree: all commands of ``rmq``, and what each of them gets because it belongs to the tree.

- Every option is a variable, named by the commands and the option: ``RMQ_GROUP_SEEK_DRY_RUN``. Help shows it.
- Every option can stand in the settings file; the variable is stronger.
- A command is found by another usual name, too: ``message`` is ``msg``, ``ls`` is ``list``.
- A command is imported when it is asked for, because a person waits for it and for no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import click

from rmqclient.workers.console import environment
from rmqclient.workers.console.settings import Settings, SettingsError

ALIASES = {
    "msg": "message",
    "list": "ls",
    "describe": "info",
    "get": "show",
    "show": "get",
    "delete": "rm",
    "dead-letters": "dlq",
    "completions": "completion",
}
"""Other names, tried where a command has no child of the name that was written."""


_WHOLE = 1_000
"""Characters of a first sentence: more than any has."""


class Noun(click.Group):
    """A command with commands, which are also found by their other names."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name or by another usual one."""
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, ALIASES.get(cmd_name, ""))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with the whole first sentence of its help."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, each.get_short_help_str(_WHOLE)) for name, each in found if each is not None and not each.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return a command under its own name, by which settings know it."""
        name, command, others = super().resolve_command(ctx, args)
        return name if command is None else command.name, command, others


class Commands(MutableMapping[str, click.Command]):
    """Commands by their names; ``make`` imports one when it is asked for the first time."""

    def __init__(self, names: Iterable[str], make: Callable[[str], click.Command]) -> None:
        self._commands: dict[str, click.Command | None] = dict.fromkeys(names)
        self._make = make

    def __getitem__(self, name: str) -> click.Command:
        command = self._commands[name] or self._make(name)
        self._commands[name] = command
        return command

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)


class Leaf(NamedTuple):
    """A command that does something, and the words that call it."""

    words: tuple[str, ...]
    command: click.Command


def leaves(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Yield every command that does something, below one of the tree."""
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from leaves(command.commands[name], (*words, name))
    else:
        yield Leaf(words, command)


def options_of(command: click.Command) -> list[click.Option]:
    """Return the options of a command that have a value to set."""
    return [each for each in command.params if isinstance(each, click.Option) and not each.is_eager]


def long_name(option: click.Option) -> str:
    """Return the long name of an option without its dashes."""
    return max(option.opts, key=len).lstrip("-")


def variables(words: Sequence[str], option: click.Option) -> list[str]:
    """Return the variables of an option, the strongest first."""
    name = environment.begin([*words, long_name(option)])
    return [name, environment.STORE] if long_name(option) == "store" else [name]


def name_variables(leaf: Leaf) -> None:
    """Give every option of a command its variables."""
    for option in options_of(leaf.command):
        option.envvar = variables(leaf.words, option)
        option.show_envvar = True


def all_variables(command: click.Command, words: tuple[str, ...] = ()) -> set[str]:
    """Return the variables of every option of a command and of those below it."""
    return {
        variable
        for path, leaf in leaves(command, words)
        for option in options_of(leaf)
        for variable in variables(path, option)
    }


def mark_optional(command: click.Command) -> None:
    """Let the usage of a command show in brackets what may be left out."""
    for each in command.params:
        if isinstance(each, click.Argument) and not each.required and each.metavar is not None:
            each.metavar = f"[{each.metavar}]"


def defaults(command: click.Command, words: tuple[str, ...], settings: Settings) -> dict[str, Any]:
    """Return the settings of a command as click wants them: by the commands below, and by the parameter's own name."""
    if isinstance(command, click.Group):
        return {name: defaults(child, (*words, name), settings) for name, child in command.commands.items()}
    found: dict[str, Any] = {}
    for option in options_of(command):
        value = settings.option(words, long_name(option))
        if value is not None and option.name is not None:
            found[option.name] = _as_option(option, value, f"{settings.path}: {'.'.join((*words, long_name(option)))}")
    return found


def _as_option(option: click.Option, value: object, what: str) -> bool | str | list[str]:
    """Return a value of the file as click wants it. Raises SettingsError for one that the option does not take."""
    if option.is_flag and isinstance(value, bool):
        return value
    if option.multiple:
        several = value if isinstance(value, list) else [value]
        return [_as_text(each, what) for each in several]
    return _as_text(value, what)


def _as_text(value: object, what: str) -> str:
    if isinstance(value, bool | list | Mapping):
        raise SettingsError(f"{what} = {value!r}: write a text or a number")
    return str(value)


def unknown(command: click.Command, table: object, words: tuple[str, ...] = ()) -> list[str]:
    """Return what a table of the settings file has, and the command has not, such as ``run.proceses``.

    Commands that the table does not name are not imported.
    """
    if not isinstance(table, Mapping):
        return [".".join(words)]
    known = {long_name(option) for option in options_of(command)}
    found: list[str] = []
    for key, value in table.items():
        child = None
        if isinstance(command, click.Group):
            child = command.get_command(click.Context(command), key)
        if child is not None:
            found += unknown(child, value, (*words, key))
        elif key.replace("_", "-") not in known:
            found.append(".".join((*words, key)))
    return found
