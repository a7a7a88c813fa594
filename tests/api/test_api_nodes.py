"""Nodes over REST: drained by an administrator, shown to all, noted in the audit."""

from __future__ import annotations

from running import Running


def test_a_node_is_drained_and_undrained(running: Running) -> None:
    (node,) = running.vi.get("/v1/nodes").json()["nodes"]
    assert (node["drained"], node["labels"], node["claimed_cpus"]) == (False, {}, 0.0)
    assert len({device["id"] for device in node["devices"]}) == len(node["devices"])
    for verb, drained in (("drain", True), ("drain", True), ("undrain", False)):
        assert running.ada.post(f"/v1/nodes/{node['name']}/{verb}").status_code == 204
        assert running.vi.get("/v1/nodes").json()["nodes"][0]["drained"] is drained
    noted = running.ada.get("/v1/audit?limit=3").json()["audit"]
    assert [(each["action"], each["target"]) for each in noted] == [
        ("undrain node", node["name"]),
        ("drain node", node["name"]),
        ("drain node", node["name"]),
    ]


def test_a_node_that_is_not_there_is_not_found(running: Running) -> None:
    answer = running.ada.post("/v1/nodes/nobody/drain")
    assert answer.status_code == 404
    assert "there is no node 'nobody'" in answer.json()["error"]["message"]
