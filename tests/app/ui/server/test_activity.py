"""Live requests and loaded models: rows change in place, are bounded, sorted, and can be cancelled or unloaded."""

import msgspec
from PySide6.QtCore import QModelIndex, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton
from pytestqt.qtbot import QtBot

from app.context import AppContext
from app.ui.server.page import ServerPage
from app.ui.server.request_model import MAX_ROWS, RequestModel, columns
from app.ui.server.words import time_left, unload_words
from app.ui.window import MainWindow
from runtime import units
from runtime.messages.api import EngineSample, ModelChanged, RequestInfo
from tests.app.ui.conftest import WAIT_MS, Heartbeat
from tests.app.ui.test_stalls import STALL_S, calmest
from tests.fakes.answers import MODEL_ID, ready_model
from tests.fakes.fake_host import FakeHost
from tests.support.widgets import texts

N_CLIENTS = 32


def request(number: int, **fields: object) -> RequestInfo:
    one = RequestInfo(
        f"r{number}", "/v1/chat/completions", MODEL_ID, f"10.0.0.{number % 250}", "generating", 1_000.0 + number
    )
    return msgspec.structs.replace(one, **fields)


def cell(page: ServerPage, row: int, name: str) -> str:
    at = [column.name for column in columns()].index(name)
    return str(page.requests.sorted.index(row, at).data())


def test_when_programs_ask_then_each_request_is_a_row_that_changes_in_place(
    qtbot: QtBot, page: ServerPage, fake_host: FakeHost
) -> None:
    assert "No request yet" in texts(page)
    fake_host.requests = (
        request(1, client="window", state="prompt", prompt_tokens=1200),
        request(2, key="Editor", generated_tokens=40, generation_tps=12.34, time_to_first_token_s=0.25),
    )
    qtbot.waitUntil(lambda: page.requests.model.rowCount() == 2, timeout=WAIT_MS)
    rows = {cell(page, row, "client"): row for row in range(2)}
    mine, other = rows["This window"], rows["10.0.0.2"]
    assert (cell(page, mine, "state"), cell(page, mine, "prompt")) == ("Reads", "1,200")
    assert [cell(page, other, name) for name in ("key", "model", "state", "output", "first", "speed")] == [
        "Editor",
        "SmolLM2 135M Instruct",
        "Writes",
        "40",
        "250 ms",
        "12.3",
    ]
    assert "2 running" in texts(page)
    page.requests.table.selectRow(other)
    removed: list[int] = []
    page.requests.model.rowsRemoved.connect(lambda *_: removed.append(1))
    fake_host.requests = (*fake_host.requests[:1], msgspec.structs.replace(fake_host.requests[1], generated_tokens=41))
    qtbot.waitUntil(lambda: cell(page, other, "output") == "41", timeout=WAIT_MS)
    assert page.requests.selected_ids() == ("r2",)  # the selection stays
    assert not removed


def test_when_a_request_is_cancelled_then_the_host_is_told_by_button_key_and_cross(
    qtbot: QtBot, page: ServerPage, fake_host: FakeHost
) -> None:
    fake_host.requests = (*(request(number) for number in range(3)), request(9, state="finished"))
    qtbot.waitUntil(lambda: page.requests.model.rowCount() == 4, timeout=WAIT_MS)
    table = page.requests.table
    ids = [table.model().index(row, 0).data(int(Qt.ItemDataRole.UserRole) + 1) for row in range(4)]
    table.selectRow(ids.index("r0"))
    cancel = next(one for one in page.requests.findChildren(QAbstractButton) if one.text() == "Cancel the selected")
    cancel.click()
    table.selectRow(ids.index("r1"))
    QTest.keyClick(table, Qt.Key.Key_Delete)
    last = len(columns()) - 1
    spot = table.visualRect(table.model().index(ids.index("r2"), last)).center()
    QTest.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, spot)
    table.selectRow(ids.index("r9"))
    assert not cancel.isEnabled()  # it is over
    qtbot.waitUntil(lambda: sorted(fake_host.cancelled) == ["r0", "r1", "r2"], timeout=WAIT_MS)


def test_when_there_are_many_then_running_ones_stay_and_the_rows_are_bounded() -> None:
    model = RequestModel()
    ended = tuple(request(number, state="finished") for number in range(MAX_ROWS * 2))
    running = tuple(request(10_000 + number) for number in range(N_CLIENTS))
    model.show_requests((*running[:5], *ended, *running[5:]), {})
    assert model.rowCount() == MAX_ROWS
    shown = {one.request_id for one in model.requests}
    assert {one.request_id for one in running} <= shown
    assert ended[-1].request_id in shown
    assert ended[0].request_id not in shown
    model.show_requests(running[:2], {})
    assert {one.request_id for one in model.requests} == {"r10000", "r10001"}
    assert model.rowCount(model.index(0, 0)) == 0
    assert model.columnCount(QModelIndex()) == len(columns())


