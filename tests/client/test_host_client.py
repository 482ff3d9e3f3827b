"""The typed client against a real host on the fake worker."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from runtime.client import HostClient
from runtime.errors import (
    BadRequest,
    Busy,
    HostUnreachable,
    ModelLoading,
    ModelNotFound,
    NotAuthorized,
    NotEnoughMemory,
    WorkerDied,
    from_failure,
)
from runtime.messages.api import (
    ChatDelta,
    ChatEvent,
    ChatFailed,
    ChatFinished,
    ChatRequest,
    CountRequest,
    HardwareChanged,
    LoadedModel,
    LoadRequest,
    Snapshot,
)
from runtime.messages.shared import Message
from runtime.options import ApiOptions, LoadOptions
from runtime.paths import DataFolder
from tests.host.conftest import RunningHost, host, make_host  # noqa: F401 - fixtures

TIMEOUT_S = 20.0


def run(running: RunningHost, work: Callable[[HostClient], Awaitable[None]]) -> None:
    async def with_client() -> None:
        async with HostClient.from_data_folder(running.data) as client, asyncio.timeout(TIMEOUT_S):
            await work(client)

    asyncio.run(with_client())


def ask(text: str, model: str = "fake") -> ChatRequest:
    return ChatRequest(model, (Message("user", text),))


async def events_of(client: HostClient, request: ChatRequest) -> list[ChatEvent]:
    async with client.chat(request) as events:
        return [event async for event in events]


def test_when_chatting_then_deltas_and_the_end_come(host: RunningHost) -> None:  # noqa: F811
    async def work(client: HostClient) -> None:
        events = await events_of(client, ask("say 3"))
        assert "".join(event.text for event in events if isinstance(event, ChatDelta)) == "w0 w1 w2 "
        assert isinstance(events[-1], ChatFinished)
        assert events[-1].usage.completion_tokens == 3
        assert events[-1].model == "fake"

    run(host, work)


def test_when_it_fails_late_then_the_last_event_says_why(host: RunningHost) -> None:  # noqa: F811
    async def work(client: HostClient) -> None:
        events = await events_of(client, ask("fail late"))
        assert isinstance(events[-1], ChatFailed)
        assert events[-1].failure.message == "The batch was refused."

    run(host, work)


def test_when_refused_then_the_error_has_its_own_class(host: RunningHost) -> None:  # noqa: F811
    async def work(client: HostClient) -> None:
        with pytest.raises(ModelNotFound, match="nowhere"):
            await events_of(client, ask("x", model="nowhere"))
        with pytest.raises(BadRequest, match="empty"):
            await events_of(client, ChatRequest("fake", ()))
        with pytest.raises(ModelNotFound):
            await client.load(LoadRequest("nowhere"))
        with pytest.raises(ModelNotFound):
            await client.unload("nowhere")

    run(host, work)


def test_when_worker_is_busy_then_the_events_end_with_busy(host: RunningHost) -> None:  # noqa: F811
    async def work(client: HostClient) -> None:
        events = await events_of(client, ask("busy"))
        assert isinstance(events[-1], ChatFailed)
        error = from_failure(events[-1].failure)
        assert isinstance(error, Busy)
        assert error.details["retry_after_s"] == 7

    run(host, work)


def test_when_left_early_then_the_answer_is_cancelled(host: RunningHost) -> None:  # noqa: F811
    async def work(client: HostClient) -> None:
        async with client.chat(ask("slowly 100000")) as events:
            async for chat_event in events:
                if isinstance(chat_event, ChatDelta):
                    break
        async with client.events() as host_events:
            async for event in host_events:
                if isinstance(event, Snapshot | HardwareChanged):
                    rows = await client.requests()
                    if rows[-1].state == "cancelled":
                        return

    run(host, work)


def test_when_cancelled_by_id_then_it_ends_as_cancelled(host: RunningHost) -> None:  # noqa: F811
    async def work(client: HostClient) -> None:
        async with client.chat(ask("slowly 100000")) as events:
            async for event in events:
                if isinstance(event, ChatDelta):
                    await client.cancel((await client.requests())[-1].request_id)
                    break
            last = [event async for event in events][-1]
        assert isinstance(last, ChatFinished)
        assert last.reasons == ("cancelled",)
        await client.cancel("unknown")

    run(host, work)


def test_when_asked_then_facts_come_typed(host: RunningHost) -> None:  # noqa: F811
    async def work(client: HostClient) -> None:
        assert {model.id for model in await client.models()} >= {"fake", "other"}
        assert (await client.status()).models[0].state == "ready"
        assert (await client.hardware()).gpus[0].temperature_c == 61.0
        assert (await client.count(CountRequest("fake", (Message("user", "one two three"),)))).n_tokens == 3
        with pytest.raises(ModelLoading, match="other is not loaded"):
            await client.count(CountRequest("other", (Message("user", "one"),)))
        assert [model.id for model in (await client.status()).models] == ["fake"]
        assert all(row.route != "/admin/count" for row in await client.requests())

    run(host, work)


def test_when_events_are_read_then_snapshot_comes_first_and_readings_follow(host: RunningHost) -> None:  # noqa: F811
    async def work(client: HostClient) -> None:
        async with client.events() as events:
            first = await anext(events)
            assert isinstance(first, Snapshot)
            assert first.status.models[0].id == "fake"
            async for event in events:
                if isinstance(event, HardwareChanged):
                    return

    run(host, work)


def test_when_loading_then_progress_is_told_and_failures_are_raised(make_host: Callable[..., RunningHost]) -> None:  # noqa: F811
    running = make_host()
    seen: list[LoadedModel] = []

    def note(model: LoadedModel) -> None:
        seen.append(model)
        if model.fraction == 0.25:
            go = running.data.models / "slow-loading.gguf.go"
            go.touch()

    async def work(client: HostClient) -> None:
        ready = await client.load_and_wait(LoadRequest("slow-loading", LoadOptions(n_ctx=512)), note)
        assert ready.facts is not None
        assert ready.facts.n_ctx == 512
        again = await client.load_and_wait(LoadRequest("slow-loading"))
        assert again.pid == ready.pid
        with pytest.raises(NotEnoughMemory, match="needs 9"):
            await client.load_and_wait(LoadRequest("refuse"))
        with pytest.raises(WorkerDied, match="exited with code 7") as raised:
            await client.load_and_wait(LoadRequest("crash-loading"))
        assert "GGML_ASSERT" in str(raised.value.details["last_lines"])

    run(running, work)
    assert [model.state for model in seen][-1] == "ready"
    assert any(model.stage == "reading" for model in seen)


def test_when_the_api_is_switched_then_the_answer_says_where_it_is(make_host: Callable[..., RunningHost]) -> None:  # noqa: F811
    running = make_host(api_enabled=False)

    async def work(client: HostClient) -> None:
        assert not (await client.api()).running
        state = await client.set_api(ApiOptions(enabled=True, port=0))
        assert state.running
        key = await client.add_key("a key")
        assert key.key.startswith("dsk-")
        assert (await client.api()).keys[0].name == "a key"
        with pytest.raises(BadRequest, match="There is a key named"):
            await client.add_key("a key")
        await client.delete_key("a key")
        assert (await client.api()).keys == ()
        assert not (await client.set_api(ApiOptions())).running

    run(running, work)


def test_when_told_to_end_then_the_host_ends_and_event_streams_with_it(make_host: Callable[..., RunningHost]) -> None:  # noqa: F811
    running = make_host()

    async def work(client: HostClient) -> None:
        async with client.events() as events:
            await anext(events)
            await client.shut_down()
            async for _event in events:
                pass

    run(running, work)
    running.close()
    assert not running.data.host_file.exists()


def test_when_token_is_wrong_then_not_authorized(host: RunningHost) -> None:  # noqa: F811
    async def work() -> None:
        async with HostClient(host.address, "0" * 64) as client:
            with pytest.raises(NotAuthorized):
                await client.status()

    asyncio.run(work())


def test_when_nothing_runs_then_host_unreachable(tmp_path: Path) -> None:
    with pytest.raises(HostUnreachable, match="No Deskside host runs"):
        HostClient.from_data_folder(DataFolder(tmp_path))

    async def work() -> None:
        async with HostClient("http://127.0.0.1:9", "x") as client:
            with pytest.raises(HostUnreachable, match="does not answer"):
                await client.status()
            with pytest.raises(HostUnreachable, match="does not answer"):
                async with client.events() as events:
                    await anext(events)

    asyncio.run(work())
