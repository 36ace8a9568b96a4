"""Group commands: settings of groups. [SubscriptionGroupManager]

A group of local workers without settings is listed with RocketMQ's defaults.
"""

from __future__ import annotations

from collections.abc import Iterable

from rmqclient.broker.administration.progress import Progress
from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.request import Request
from rmqclient.broker.routes import ADMINISTRATOR, NOTHING, Route, of_group
from rmqclient.broker.stored_names import stored_group
from rmqclient.local.backend import local_backend
from rmqclient.remoting.bodies import GroupConfig, GroupTable, TopicList, fastjson
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageStore
from rmqclient.store.errors import QueueOwned
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class GroupCommands:
    """Answers requests about the settings of groups."""

    def __init__(self, store: MessageStore, settings: GroupSettings, progress: Progress) -> None:
        self._backend = local_backend(store)
        self._settings = settings
        self._progress = progress

    def routes(self) -> Iterable[Route]:
        """Declare requests about groups. Like those of topics, their names and settings need no permission."""
        for code, change in (
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, self._update),
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, self._update_many),
            (RequestCode.DELETE_SUBSCRIPTIONGROUP, self._delete),
        ):
            yield Route(code, change, needs=ADMINISTRATOR, writes=True, slow=True)
        yield Route(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self._table, needs=NOTHING, writes=False, slow=True)
        yield Route(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, self._config, needs=NOTHING, writes=False, slow=True)
        yield Route(
            RequestCode.QUERY_TOPICS_BY_CONSUMER, self._topics, needs=of_group("group"), writes=False, slow=True
        )

    def _update(self, request: Request) -> Frame:
        self._settings.change(GroupConfig.decode(request.body))
        return request.success()

    def _update_many(self, request: Request) -> Frame:
        for entry in fastjson.read_list(request.body, "groupConfigList"):
            self._settings.change(GroupConfig.of(entry))
        return request.success()

    def _table(self, request: Request) -> Frame:
        said = self._settings.table()
        groups = map(self._settings.name_of, self._progress.groups())
        consuming = {group: GroupConfig(group) for group in groups}
        return request.success(GroupTable(said.version, {**consuming, **said.groups}).encode())

    def _config(self, request: Request) -> Frame:
        group = request.fields["group"]
        found = self._settings.find(group)
        if found is None and stored_group(group) in self._progress.groups():
            found = GroupConfig(group)
        if found is None:
            raise AnswerError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist: {group}")
        return request.success(found.encode())

    def _delete(self, request: Request) -> Frame:
        """Delete a group's settings and, if asked to and if it has no members, its offsets."""
        fields = request.fields
        group = fields["groupName"]
        self._settings.delete(group)
        if (fields.get("removeOffset") or fields.get("cleanOffset")) and self._progress.offsets(group):
            try:
                self._backend.groups.remove(stored_group(group))
            except QueueOwned as error:
                _log.warning("group %s: its settings are deleted, and its offsets stay: %s", group, error)
        return request.success()

    def _topics(self, request: Request) -> Frame:
        return request.success(TopicList(tuple(self._progress.offsets(request.fields["group"]))).encode())
