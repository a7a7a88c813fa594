"""What jobs print, read over the API, from folders that the jobs themselves may write to."""

from __future__ import annotations

import os
import threading
import tracemalloc
from pathlib import Path

import pytest

from gpuwise.live.inbox import NotPossibleError
from gpuwise.service.live.errors import InvalidError
from gpuwise.service.live.job_logs import JobLogs
from running import Running, wait_for


@pytest.fixture
def logs(tmp_path: Path) -> JobLogs:
    (tmp_path / "jobs" / "7").mkdir(parents=True)
    return JobLogs(tmp_path / "jobs")


def folder_of(logs_at: Path) -> Path:
    return logs_at / "jobs" / "7"


def write(tmp_path: Path, data: bytes) -> None:
    (folder_of(tmp_path) / "output.log").write_bytes(data)


# -- pieces of files ----------------------------------------------------------------------------------------------


def test_a_log_that_is_not_there_yet_is_empty(logs: JobLogs) -> None:
    assert (logs.read("7", 0, 10).data, logs.read("8", 5, 10).next) == (b"", 5)


@pytest.mark.parametrize(
    ("offset", "limit", "data", "start"),
    [
        (0, 4, b"0123", 0),
        (4, 100, b"456789", 4),
        (10, 4, b"", 10),
        (99, 4, b"", 99),
        (-3, 9, b"789", 7),
        (-99, 2, b"01", 0),
    ],
)
def test_pieces_are_cut_by_bytes(
    logs: JobLogs, tmp_path: Path, offset: int, limit: int, data: bytes, start: int
) -> None:
    write(tmp_path, b"0123456789")
    piece = logs.read("7", offset, limit)
    assert (piece.data, piece.start, piece.next, piece.size) == (data, start, start + len(data), 10)


@pytest.mark.parametrize("limit", range(1, 12))
def test_pieces_put_together_are_the_log_whatever_their_size(logs: JobLogs, tmp_path: Path, limit: int) -> None:
    text = "a é € 𝄞 漢 z"
    write(tmp_path, text.encode())
    read, offset = b"", 0
    while piece := logs.read("7", offset, max(limit, 4)).data:
        piece.decode()  # no character is cut in two
        read, offset = read + piece, offset + len(piece)
    assert read.decode() == text


def test_what_is_no_utf8_is_shown_byte_for_byte(logs: JobLogs, tmp_path: Path) -> None:
    # a lone continuation byte, a character that is broken off, an encoded surrogate (3 bytes), a byte that never occurs
    write(tmp_path, b"a\x80b\xe2\x82c\xed\xa0\x80d\xff")
    piece = logs.read("7", 0, 100, complete=True)
    assert piece.data == b"a?b??c???d?"
    assert piece.next == piece.size == 11


def test_a_character_that_is_not_there_in_full_yet_is_waited_for(logs: JobLogs, tmp_path: Path) -> None:
    write(tmp_path, b"ok \xe2\x82")
    assert logs.read("7", 0, 100).data == b"ok "
    assert logs.read("7", 0, 100, complete=True).data == b"ok ??"
    write(tmp_path, b"ok \xe2\x82\xac")
    assert logs.read("7", 3, 100).data.decode() == "€"


@pytest.mark.parametrize("uid", ["", ".", "..", "../7", "7/../7", "7/", "/etc", "7\0", "7\n", "x", "07", "٧"])
def test_only_ids_name_logs(logs: JobLogs, tmp_path: Path, uid: str) -> None:
    write(tmp_path, b"secret")
    with pytest.raises(InvalidError):
        logs.read(uid, 0, 10)


