"""Web applications: a producer for the life of the process, handlers if asked, in each framework."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Producer
from rmqclient.errors import HandlerError, QueueError
from rmqclient.frameworks.asgi import Lifespan
from tests.support.threads import no_thread_left

LONG_S = 30.0


def starlette(lifespan: Any) -> AbstractAsyncContextManager[object]:
    pytest.importorskip("starlette", reason="no starlette: make install-all brings it")
    from starlette.applications import Starlette

    application = Starlette(lifespan=lifespan)
    return application.router.lifespan_context(application)


def fastapi(lifespan: Any) -> AbstractAsyncContextManager[object]:
    pytest.importorskip("fastapi", reason="no fastapi: make install-all brings it")
    from fastapi import FastAPI

    application = FastAPI(lifespan=lifespan)
    return application.router.lifespan_context(application)


def litestar(lifespan: Any) -> AbstractAsyncContextManager[object]:
    pytest.importorskip("litestar", reason="no litestar: make install-all brings it")
    from litestar import Litestar

    return Litestar(lifespan=[lifespan]).lifespan()


FRAMEWORKS = [starlette, fastapi, litestar]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_handlers_run_in_the_loop_of_the_web_process(framework: Any, tmp_path: Path) -> None:
    app = App(tmp_path / "store")
    seen: list[tuple[str, object]] = []
    ended = asyncio.Event()

    @app.handler("orders", group="billing")
    async def bill(body: str) -> None:
        seen.append((body, asyncio.get_running_loop()))
        ended.set()

    rmq = Lifespan(app, handlers=True)

    async def live() -> None:
        async with framework(rmq):
            await rmq.producer.send_async("orders", "one")
            await asyncio.wait_for(ended.wait(), LONG_S)
            assert seen == [("one", asyncio.get_running_loop())]

    with no_thread_left("rmq-"):
        asyncio.run(live())


def test_without_handlers_it_only_sends_and_its_producer_ends_with_it(tmp_path: Path) -> None:
    app = App(tmp_path / "store")
    rmq = Lifespan(app)

    async def live() -> Producer:
        async with rmq():
            producer = await rmq.get_producer()
            assert producer is rmq.producer
            producer.send("orders", "one")
            return producer

    producer = asyncio.run(live())
    with pytest.raises(HandlerError, match="has not started, or has ended"):
        rmq.producer  # noqa: B018
    with pytest.raises(QueueError, match="closed"):
        producer.send("orders", "two")


def test_a_lifespan_of_the_application_may_be_around_it(tmp_path: Path) -> None:
    rmq, order = Lifespan(App(tmp_path / "store")), []

    @asynccontextmanager
    async def own(application: object) -> AsyncIterator[None]:
        order.append("own")
        async with rmq(application):
            rmq.producer.send("orders", "one")
            yield
        order.append("ended")

    async def live() -> None:
        async with starlette(own):
            order.append("live")

    asyncio.run(live())
    assert order == ["own", "live", "ended"]


def test_a_store_that_cannot_be_opened_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no directory", encoding="ascii")
    rmq = Lifespan(App(tmp_path / "store"))

    async def live() -> None:
        async with rmq():
            pytest.fail("it lives")

    with pytest.raises((QueueError, OSError)):
        asyncio.run(live())
