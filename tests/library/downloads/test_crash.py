"""The program ends without a word in the middle of a download: nothing is lost, nothing wrong is listed."""

import subprocess
import sys
from pathlib import Path

import pytest

from runtime.library.downloads.record import PARTIAL
from tests.fakes.download_rig import FILE, REPO, DownloadRig, one_file

SCRIPT = """
import sys, time
from pathlib import Path
from runtime.library.catalogue import Catalogue
from runtime.library.downloads.downloads import Downloads
from runtime.messages.library import DownloadRequest
from runtime.options import ModelsOptions
from runtime.paths import DataFolder
from tests.fakes.download_rig import QUICK, hub_for
from tests.fakes.fake_hub import FakeHub

endpoint, root, repo, file = sys.argv[1:]
data, options = DataFolder(Path(root)), ModelsOptions(hub_endpoint=endpoint)
hub = hub_for(FakeHub(), data, options=options)
downloads = Downloads(data, Catalogue(data.catalogue_file), hub, options, policy=QUICK)
downloads.start()
if not downloads.all():
    downloads.add(DownloadRequest(repo, file))
while downloads.all()[0].state != "done":
    print(downloads.all()[0].done_bytes, flush=True)
    time.sleep(0.005)
print("done", flush=True)
"""


@pytest.mark.e2e
def test_killed_again_and_again_when_started_again_then_the_file_is_right_and_no_byte_is_fetched_twice(
    tmp_path: Path,
) -> None:
    root = Path(__file__).parents[3]
    with one_file(3_000_000) as fake:
        fake.piece_bytes, fake.pace = 20_000, 0.01
        for step in range(1, 6):
            child = subprocess.Popen(
                [sys.executable, "-c", SCRIPT, fake.endpoint, str(tmp_path), REPO, FILE],
                stdout=subprocess.PIPE,
                text=True,
                cwd=root,
            )
            assert child.stdout is not None
            for line in child.stdout:
                if line.strip() == "done" or int(line) >= step * 400_000:
                    break
            child.kill()
            child.wait(10)
            child.stdout.close()
            listed = [path for path in (tmp_path / "models").rglob("*.gguf") if path.suffix != PARTIAL]
            assert all(path.stat().st_size == 3_000_000 for path in listed)
        with DownloadRig(fake, tmp_path) as rig:
            rig.wait(rig.downloads.all()[0].id, "done")
            assert rig.path().read_bytes() == fake.repos[REPO].files[FILE]
            starts = [asked.headers.get("range", "bytes=0-") for asked in fake.file_requests()]
            assert len(starts) == len(set(starts)) >= 3