def test_links_are_not_followed(logs: JobLogs, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("secret")
    log = folder_of(tmp_path) / "output.log"
    log.symlink_to(secret)
    with pytest.raises(NotPossibleError, match="was replaced"):
        logs.read("7", 0, 10)
    log.unlink()
    os.link(secret, log)
    with pytest.raises(NotPossibleError, match="was replaced"):
        logs.read("7", 0, 10)


def test_a_linked_folder_is_not_entered(logs: JobLogs, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "output.log").write_text("secret")
    (tmp_path / "jobs" / "8").symlink_to(elsewhere)
    with pytest.raises(NotPossibleError, match="was replaced"):
        logs.read("8", 0, 10)


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_is_not_waited_for(logs: JobLogs, tmp_path: Path, kind: str) -> None:
    log = folder_of(tmp_path) / "output.log"
    os.mkfifo(log) if kind == "pipe" else log.mkdir()
    with pytest.raises(NotPossibleError, match="was replaced"):
        logs.read("7", 0, 10)


def test_a_huge_log_is_not_read_into_memory(logs: JobLogs, tmp_path: Path) -> None:
    log = folder_of(tmp_path) / "output.log"
    with log.open("wb") as file:
        file.truncate(1 << 40)
        file.seek(-4, os.SEEK_END)
        file.write(b"end\n")
    tracemalloc.start()
    piece = logs.read("7", -4, 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (piece.data, piece.size) == (b"end\n", 1 << 40)
    assert peak < 3 << 20


def test_no_file_is_left_open(logs: JobLogs, tmp_path: Path) -> None:
    write(tmp_path, b"x")
    (tmp_path / "jobs" / "8").mkdir()
    (tmp_path / "jobs" / "8" / "output.log").symlink_to("/etc/passwd")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        logs.read("7", 0, 1)
        with pytest.raises(NotPossibleError):
            logs.read("8", 0, 1)
    assert len(os.listdir("/proc/self/fd")) <= before


# -- over the API -------------------------------------------------------------------------------------------------


def test_a_log_is_read_in_parts(running: Running) -> None:
    uid = running.bob.submit("sh", "-c", "echo first; echo second >&2")
    running.bob.ended(uid)
    whole = running.bob.get(f"/v1/jobs/{uid}/logs")
    assert whole.text == "first\nsecond\n"
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    part = running.bob.get(f"/v1/jobs/{uid}/logs?offset=6&limit=4")
    assert part.text == "seco"
    assert [part.headers[f"X-Log-{name}"] for name in ("Start", "Offset", "Size")] == ["6", "10", "13"]
    assert running.bob.get(f"/v1/jobs/{uid}/logs?offset=10").text == "nd\n"
    assert running.bob.get(f"/v1/jobs/{uid}/logs?offset=-3").text == "nd\n"
    assert running.bob.get(f"/v1/jobs/{uid}/logs?offset=99").text == ""


@pytest.mark.parametrize(
    "query", ["offset=x", "offset=1e3", f"offset={2**63}", "limit=0", "limit=99999999", "follow=x"]
)
def test_wrong_parts_are_refused(running: Running, query: str) -> None:
    uid = running.bob.submit("true")
    assert running.bob.get(f"/v1/jobs/{uid}/logs?{query}").status_code == 422


def test_a_log_is_followed_to_its_end_while_the_job_runs(running: Running) -> None:
    gate = running.jobs_folder / "go-on"
    uid = running.bob.submit("sh", "-c", f"echo one; until [ -e {gate} ]; do sleep 0.05; done; echo two")
    with running.bob.stream(f"/v1/jobs/{uid}/logs?follow=true") as answer:
        lines = answer.iter_lines()
        assert next(lines) == "one"
        assert running.bob.job(uid)["status"] in ("starting", "running")
        gate.touch()
        assert list(lines) == ["two"]
    gate.unlink()
    assert running.bob.job(uid)["status"] == "succeeded"


def test_a_job_is_followed_from_before_it_starts(running: Running) -> None:
    uid = running.bob.submit("echo", "at last")
    held = running.bob.submit("echo", "held")
    running.bob.post(f"/v1/jobs/{held}/suspend")
    followed: list[str] = []

    def follow() -> None:
        with running.bob.stream(f"/v1/jobs/{held}/logs?follow=true") as answer:
            followed.extend(answer.iter_lines())

    thread = threading.Thread(target=follow)
    thread.start()
    running.bob.ended(uid)
    assert thread.is_alive()
    running.bob.post(f"/v1/jobs/{held}/resume")
    thread.join(30)
    assert followed in (["held"], ["held", "held"])  # it may have been on its way when it was held


def test_following_a_job_that_has_ended_ends(running: Running) -> None:
    uid = running.bob.submit("echo", "done")
    running.bob.ended(uid)
    with running.bob.stream(f"/v1/jobs/{uid}/logs?follow=true&offset=2") as answer:
        assert answer.read() == b"ne\n"
        assert answer.headers["X-Log-Start"] == "2"


def test_a_link_that_a_job_put_in_its_folder_is_not_followed(running: Running) -> None:
    secret = running.deployment.folder.path / "token"
    uid = running.bob.submit("sh", "-c", f"cd ..; rm output.log; ln -s {secret} output.log; sleep 60")
    log = running.jobs_folder / uid / "output.log"
    wait_for(log.is_symlink, "the link")
    for query in ("", "?follow=true", "?offset=-10"):
        answer = running.bob.get(f"/v1/jobs/{uid}/logs{query}")
        assert answer.status_code == 409
        assert secret.read_text().strip() not in answer.text
    running.bob.post(f"/v1/jobs/{uid}/cancel")


def test_ids_lead_nowhere_else(running: Running) -> None:
    for path in ("..%2f..%2ftoken", "%2e%2e/token", "1%2f..%2f..", "..", "1/../../token"):
        answer = running.ada.get(f"/v1/jobs/{path}/logs")
        assert answer.status_code in (404, 422)
