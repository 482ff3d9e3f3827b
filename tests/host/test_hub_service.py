"""The hub in the host: made late, once, again after a failure, and not at all without a reason."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from runtime.errors import HostUnreachable, StorageFault
from runtime.host import hub_service as module
from runtime.host.hub_service import DownloadsTold, HubParts, HubService
from runtime.messages.api import DownloadsChanged, HostEvent
from runtime.messages.library import DownloadRequest
from runtime.options import ModelsOptions
from tests.fakes.models_parts import REPO, FakeHubSide


class Rig:
    def __init__(self) -> None:
        self.side = FakeHubSide()
        self.told: list[HostEvent] = []
        self.n_made = 0
        self.n_arrived = 0
        self.error: Exception | None = None
        self.service = HubService(
            self.make, ModelsOptions, self.told.append, has_downloads=self.side.has_downloads, on_done=self.arrived
        )

    def make(self, options: ModelsOptions, told: DownloadsTold) -> HubParts:
        self.n_made += 1
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return self.side.make(options, told)

    def arrived(self) -> None:
        self.n_arrived += 1


def run(work: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    async def with_rig() -> None:
        rig = Rig()
        async with asyncio.timeout(15):
            await work(rig)
            await rig.service.close()

    asyncio.run(with_rig())


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WARM_UP_AFTER_S", 0.01)


def test_when_many_ask_first_then_it_is_made_once() -> None:
    async def work(rig: Rig) -> None:
        assert rig.n_made == 0
        await asyncio.gather(*(rig.service.picks() for _ in range(5)), rig.service.downloads())
        assert rig.n_made == 1

    run(work)


def test_when_it_cannot_be_made_then_the_next_call_tries_again() -> None:
    async def work(rig: Rig) -> None:
        rig.error = StorageFault("The catalogue is gone.", path="/x")
        with pytest.raises(StorageFault):
            await rig.service.picks()
        assert (await rig.service.picks()).entries
        assert rig.n_made == 2

    run(work)


@pytest.mark.parametrize(("were_downloads", "n_made"), [(True, 1), (False, 0)])
def test_when_started_then_it_is_made_only_to_go_on_with_downloads(were_downloads: bool, n_made: int) -> None:
    async def work(rig: Rig) -> None:
        rig.side.were_downloads = were_downloads
        rig.service.start()
        assert rig.service._warming is not None
        await rig.service._warming
        assert rig.n_made == n_made
        if n_made:
            assert rig.side.downloads is not None
            assert rig.side.downloads.calls == ["start"]

    run(work)


def test_when_downloads_change_then_that_is_told_and_an_arrival_once() -> None:
    async def work(rig: Rig) -> None:
        download = await rig.service.download(DownloadRequest(REPO, "fake-Q4_K_M"))
        downloads = rig.side.downloads
        assert downloads is not None
        await asyncio.to_thread(downloads.arrive, download.id)
        await asyncio.to_thread(downloads.arrive, download.id)
        while rig.n_arrived == 0:  # noqa: ASYNC110 - it comes from another thread
            await asyncio.sleep(0.005)
        assert [len(event.downloads) for event in rig.told if isinstance(event, DownloadsChanged)] == [1, 1]
        assert rig.service.latest[0].state == "done"
        assert rig.n_arrived == 1

    run(work)


def test_when_closed_then_downloads_stop_and_nothing_more_is_made() -> None:
    async def work(rig: Rig) -> None:
        await rig.service.picks()
        await rig.service.close()
        assert rig.side.downloads is not None
        assert rig.side.downloads.calls[-1] == "close"
        with pytest.raises(HostUnreachable):
            await rig.service.picks()

    run(work)


def test_when_options_change_before_it_is_made_then_it_stays_unmade() -> None:
    async def work(rig: Rig) -> None:
        await rig.service.configure()
        assert rig.n_made == 0

    run(work)
