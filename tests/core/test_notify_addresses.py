"""Addresses that are notified: which there are, and how they are shown."""

from __future__ import annotations

import pytest

from gpuwise.core.job.notify import destination, is_address, masked
from gpuwise.core.job.property import PropertyError
from gpuwise.core.job.request import JobRequest

GOOD = {
    "https://hooks.slack.com/services/T0/B0/secret": "https://hooks.slack.com/***",
    "http://10.0.0.5:8080/x?token=secret": "http://10.0.0.5:8080/***",
    "https://[2001:db8::1]:443?secret": "https://[2001:db8::1]:443/***",
    "http://localhost": "http://localhost",
    "http://my_service/": "http://my_service",
    "mailto:ada@example.org": "mailto:ada@example.org",
    "mailto:a.b+jobs=x@mail-1.example.org": "mailto:a.b+jobs=x@mail-1.example.org",
}
WRONG = [
    "", "ftp://host/secret", "hooks.slack.com/secret", "https://", "https:///secret", "https://user:secret@host/x",
    "https://secret@host/x", "https://host:99999/secret", "https://host:0/secret", "https://host:x/secret",
    "https://host/secret here", "https://host/secret\r\nX: y", "https://host/sécret", "https://hôst/secret", "https://-host/secret",
    "https://host\\@evil/secret", "https://[::g]/secret", "https://host/" + "secret" * 400, "HTTPS://host/secret\n",
    "mailto:", "mailto:secret", "mailto:secret@host?bcc=eve@host", "mailto:secret@host,eve@host",
    "mailto:secret@host\nBcc: eve@host", "mailto:.secret@host", "mailto:<secret@host>", "mailto:sécret@host",
    "javascript:secret",
]  # fmt: skip


@pytest.mark.parametrize("address", GOOD)
def test_what_is_an_address_is_accepted_and_shown_without_its_secret(address: str) -> None:
    assert is_address(address)
    assert masked(address) == GOOD[address]
    request = JobRequest(command=("true",), notify=[address])  # type: ignore[arg-type]
    assert request.notify == (address,)
    assert JobRequest.from_json(request.to_json()) == request


@pytest.mark.parametrize("address", WRONG)
def test_what_is_none_is_refused_without_repeating_what_may_be_secret(address: str) -> None:
    with pytest.raises(PropertyError, match=r"it must be an address .* such as https://hooks") as refused:
        JobRequest(command=("true",), notify=("mailto:ada@example.org", address))
    assert "secret" not in str(refused.value)
    assert "eve" not in str(refused.value)


def test_there_are_four_at_most() -> None:
    with pytest.raises(PropertyError, match="notify is '\\*\\*\\*'; it must be at most 4 addresses"):
        JobRequest(command=("true",), notify=("mailto:ada@example.org",) * 5)


def test_the_destination_is_the_server() -> None:
    assert destination("https://Hooks.example.org:8443/a?b#c") == "https://hooks.example.org:8443"
    assert destination("mailto:ada@example.org") == destination("mailto:bob@example.net") == "mailto:"