def test_when_a_heading_is_clicked_then_numbers_are_sorted_as_numbers(
    qtbot: QtBot, page: ServerPage, fake_host: FakeHost
) -> None:
    fake_host.requests = tuple(request(number, generated_tokens=number * 7) for number in (1, 2, 100, 30))
    qtbot.waitUntil(lambda: page.requests.model.rowCount() == 4, timeout=WAIT_MS)
    at = [column.name for column in columns()].index("output")
    page.requests.table.sortByColumn(at, Qt.SortOrder.DescendingOrder)
    assert [cell(page, row, "output") for row in range(4)] == ["700", "210", "14", "7"]


def test_when_32_clients_write_at_once_then_the_window_never_stalls(qtbot: QtBot, page: ServerPage) -> None:
    ended = tuple(request(number, state="finished") for number in range(MAX_ROWS))

    def measure() -> Heartbeat:
        page.requests.set_watched(False)
        heartbeat = Heartbeat()
        for step in range(20):
            page.requests._show(
                (
                    *ended,
                    *(
                        request(1_000 + number + step // 4, generated_tokens=step * 10 + number, generation_tps=9.0)
                        for number in range(N_CLIENTS)
                    ),
                )
            )
            qtbot.wait(20)
        heartbeat.stop()
        return heartbeat

    heartbeat = calmest(measure)
    assert max(heartbeat.gaps_s) < STALL_S, heartbeat.long


def test_when_a_model_is_idle_then_the_time_until_it_goes_counts_down(
    qtbot: QtBot, page: ServerPage, fake_host: FakeHost, context: AppContext
) -> None:
    fake_host.emit(ModelChanged(msgspec.structs.replace(ready_model(), unload_at_s=units.now() + 600)))
    qtbot.waitUntil(lambda: "Unloads in 9 min" in texts(page) or "Unloads in 10 min" in texts(page), timeout=WAIT_MS)
    fake_host.emit(ModelChanged(msgspec.structs.replace(ready_model(), unload_at_s=units.now() + 60)))
    qtbot.waitUntil(lambda: "Unloads in 58 s" in texts(page), timeout=WAIT_MS)
    fake_host.emit(ModelChanged(msgspec.structs.replace(ready_model(), engine=EngineSample(active=2, waiting=1))))
    qtbot.waitUntil(lambda: "In use" in texts(page), timeout=WAIT_MS)
    assert "2 of 4 slots in use · 1 waiting" in texts(page)
    unload = next(
        one
        for one in page.models.findChildren(QAbstractButton)
        if one.accessibleName() == "Unload SmolLM2 135M Instruct"
    )
    unload.click()
    qtbot.waitUntil(lambda: not context.link.loaded, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: "None. A request" in texts(page), timeout=WAIT_MS)


def test_when_time_is_left_then_it_is_told_in_fitting_units() -> None:
    assert [time_left(one) for one in (-3, 42.4, 300, 3_900)] == ["in 0 s", "in 42 s", "in 5 min", "in 1 h 05 min"]
    assert unload_words(ready_model(), 0.0) == "Stays loaded"


def test_when_the_page_is_not_seen_then_the_host_is_not_asked(
    qtbot: QtBot, page: ServerPage, live_window: MainWindow, fake_host: FakeHost
) -> None:
    qtbot.waitUntil(lambda: "GET /admin/requests" in fake_host.paths, timeout=WAIT_MS)
    live_window.show_page("chat")
    qtbot.waitUntil(lambda: not page.requests._is_asking, timeout=WAIT_MS)
    before = fake_host.paths.count("GET /admin/requests")
    qtbot.wait(1_200)
    assert fake_host.paths.count("GET /admin/requests") == before


def test_when_the_window_is_minimised_then_nobody_looks_until_it_is_back(
    qtbot: QtBot, page: ServerPage, live_window: MainWindow
) -> None:
    assert page.requests.is_watched
    assert page.models.is_watched
    live_window.showMinimized()
    qtbot.waitUntil(lambda: not page.requests.is_watched and not page.models.is_watched, timeout=WAIT_MS)
    live_window.showNormal()
    qtbot.waitUntil(lambda: page.requests.is_watched and page.models.is_watched, timeout=WAIT_MS)
