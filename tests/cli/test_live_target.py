"""Which server is spoken to with which token, and that the token goes nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from gpuwise.cli.client.errors import LiveError, NotPermittedError, UnreachableError
from gpuwise.cli.client.target import find_target, is_loopback

URL = "http://127.0.0.1:8787"
VARIABLES = (
    "GPUWISE_SERVER",
    "GPUWISE_STATE",
    "GPUWISE_TOKEN_FILE",
    "GPUWISE_API_TOKEN",
    "GPUWISE_CA",
    "XDG_STATE_HOME",
)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state folder of a server that runs: this process stands for it."""
    folder = tmp_path / "state"
    write(folder / "endpoint.json", json.dumps({"url": URL, "pid": os.getpid()}))
    write(folder / "token", "owner-token\n")
    return folder


def test_the_server_of_a_state_folder(state: Path) -> None:
    target = find_target(state=state)
    assert (target.url, target.token, target.token_from) == (URL, "owner-token", str(state / "token"))


def test_options_before_variables_before_the_default(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(state.parent))
    state.rename(state.parent / "gpuwise")
    assert find_target().url == URL
    monkeypatch.setenv("GPUWISE_STATE", str(state.parent / "gpuwise"))
    monkeypatch.setenv("XDG_STATE_HOME", "/nowhere")
    assert find_target().url == URL
    monkeypatch.setenv("GPUWISE_SERVER", "http://localhost:1")
    assert find_target().url == "http://localhost:1"
    assert find_target(state=state.parent / "gpuwise").url == URL
    assert find_target("http://[::1]:2/").url == "http://[::1]:2"


def test_the_token_of_variables(state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUWISE_API_TOKEN", "from-variable")
    assert find_target(state=state).token == "from-variable"
    monkeypatch.setenv("GPUWISE_TOKEN_FILE", str(write(tmp_path / "mine", "from-file")))
    assert find_target(state=state).token == "from-file"


def test_an_authority_is_named_by_a_variable(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWISE_CA", "/etc/ca.pem")
    assert find_target(state=state).ca_file == Path("/etc/ca.pem")


# -- where the token must not go ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:1", True), ("http://127.9.9.9", True), ("http://localhost", True), ("http://[::1]:5", True),
        ("http://10.0.0.1", False), ("http://example.org", False), ("http://127.0.0.1.example.org", False),
        ("http://localhost.example.org", False), ("http://[::2]", False), ("http://0.0.0.0", False),
    ],
)  # fmt: skip
def test_what_is_this_machine(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected


@pytest.mark.parametrize("url", ["http://10.0.0.1:8787", "http://127.0.0.1.example.org", "http://gpus.example.org"])
def test_a_token_is_not_sent_unencrypted_over_a_network(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWISE_API_TOKEN", "t")
    with pytest.raises(NotPermittedError, match="not sent unencrypted"):
        find_target(url)


def test_the_owners_token_is_not_sent_to_another_machine(state: Path) -> None:
    with pytest.raises(NotPermittedError, match="GPUWISE_TOKEN_FILE"):
        find_target("https://gpus.example.org", state)


def test_a_token_for_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWISE_API_TOKEN", "t")
    target = find_target("https://gpus.example.org/gpus/")
    assert (target.url, target.token, target.is_secure) == ("https://gpus.example.org/gpus", "t", True)


def test_the_port_of_a_server_that_is_gone_does_not_get_the_token(state: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    write(state / "endpoint.json", json.dumps({"url": URL, "pid": gone.pid}))
    with pytest.raises(UnreachableError, match="not running any more; start it with: gpuwise up"):
        find_target(state=state)


def test_an_endpoint_may_not_point_over_a_network(state: Path) -> None:
    write(state / "endpoint.json", json.dumps({"url": "http://10.0.0.1:1", "pid": os.getpid()}))
    with pytest.raises(NotPermittedError, match="not sent unencrypted"):
        find_target(state=state)


# -- what is wrong -----------------------------------------------------------------------------------------------------


def test_no_server_was_ever_started(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match=r"no server is running here .*; start it with: gpuwise up"):
        find_target(state=tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["", "{}", "[]", '"x"', '{"url": 5, "pid": "x"}', '{"url": "http://h", "pid": -1}'])
def test_an_endpoint_that_is_none(text: str, state: Path) -> None:
    write(state / "endpoint.json", text)
    with pytest.raises(LiveError):
        find_target(state=state)


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8787", "ftp://127.0.0.1", "http://", "http://127.0.0.1:0", "http://127.0.0.1:99999", "http://[", "x"],
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(LiveError, match=r"http://127\.0\.0\.1:8787"):
        find_target(url)


@pytest.mark.parametrize("url", ["http://ada:pw@127.0.0.1", "http://127.0.0.1/?token=x", "http://127.0.0.1/#x"])
def test_secrets_do_not_belong_in_addresses(url: str) -> None:
    with pytest.raises(LiveError, match="leave user, password") as caught:
        find_target(url)
    assert "pw" not in str(caught.value)


def test_no_token(state: Path) -> None:
    (state / "token").unlink()
    with pytest.raises(NotPermittedError, match=r"token: No such file .*GPUWISE_TOKEN_FILE"):
        find_target(state=state)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_token_that_others_can_read(mode: int, state: Path) -> None:
    (state / "token").chmod(mode)
    with pytest.raises(NotPermittedError, match=rf"mode {mode:04o}\); run: chmod 600 {state / 'token'}"):
        find_target(state=state)


@pytest.mark.parametrize("text", ["", "  \n", "two words", "a\nb", "ü", "x" * 5000])
def test_a_token_that_is_none(text: str, state: Path) -> None:
    write(state / "token", text)
    with pytest.raises(NotPermittedError, match="not a token"):
        find_target(state=state)


def test_a_token_is_never_told(state: Path) -> None:
    write(state / "token", "secret two")
    with pytest.raises(NotPermittedError) as caught:
        find_target(state=state)
    assert "secret" not in str(caught.value)
