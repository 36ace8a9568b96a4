"""Delta Lake: adds files that Spark wrote to the log of a table, with the package ``deltalake``.

Spark writes the files on all executors. This module adds them to the table's log, one commit for each batch, so readers
of the table see a batch whole or not at all. The commit carries the transaction (application, version) of the Delta
protocol, which identifies a batch that comes again. No jar is needed, so any version of Spark will do.
"""

# ruff: noqa: PLC0415 - the package is optional

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from rmqclient.spark.pipelines.output.published import PublishedFile
from rmqclient.store.errors import NotInstalled

if TYPE_CHECKING:
    from deltalake.transaction import AddAction, CommitProperties, RemoveAction


class DeltaLog:
    """The log of the table in a directory. Raises NotInstalled if ``deltalake`` is not installed."""

    def __init__(self, target: Path, partition_by: Sequence[str] = ()) -> None:
        if importlib.util.find_spec("deltalake") is None:
            raise NotInstalled("deltalake is not installed: pip install 'rmqclient[delta]'")
        self.target = target
        self.partition_by = list(partition_by)

    def add(self, files: Sequence[PublishedFile], application: str, version: int) -> None:
        """Add files, unless the application has committed this version or a later one before."""
        from deltalake.transaction import CommitProperties, Transaction

        seen = self._version_of(application)
        if files and (seen is None or seen < version):
            self._commit(files, "append", CommitProperties(app_transactions=[Transaction(application, version)]))

    def replace(self, files: Sequence[PublishedFile]) -> None:
        """Replace the table's files with these. The old files stay on the disk for older versions of the table."""
        from deltalake.transaction import CommitProperties

        self._commit(files, "overwrite", CommitProperties())

    def _version_of(self, application: str) -> int | None:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(self.target)):
            return None
        version: int | None = DeltaTable(str(self.target)).transaction_version(application)
        return version

    def _commit(
        self, files: Sequence[PublishedFile], mode: Literal["append", "overwrite"], properties: CommitProperties
    ) -> None:
        from deltalake import DeltaTable, Schema
        from deltalake.transaction import AddAction, create_table_with_add_actions

        target, by = str(self.target), self.partition_by
        actions = [
            AddAction(
                path=file.path,
                size=file.size,
                partition_values=dict(_partition_values(file.path)),
                modification_time=(self.target / file.path).stat().st_mtime_ns // 1_000_000,
                data_change=True,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]
        schema = Schema.from_arrow(self._schema(self.target / files[0].path))
        if DeltaTable.is_deltatable(target):
            changes: list[AddAction | RemoveAction] = [*actions]
            DeltaTable(target).create_write_transaction(
                changes, mode, schema, partition_by=by, commit_properties=properties
            )
        else:
            create_table_with_add_actions(target, schema, actions, partition_by=by, commit_properties=properties)

    def _schema(self, path: Path) -> pa.Schema:
        """Return the columns of a file, including those that only its path holds."""
        kinds = {"day": pa.date32()}
        columns = [pa.field(name, kinds.get(name, pa.string())) for name in self.partition_by]
        return pa.schema([*pq.read_schema(path).remove_metadata(), *columns])


def _partition_values(path: str) -> Iterator[tuple[str, str]]:
    for part in Path(path).parts[:-1]:
        name, _, value = part.partition("=")
        yield name, unquote(value)
