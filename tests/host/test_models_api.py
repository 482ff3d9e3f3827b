"""The models part of the admin API on a host whose library, hub and downloads are fakes."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from runtime.host.settings import SettingsFile
from runtime.messages.api import (
    DownloadsChanged,
    InstalledChanged,
    JobChanged,
    ModelChanged,
    NodesChanged,
)
from runtime.options import LoadOptions, ModelsOptions
from tests.fakes.models_parts import REPO
from tests.host.conftest import RunningHost

MakeHost = Callable[..., RunningHost]


@pytest.fixture
def host(make_host: MakeHost) -> RunningHost:
    return make_host()


def post(host: RunningHost, route: str, /, **body: object) -> httpx.Response:
    return host.private.post(f"/admin/{route}", json=body)


def chat(host: RunningHost, model: str, text: str = "x") -> httpx.Response:
    return host.public.post(
        "/v1/chat/completions", json={"model": model, "messages": [{"role": "user", "content": text}]}
    )


def states(host: RunningHost) -> dict[str, str]:
    return {model["id"]: model["state"] for model in host.private.get("/admin/status").json()["models"]}


def job_states(host: RunningHost) -> list[str]:
    return [job["state"] for job in host.private.get("/admin/jobs").json()]


# --- settings ---------------------------------------------------------------------------------------------


def test_when_options_are_put_then_they_are_saved_and_acted_on(host: RunningHost, tmp_path: Path) -> None:
    assert host.private.get("/admin/models/options").json() == {}
    wanted = {"max_loaded": 2, "folders": [str(tmp_path)], "offline": True}
    assert host.private.put("/admin/models/options", json=wanted).json() == wanted
    assert host.files.options == ModelsOptions(max_loaded=2, folders=(str(tmp_path),), offline=True)
    assert SettingsFile(host.data.settings_file).current.models_options == host.files.options
    host.wait_for(lambda event: isinstance(event, InstalledChanged))
    for wrong in ({"folders": ["not/whole"]}, {"max_loaded": 0}, {"unknown": 1}, {"main_folder": "here"}):
        assert host.private.put("/admin/models/options", json=wrong).status_code == 400
    assert host.private.get("/admin/models/options").json() == wanted


def test_when_settings_of_a_model_are_put_then_its_next_load_has_them_and_automatic_stays(host: RunningHost) -> None:
    assert post(host, "models/settings", model="fake").json() == {}
    answer = host.private.put("/admin/models/settings", json={"model": "fake", "options": {"n_ctx": 1024}})
    assert answer.status_code == 204
    assert post(host, "models/settings", model="fake").json() == {"n_ctx": 1024}
    assert chat(host, "fake").status_code == 200
    (model,) = host.private.get("/admin/status").json()["models"]
    assert model["options"] == {"n_ctx": 1024}
    assert model["plan"]["resolved"]["n_ctx"] == 1024
    assert SettingsFile(host.data.settings_file).load_options("fake") == LoadOptions(n_ctx=1024)
    assert post(host, "models/settings", model="nowhere").status_code == 404
    wrong = host.private.put("/admin/models/settings", json={"model": "fake", "options": {"n_ctx": 1}})
    assert wrong.status_code == 400


def test_when_loaded_then_planned_and_actual_are_kept(host: RunningHost) -> None:
    assert post(host, "models/record", model="fake").json() is None
    chat(host, "fake")
    host.until(lambda: post(host, "models/record", model="fake").json() is not None)
    record = post(host, "models/record", model="fake").json()
    assert record["plan"]["model"] == "fake"
    assert record["plan"]["made_s"] > 0


# --- several models ---------------------------------------------------------------------------------------


def test_when_memory_allows_then_models_stay_side_by_side(host: RunningHost) -> None:
    assert chat(host, "fake").status_code == 200
    assert chat(host, "other").status_code == 200
    assert states(host) == {"fake": "ready", "other": "ready"}


def test_when_too_large_then_a_request_is_told_and_what_is_loaded_stays(host: RunningHost) -> None:
    chat(host, "fake")
    host.private.put("/admin/models/settings", json={"model": "other", "options": {"n_ctx": 2_000_000_000}})
    answer = chat(host, "other")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "model_load_failed"
    assert "free" in answer.json()["error"]["message"]
    assert states(host) == {"fake": "ready", "other": "failed"}
    assert chat(host, "fake").status_code == 200


def test_when_a_person_replaces_by_what_cannot_be_loaded_then_the_loaded_one_stays(host: RunningHost) -> None:
    chat(host, "fake")
    post(host, "models/load", model="other", options={"n_ctx": 2_000_000_000})
    host.until(lambda: states(host).get("other") == "failed")
    assert states(host) == {"fake": "ready", "other": "failed"}
    post(host, "models/load", model="other", options={"n_ctx": 512})
    host.until(lambda: states(host) == {"other": "ready"})


def test_when_idle_for_its_time_then_it_goes_and_says_when_before(host: RunningHost) -> None:
    host.private.put("/admin/models/options", json={"idle_unload_s": 600})
    chat(host, "fake")
    (model,) = host.private.get("/admin/status").json()["models"]
    assert 590 <= model["unload_at_s"] - time.time() <= 601  # noqa: TID251 - told by the wall clock
    host.private.put("/admin/models/options", json={"idle_unload_s": 3600})
    host.wait_for(
        lambda event: (
            isinstance(event, ModelChanged)
            and event.model.unload_at_s is not None
            and event.model.unload_at_s > model["unload_at_s"]
        )
    )
    assert host.host is not None
    (slot,) = host.host._models.supervisor.slots()
    slot.used_at -= 3601
    host.until(lambda: states(host) == {})


def test_when_a_person_loaded_it_then_it_stays_unless_the_settings_say_otherwise(host: RunningHost) -> None:
    post(host, "models/load", model="fake")
    host.until(lambda: states(host) == {"fake": "ready"})
    assert "unload_at_s" not in host.private.get("/admin/status").json()["models"][0]
    chat(host, "other")
    told = {model["id"]: model.get("unload_at_s") for model in host.private.get("/admin/status").json()["models"]}
    assert told["fake"] is None
    assert told["other"] is not None
    post(host, "models/load", model="other", replace=False)  # now a person wants it too
    told = {model["id"]: model.get("unload_at_s") for model in host.private.get("/admin/status").json()["models"]}
    assert told["other"] is None


def test_when_loading_on_request_is_off_then_programs_are_refused_and_the_person_is_not(host: RunningHost) -> None:
    host.private.put("/admin/models/options", json={"load_on_demand": False})
    refused = chat(host, "fake")
    assert refused.status_code == 403
    assert "switched off" in refused.json()["error"]["message"]
    answer = post(host, "chat", model="fake", messages=[{"role": "user", "content": "x"}])
    assert "echo: x" in answer.text
    assert chat(host, "fake").status_code == 200  # it is loaded now


# --- plans and nodes --------------------------------------------------------------------------------------


def test_when_planned_then_the_machine_and_verdict_are_told(host: RunningHost) -> None:
    machine = host.private.get("/admin/machine").json()
    assert [device["name"] for device in machine["devices"]] == ["FAKE0", "CPU"]
    plan = post(host, "plan", target={"model": "fake"}, options={"n_ctx": 512}, exact=False).json()
    assert plan["method"] == "formula"
    assert plan["resolved"]["n_ctx"] == 512
    assert plan["sentence"]
    exact = post(host, "plan", target={"model": "fake"}, options={"n_ctx": 512}).json()
    assert exact["method"] == "formula"  # nothing can measure here, and the plan says so


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"target": {}}, 400),
        ({"target": {"model": "fake", "repo": "a/b", "file": "c"}}, 400),
        ({"target": {"repo": "a/b"}}, 400),
        ({"target": {"model": "nowhere"}}, 404),
        ({"target": {"model": "fake"}, "options": {"tensor_split": [1, 1, 1, 1]}}, 400),
        ({"target": {"model": "fake"}, "options": {"type_v": "q8_0", "flash_attn": "off"}}, 400),
        ({"target": {"repo": REPO, "file": "nothing"}}, 404),
        ({"target": {"model": "fake"}, "draft": "nowhere"}, 404),
    ],
)
def test_when_a_plan_cannot_be_made_then_the_answer_says_why(
    host: RunningHost, body: dict[str, object], status: int
) -> None:
    answer = host.private.post("/admin/plan", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["message"]


def test_when_nodes_come_and_go_then_they_are_saved_told_and_bad_addresses_refused(host: RunningHost) -> None:
    assert host.private.get("/admin/nodes").json() == []
    (node,) = post(host, "nodes", address="127.0.0.1:1").json()
    assert (node["state"], "Is 'deskside node' running" in node["problem"]) == ("unreachable", True)
    host.wait_for(lambda event: isinstance(event, NodesChanged) and len(event.nodes) == 1)
    for wrong in ("nonsense", "host:0", "host:99999", "a b:1", "host"):
        assert post(host, "nodes", address=wrong).status_code == 400, wrong
    assert SettingsFile(host.data.settings_file).current.models_options.nodes == ("127.0.0.1:1",)
    assert host.private.request("DELETE", "/admin/nodes", json={"address": "127.0.0.1:1"}).json() == []
    assert host.private.request("DELETE", "/admin/nodes", json={"address": "127.0.0.1:1"}).json() == []


# --- the library ------------------------------------------------------------------------------------------


def test_when_folders_are_added_and_removed_then_they_are_searched_and_saved(host: RunningHost, tmp_path: Path) -> None:
    before = host.private.get("/admin/library").json()
    folder = tmp_path / "more models"
    folder.mkdir()
    state = post(host, "library/folders", path=str(folder)).json()
    assert len(state["folders"]) == len(before["folders"]) + 1
    assert post(host, "library/folders", path=str(tmp_path / "nowhere")).status_code == 400
    assert post(host, "library/folders", path="relative").status_code == 400
    assert host.private.get("/admin/models/options").json()["folders"] == [str(folder)]
    removed = host.private.request("DELETE", "/admin/library/folders", json={"path": str(folder)}).json()
    assert removed == before


def test_when_verified_then_a_job_tells_how_it_ended(host: RunningHost) -> None:
    answer = post(host, "library/verify", model="fake")
    assert answer.status_code == 202
    assert (answer.json()["kind"], answer.json()["model"]) == ("verify", "fake")
    done = host.wait_for(lambda event: isinstance(event, JobChanged) and event.job.state == "done")
    assert isinstance(done, JobChanged)
    assert done.job.result == "The file is whole."
    post(host, "library/verify", model="refuse")
    failed = host.wait_for(lambda event: isinstance(event, JobChanged) and event.job.state == "failed")
    assert isinstance(failed, JobChanged)
    assert failed.job.failure is not None
    assert failed.job.failure.kind == "HashMismatch"
    assert post(host, "library/verify", model="nowhere").status_code == 404


def test_when_a_job_is_cancelled_then_it_ends_so(host: RunningHost) -> None:
    job = post(host, "library/verify", model="slow-loading").json()
    host.wait_for(lambda event: isinstance(event, JobChanged) and event.job.stage == "working")
    assert post(host, "jobs/cancel", id=job["id"]).status_code == 204
    host.until(lambda: job_states(host) == ["cancelled"])
    assert post(host, "jobs/cancel", id="unknown").status_code == 204


def test_when_imported_then_it_is_listed(host: RunningHost, tmp_path: Path) -> None:
    source = tmp_path / "mine.gguf"
    source.write_bytes(b"GGUF")
    assert post(host, "library/import", path=str(source), how="use_in_place").status_code == 202
    host.wait_for(
        lambda event: isinstance(event, InstalledChanged) and any(model.id == "mine" for model in event.installed)
    )
    assert post(host, "library/import", path=str(tmp_path / "nowhere.gguf")).status_code == 400
    assert post(host, "library/import", path=str(source), how="steal").status_code == 400


def test_when_removed_then_a_loaded_model_is_unloaded_but_one_that_answers_is_not(host: RunningHost) -> None:
    chat(host, "fake")
    with host.private.stream(
        "POST", "/admin/chat", json={"model": "fake", "messages": [{"role": "user", "content": "slowly 100000"}]}
    ) as running:
        chunks = running.iter_raw()  # kept: dropping it would close the stream
        next(chunks)
        refused = post(host, "library/remove", model="fake")
        assert refused.status_code == 429
        assert "answering" in refused.json()["message"]
    host.until(lambda: post(host, "library/remove", model="fake").status_code == 200)
    assert states(host) == {}
    assert post(host, "library/remove", model="fake").status_code == 404


def test_when_the_main_folder_moves_then_downloads_wait_and_settings_follow(host: RunningHost, tmp_path: Path) -> None:
    chat(host, "fake")
    target = tmp_path / "new"
    assert post(host, "library/move", path="relative").status_code == 400
    assert post(host, "library/move", path=str(target)).status_code == 202
    host.until(lambda: job_states(host) == ["done"])
    assert host.files.moved_to == str(target)
    assert host.private.get("/admin/models/options").json()["main_folder"] == str(target)
    assert host.downloads.calls[-2:] == ["hold", f"release {host.data.models} {target}"]
    assert states(host) == {}  # it was loaded from there


# --- the hub and downloads --------------------------------------------------------------------------------


def test_when_the_hub_is_asked_then_it_answers_and_options_reach_it(host: RunningHost) -> None:
    assert [entry["repo"] for entry in post(host, "hub/search", text="fake").json()["entries"]] == [REPO]
    assert host.private.get("/admin/hub/picks").json()["entries"]
    assert post(host, "hub/model", repo=REPO).json()["commit"] == "c0ffee"
    assert post(host, "hub/model", repo="no/where").status_code == 404
    account = host.private.put("/admin/hub/account", json={"token": " hf_secret "}).json()
    assert account == {"endpoint": "https://hub.example", "signed_in": True, "name": "someone"}
    assert "hf_secret" not in host.private.get("/admin/hub/account").text
    host.private.put("/admin/models/options", json={"offline": True})
    assert host.hub.options.offline
    assert host.downloads.options.offline


def test_when_downloads_change_then_they_are_told_and_part_of_a_snapshot(host: RunningHost) -> None:
    begun = post(host, "downloads", repo=REPO, file="fake-Q4_K_M")
    assert begun.status_code == 202
    download = begun.json()
    host.wait_for(lambda event: isinstance(event, DownloadsChanged) and len(event.downloads) == 1)
    with host.private.stream("GET", "/admin/events") as events:
        snapshot = next(events.iter_raw()).decode()
    assert download["id"] in snapshot
    assert '"downloads"' in snapshot
    assert post(host, "downloads/clear", id=download["id"]).status_code == 400
    assert post(host, "downloads/pause", id=download["id"]).json()["state"] == "paused"
    assert post(host, "downloads/resume", id=download["id"]).json()["state"] == "running"
    assert post(host, "downloads/cancel", id=download["id"]).json()["id"] == download["id"]
    assert host.private.get("/admin/downloads").json() == []
    for action in ("pause", "resume", "cancel", "clear"):
        assert post(host, f"downloads/{action}", id="unknown").status_code == 400


def test_when_a_download_has_arrived_then_what_is_installed_is_told_at_once(host: RunningHost) -> None:
    download = post(host, "downloads", repo=REPO, file="fake-Q4_K_M").json()
    n_before = sum(isinstance(event, InstalledChanged) for event in host.events)
    host.downloads.arrive(download["id"])
    host.until(lambda: sum(isinstance(event, InstalledChanged) for event in host.events) > n_before, timeout_s=3)


def test_when_the_host_ends_then_downloads_are_told_to_stop(host: RunningHost) -> None:
    post(host, "downloads", repo=REPO, file="fake-Q4_K_M")
    host.close()
    assert host.downloads.calls[-1] == "close"


@pytest.mark.skipif(os.name == "nt", reason="the folders are named so on POSIX")
@pytest.mark.parametrize("folder", ["/", "/proc", "/proc/self/fd", "/sys", "/dev"])
def test_when_a_folder_of_the_system_is_added_then_it_is_refused(host: RunningHost, folder: str) -> None:
    answer = post(host, "library/folders", path=folder)
    assert answer.status_code == 400
    assert "folder of the system" in answer.json()["message"]


def test_when_a_load_names_options_then_the_others_stay_as_they_are_remembered(host: RunningHost) -> None:
    kept = {"n_ctx": 1024, "type_k": "q8_0", "n_parallel": 2}
    host.private.put("/admin/models/settings", json={"model": "other", "options": kept})
    body = {"model": "other", "options": {"n_ctx": 2048}, "only": ["n_ctx", "n_parallel"], "replace": False}
    assert host.private.post("/admin/models/load", json=body).status_code == 202
    host.until(lambda: post(host, "models/settings", model="other").json() == {"n_ctx": 2048, "type_k": "q8_0"})
    wrong = host.private.post("/admin/models/load", json={**body, "only": ["n_contexts"]})
    assert wrong.status_code == 400
    assert "there is no option named 'n_contexts'" in wrong.json()["message"]
