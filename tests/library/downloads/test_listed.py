"""What the library lists while downloads come in: whole models, and nothing else."""

from pathlib import Path

import pytest

from runtime.library.catalogue import Catalogue
from runtime.library.downloads.downloads import Downloads
from runtime.library.folder import Library
from runtime.messages.library import DownloadRequest, HubModelRequest
from runtime.options import ModelsOptions
from runtime.paths import DataFolder
from tests.fakes.download_rig import QUICK, REPO, hub_for, until
from tests.fakes.fake_hub import FakeHub, FakeRepo
from tests.support.gguf_files import write_tiny_model


@pytest.mark.e2e
def test_split_model_on_its_way_when_the_library_looks_then_it_is_listed_once_it_is_whole(tmp_path: Path) -> None:
    paths = [f"M-Q4_K_M-{number:05}-of-00002.gguf" for number in (1, 2)]
    files = {
        name: write_tiny_model(tmp_path / f"source{number}", split=(number, 2)).read_bytes()
        for number, name in enumerate(paths)
    }
    data = DataFolder(tmp_path / "data")
    with FakeHub({REPO: FakeRepo(files)}) as fake:
        options = ModelsOptions(hub_endpoint=fake.endpoint, use_other_programs=False)
        catalogue = Catalogue(data.catalogue_file)
        library = Library(data, options, catalogue, starter_path=tmp_path / "no starter.gguf")
        hub = hub_for(fake, data, options=options)
        listed: list[int] = []
        fake.on_body = lambda *_: listed.append(len(library.installed()))
        fake.cuts.extend([1000, 2000])
        downloads = Downloads(
            data,
            catalogue,
            hub,
            options,
            on_arrived=lambda arrival: library.record_arrival(arrival.paths, arrival.sha256, arrival.repo),
            policy=QUICK,
        )
        downloads.start()
        added = downloads.add(DownloadRequest(REPO, "Q4_K_M"))
        done = until(lambda: downloads.all()[0], lambda download: download.state in ("done", "failed"))
        assert done.failure is None
        assert listed == [0] * 4
        (model,) = library.installed()
        assert (model.id, model.problem, model.n_files) == (done.model_id, "", 2)
        assert model.publisher == "acme"
        assert model.verified == "ok"
        downloads.close()
        assert hub.model(HubModelRequest(REPO)).files[0].size_bytes == added.size_bytes
        hub.close()
        catalogue.close()
