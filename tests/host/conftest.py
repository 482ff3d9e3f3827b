"""A whole host in a thread, on the fake worker, with clients of its listeners."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from runtime.host.config import HostConfig, HostReady
from runtime.host.main import Host
from runtime.host.model_slot import RestartPolicy
from runtime.host.ownership import Ownership, read_host_file
from runtime.host.parts import HostParts
from runtime.host.worker_session import Patience
from runtime.messages.api import HostEvent
from runtime.paths import DataFolder
from tests.fakes.host_parts import FAKE_WORKER, FakeSampler
from tests.fakes.keyring import FakeKeyring
from tests.fakes.models_parts import FakeDownloads, FakeFiles, FakeHub, FakeHubSide, FakeProbe, fake_library

MODELS = ("fake", "other", "refuse", "crash-loading", "slow-loading")
FAST_RESTARTS = RestartPolicy(backoff_s=(0.05,), patience=Patience(connect_within_s=20.0, silent_limit_s=5.0))


class RunningHost:
    """A host in a thread of its own; closed by the fixture."""

    ready: HostReady | None = None
    host: Host | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _error: BaseException | None = None

    def __init__(
        self, data: DataFolder, config: HostConfig | None = None, policy: RestartPolicy = FAST_RESTARTS
    ) -> None:
        self.data = data
        self.events: list[HostEvent] = []
        self._news = threading.Condition()
        self._is_up = threading.Event()
        given = config or HostConfig(data, api_enabled=True, api_port=0, worker_command=FAKE_WORKER)
        self.config = HostConfig(
            data,
            api_enabled=given.api_enabled,
            api_host=given.api_host,
            api_port=given.api_port,
            api_options=given.api_options,
            api_only=given.api_only,
            api_key=given.api_key,
            model=given.model,
            load_last=given.load_last,
            load_options=given.load_options,
            load_only=given.load_only,
            worker_command=given.worker_command,
            on_ready=self._ready,
            on_event=self._take,
        )
        self._policy = policy
        self.files = FakeFiles(data.models, *MODELS)
        self.hub_side = FakeHubSide()
        self.parts = HostParts(
            make_library=lambda options: fake_library(self.files, self.hub_side, options),
            make_sampler=FakeSampler,
            on_worker_line=lambda _model, _line: None,
            prober=FakeProbe(),
            measure=None,
            keyring=FakeKeyring(),
        )
        self._thread = threading.Thread(target=self._run, name="host under test")
        self._thread.start()
        assert self._is_up.wait(20)
        self._raise_error()
        told = read_host_file(data)
        assert told is not None
        self.private = httpx.Client(
            base_url=told.address, headers={"authorization": f"Bearer {told.token}"}, timeout=20
        )
        self.token = told.token
        self.address = told.address
        assert self.ready is not None
        addresses = self.ready.api.addresses
        self.address_of_api = addresses[0] if addresses else "http://127.0.0.1:9"
        self.public = httpx.Client(base_url=self.address_of_api, timeout=20)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _ready(self, ready: HostReady) -> None:
        self.ready = ready
        self._is_up.set()

    def _take(self, event: HostEvent) -> None:
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def _run(self) -> None:
        try:
            with Ownership(self.data) as ownership:
                asyncio.run(self._serve(ownership))
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self._error = error
        finally:
            self._is_up.set()

    async def _serve(self, ownership: Ownership) -> None:
        self._loop = asyncio.get_running_loop()
        self.host = Host(self.config, self.parts, policy=self._policy)
        await self.host.run(ownership)

    @property
    def hub(self) -> FakeHub:
        return self.hub_side.hub

    @property
    def downloads(self) -> FakeDownloads:
        """Once something asked for them."""
        assert self.hub_side.downloads is not None
        return self.hub_side.downloads

    def wait_for(self, wanted: Callable[[HostEvent], bool], timeout_s: float = 15.0) -> HostEvent:
        """The first event, past or coming, that is wanted."""
        with self._news:
            assert self._news.wait_for(lambda: any(map(wanted, self.events)), timeout_s), self.events[-5:]
            return next(event for event in self.events if wanted(event))

    def until(self, condition: Callable[[], bool], timeout_s: float = 15.0) -> None:
        """Wait until something asked of the host is so; asked again after each event (there is one a second)."""
        deadline = time.monotonic() + timeout_s
        while not condition():  # not under the lock: the host needs it to answer
            with self._news:
                assert self._news.wait(max(0.0, min(1.5, deadline - time.monotonic()))), self.events[-5:]

    def close(self) -> None:
        self.private.close()
        self.public.close()
        if self._loop is not None and self.host is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self.host.end)
            self._loop.call_soon_threadsafe(self.host.end)
        self._thread.join(20)
        assert not self._thread.is_alive()


MakeHost = Callable[..., RunningHost]


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[MakeHost]:
    """Makes hosts on one data folder, each closed at the end."""
    hosts: list[RunningHost] = []

    def make(**given: object) -> RunningHost:
        data = DataFolder(tmp_path / "data")
        policy = given.pop("policy", FAST_RESTARTS)
        assert isinstance(policy, RestartPolicy)
        config = HostConfig(data, **{"api_enabled": True, "api_port": 0, "worker_command": FAKE_WORKER, **given})  # type: ignore[arg-type]
        host = RunningHost(data, config, policy)
        hosts.append(host)
        return host

    yield make
    for host in hosts:
        host.close()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHost]:
    """One host for a whole module, with the model `fake` loaded and the public API on."""
    data = DataFolder(tmp_path_factory.mktemp("host") / "data")
    running = RunningHost(
        data, HostConfig(data, api_enabled=True, api_port=0, model="fake", worker_command=FAKE_WORKER)
    )
    running.until(lambda: running.private.get("/health").json()["status"] == "ok")
    yield running
    running.close()
