from app.mirror import MAX_JOBS, Mirror, Part
from runtime.messages.api import ApiState, DownloadsChanged, JobChanged, NodesChanged, Snapshot, Status
from runtime.messages.fit import NodeInfo
from runtime.messages.library import Download, Job
from runtime.options import ApiOptions


def job(number: int, state: str = "running") -> Job:
    return Job(f"j{number}", "verify", "m", f"Check {number}", state)  # type: ignore[arg-type]


def fresh(**fields: object) -> Mirror:
    mirror = Mirror()
    status = Status("0.1.0", 1, 1.0, ".", (), ApiState(ApiOptions(), running=False))
    assert mirror.apply(Snapshot(status, (), **fields)) == Part.ALL  # type: ignore[arg-type]
    return mirror


def test_when_there_was_no_snapshot_then_events_are_passed_over() -> None:
    mirror = Mirror()
    assert mirror.apply(JobChanged(job(1))) == Part.NONE
    assert not mirror.jobs


def test_when_a_job_changes_then_it_is_replaced_in_its_place() -> None:
    mirror = fresh(jobs=(job(1), job(2)))
    assert mirror.apply(JobChanged(job(1, "done"))) == Part.JOBS
    assert [one.state for one in mirror.jobs] == ["done", "running"]


def test_when_there_are_too_many_jobs_then_the_oldest_finished_one_goes() -> None:
    mirror = fresh(jobs=tuple(job(n, "done" if n == 3 else "running") for n in range(MAX_JOBS)))
    mirror.apply(JobChanged(job(1000)))
    assert len(mirror.jobs) == MAX_JOBS
    assert "j3" not in {one.id for one in mirror.jobs}
    mirror.apply(JobChanged(job(1001)))
    assert "j0" not in {one.id for one in mirror.jobs}


def test_when_downloads_and_nodes_change_then_they_are_told_by_their_parts() -> None:
    mirror = fresh()
    assert mirror.apply(DownloadsChanged((Download("d", "r", "n", "Q8_0", "running", 1, 2),))) == Part.DOWNLOADS
    assert mirror.apply(NodesChanged((NodeInfo("a:1", "reachable"),))) == Part.NODES
    assert mirror.downloads[0].id == "d"
    assert mirror.nodes[0].address == "a:1"
