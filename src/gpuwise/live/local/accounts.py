"""The Unix accounts that jobs run as: that of the service, one for all jobs, or each that of its submitter."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from gpuwise.live.inbox import NotPossibleError
from gpuwise.live.local.supervisor.account import ROOT

SUBMITTER = "submitter"
"""As ``--as-user``: every job runs as the account that has the name of its user."""


class AccountError(NotPossibleError):
    """Jobs cannot run as an account."""


@dataclass(frozen=True, slots=True)
class Account:
    """A Unix account."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str

    @classmethod
    def named(cls, name: str) -> Account | None:
        """The account of a name, if there is one."""
        try:
            found = pwd.getpwnam(name)
        except (KeyError, ValueError):
            return None
        return cls(found.pw_name, found.pw_uid, found.pw_gid, found.pw_dir, found.pw_shell)

    def environment(self) -> dict[str, str]:
        """What a log-in sets."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell or "/bin/sh"}

    def launched(self) -> dict[str, str | int]:
        """What launch.json says of it."""
        return {"name": self.name, "uid": self.uid, "gid": self.gid}


@dataclass(frozen=True, slots=True)
class Accounts:
    """Which account the jobs of a user run as."""

    as_user: str
    """`SUBMITTER`, or the name of the account of all jobs."""

    def __post_init__(self) -> None:
        if os.geteuid() != ROOT:
            raise AccountError(
                f"--as-user {self.as_user}: only root can run jobs as other accounts; start gpuwise up as root, or "
                "leave out --as-user"
            )
        if self.as_user != SUBMITTER:
            self.of(self.as_user)

    def of(self, user: str) -> Account:
        """The account of a user's jobs; `AccountError` says why there is none."""
        if self.as_user != SUBMITTER:
            return self._checked(self.as_user, f"--as-user {self.as_user}", "name an account that has no privileges")
        return self._checked(
            user,
            f"jobs run as the account of their submitter, and user {user!r}",
            "submit with the token of a user who has an account (gpuwise tokens create NAME), or have the service "
            "started with --as-user ACCOUNT",
        )

    @staticmethod
    def _checked(name: str, who: str, advice: str) -> Account:
        account = Account.named(name)
        if account is None:
            raise AccountError(f"{who}: there is no account {name!r} on this machine; {advice}")
        if account.uid == ROOT:
            raise AccountError(f"{who}: account {name!r} is root, as which no job runs; {advice}")
        return account
