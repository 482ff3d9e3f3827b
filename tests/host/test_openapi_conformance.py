"""What the OpenAPI document promises, asked of a running host with requests that schemathesis makes up from it.

Whatever is sent, valid or not, the answer has a documented status, content type and shape, and is never the server's
fault: the worker behind is a fake that answers everything.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, CheckFunction, GenerationMode
from schemathesis.checks import content_type_conformance, response_schema_conformance, status_code_conformance
from schemathesis.schemas import APIOperation

from runtime.host.api.openapi import OPERATIONS, PUBLIC_OPERATIONS, build_document
from runtime.host.api.operations import EVENTS, Operation
from tests.host.conftest import RunningHost

EXAMPLES, EXAMPLES_ADMIN = 8, 3
NEVER_ASKED = {("post", "/admin/shutdown"), ("get", "/admin/events"), ("put", "/admin/api")}
"""The end of the host, a stream without end, and what would move the listener under the test."""

CHECKS: list[CheckFunction] = [status_code_conformance, content_type_conformance, response_schema_conformance]
SCHEMA = schemathesis.openapi.from_dict(build_document("1.0", OPERATIONS))


def operations() -> Iterator[Any]:
    for operation in OPERATIONS:
        if (operation.method, operation.path) not in NEVER_ASKED:
            yield pytest.param(operation, id=f"{operation.method} {operation.path}")


def send(host: RunningHost, case: Case[Any], *, is_public: bool) -> httpx.Response:
    client = host.public if is_public else host.private
    made = case.as_transport_kwargs(base_url=str(client.base_url))
    request = client.build_request(
        made["method"],
        made["url"],
        headers={name: value for name, value in made["headers"].items() if name.lower() in ("content-type", "accept")},
        params=made.get("params"),
        json=made.get("json"),
        content=made.get("data"),
    )
    return client.send(request)


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("operation", list(operations()))
def test_when_asked_with_anything_then_the_answer_is_a_documented_one(
    host: RunningHost, operation: Operation, mode: GenerationMode
) -> None:
    described: APIOperation[Any, Any, Any, Any] = SCHEMA[operation.path][operation.method.upper()]
    if mode is GenerationMode.NEGATIVE and operation.body is None:
        pytest.skip("nothing can be wrong in it")

    @settings(
        max_examples=EXAMPLES if operation in PUBLIC_OPERATIONS else EXAMPLES_ADMIN,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=described.as_strategy(generation_mode=mode))
    def check(case: Case[Any]) -> None:
        if isinstance(case.body, dict) and "model" in case.body and mode is GenerationMode.POSITIVE:
            case.body["model"] = "fake"
        answer = send(host, case, is_public=operation in PUBLIC_OPERATIONS)
        comes_back = answer.status_code == 503 and "retry-after" in answer.headers  # the model was unloaded meanwhile
        assert answer.status_code < 500 or comes_back, (case.body, answer.text)
        # The document describes what stands behind `data:`, which schemathesis would hold against the event around it.
        is_stream = answer.headers.get("content-type", "").startswith(EVENTS)
        case.validate_response(answer, checks=CHECKS[:2] if is_stream else CHECKS)

    check()
