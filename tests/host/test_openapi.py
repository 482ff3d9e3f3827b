"""The OpenAPI document matches the routes that are served."""

from pathlib import Path

from runtime.host.api import (
    admin_library,
    admin_models,
    admin_tools,
    anthropic,
    app,
    native,
    native_adapters,
    ollama,
    ollama_models,
    responses,
)
from runtime.host.api.openapi import OPERATIONS, build_document
from tests.host.conftest import RunningHost

MODULES = (
    app,
    admin_library,
    admin_models,
    admin_tools,
    anthropic,
    native,
    native_adapters,
    ollama,
    ollama_models,
    responses,
)


def test_when_read_then_every_reference_resolves() -> None:
    document = build_document("1.0")
    text = repr(document)
    names = {part.split("'")[0] for part in text.split("#/components/schemas/")[1:]}
    assert names
    assert names <= set(document["components"]["schemas"])
    assert document["openapi"] == "3.1.0"
    chat = document["components"]["schemas"]["ChatBody"]["properties"]
    assert chat["temperature"]["maximum"] == 10
    assert chat["temperature"]["description"]


def test_when_compared_with_the_routes_then_all_are_documented(host: RunningHost) -> None:
    served = host.private.get("/admin/openapi.json").json()
    assert set(served["paths"]) == {operation.path for operation in OPERATIONS}
    for operation in OPERATIONS:
        path = operation.path.replace("{model}", "fake").replace("{name}", "x")
        is_of_kept = operation.path.startswith("/v1/responses/{response_id}")
        if operation.method == "get" and operation.path != "/admin/events" and not is_of_kept:
            assert host.private.get(path).status_code == 200, path
        wrong = host.private.request("PATCH", path)
        assert wrong.status_code == 405, path
        assert operation.method.upper() in wrong.headers["allow"], path


def test_when_routes_are_counted_then_none_is_missing_in_the_document() -> None:
    sources = "".join(Path(str(module.__file__)).read_text() for module in MODULES)
    assert sources.count("    Route(") == len({operation.path for operation in OPERATIONS})
