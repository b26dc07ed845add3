"""`POST /api/v1/prune`."""

from tests.http.edge_server.conftest import Served


def test_prune_answers_what_went(edge: Served):
    assert edge.fetch("POST", "/api/v1/prune").json() == {"removed": {}, "freed_bytes": 0}
    assert edge.fetch("GET", "/api/v1/prune").status == 405
    assert "/api/v1/prune" in edge.fetch("GET", "/openapi.json").json()["paths"]
