"""Jobs as their users' Unix accounts: what they are, and what they can neither read, write nor signal.

The service is root, as which these tests must run; the accounts are real, and made for them.
"""

from __future__ import annotations

import grp
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import COMMAND
from live_accounts import PYTHON, AccountsUp, Person, open_folder, people
from live_up import PATIENCE_S, until

from gpuwise.cli.client.http import connect

SOURCE = Path(__file__).resolve().parents[2] / "src"

STEAL = """
import sys
for path in sys.argv[1:]:
    try:
        print("read", path, open(path, "rb").read(200))
    except OSError as error:
        print("refused", path, error.strerror)
"""

TRY_ALL = """
import os, sys
for path in open(sys.argv[1]).read().splitlines():
    for name, flags in (("read", os.O_RDONLY), ("write", os.O_WRONLY)):
        try:
            os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW))
        except OSError:
            continue
        print(name, path)
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder() as made:
        yield made


@pytest.fixture(scope="module")
def both(folder: Path) -> Iterator[tuple[Person, Person]]:
    with people(folder) as made:
        yield made


@pytest.fixture(scope="module")
def ada(both: tuple[Person, Person]) -> Person:
    return both[0]


@pytest.fixture(scope="module")
def bob(both: tuple[Person, Person]) -> Person:
    return both[1]


@pytest.fixture(scope="module")
def up(folder: Path, both: tuple[Person, Person]) -> Iterator[AccountsUp]:
    service = AccountsUp(folder)
    yield service
    service.stop()


@pytest.fixture(autouse=True)
def _no_job_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that fails leaves the devices to the next."""
    yield
    if "up" in request.fixturenames:
        request.getfixturevalue("up").cancel_all()


def test_a_user_s_job_cannot_read_the_owner_s_token(up: AccountsUp, ada: Person) -> None:
    secret = (up.state / "token").read_text().strip()
    assert up.get("status")["role"] == "admin"
    job = up.script(ada, STEAL, up.state / "token", f"/proc/{up.pid}/environ", up.state / "gpuwise.db")
    lines = up.succeeds(job)
    assert [line.split()[0] for line in lines] == ["refused"] * 3, lines
    assert secret not in up.printed(job)


def test_a_program_is_found_by_its_name(up: AccountsUp, ada: Person) -> None:
    """Also where the account may not read the service's Python."""
    assert up.succeeds(up.send(ada, "sh", "-c", "id -un")) == [ada.name]


def test_without_the_option_it_can_and_root_is_warned(ada: Person) -> None:
    """What the option is for; if this fails, the test above proves nothing any more."""
    with open_folder() as folder:
        service = AccountsUp(folder, as_user=None)
        try:
            secret = (service.state / "token").read_text().strip()
            service.succeeds(stolen := service.script(ada, STEAL, service.state / "token"))
            assert secret in service.printed(stolen)
            assert "warning: jobs of all users run as root" in service.log()
            assert "--as-user submitter" in service.log()
            (note,) = [each for each in service.get("status")["notes"] if "run as root" in each]
            assert "--as-user" in note
            answer = service.run("tokens", "create", "cy")
            assert answer.code == 0
            assert answer.err.startswith(
                "gpuwise: jobs of cy run as root, the account of the service, and can read its"
            )
            assert service.run("tokens", "create", "dee", "--role", "viewer").err == ""
        finally:
            service.stop()


def test_with_it_nobody_is_warned(up: AccountsUp, ada: Person) -> None:
    assert "warning" not in up.log()
    assert not [each for each in up.get("status")["notes"] if "root" in each]
    assert up.get("status")["jobs_run_as"] == "submitter"
    assert up.run("tokens", "create", ada.name).err == ""


IDENTITY = """
import json, os
found = {name: os.environ.get(name) for name in ("HOME", "USER", "LOGNAME", "SHELL", "TMPDIR")}
found |= {"uids": os.getresuid(), "gids": os.getresgid(), "groups": sorted(os.getgroups()), "cwd": os.getcwd()}
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
found |= {name: status[name].split()[0] for name in ("CapPrm", "CapEff", "CapAmb")}
found["files"] = sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]  # the last is of listdir
for name in ("out", "err"):
    with open(f"/dev/std{name}", "a") as again: pass
found["oom"] = open("/proc/self/oom_score_adj").read().strip()
try:
    os.setresuid(0, 0, 0)
    found["root"] = "again"
except PermissionError:
    found["root"] = "gone"
print(json.dumps(found))
"""


def test_a_job_is_its_user_in_every_respect(up: AccountsUp, ada: Person, bob: Person) -> None:
    for person in (ada, bob):
        job = up.script(person, IDENTITY)
        found = json.loads(up.succeeds(job)[0])
        primary, other = grp.getgrnam(person.name).gr_gid, grp.getgrnam(person.group).gr_gid
        assert found["uids"] == [person.uid] * 3
        assert found["gids"] == [primary] * 3
        assert found["groups"] == sorted([primary, other])
        assert [found[name] for name in ("HOME", "USER", "LOGNAME", "SHELL", "TMPDIR")] == [
            str(person.home), person.name, person.name, "/bin/sh", None,
        ]  # fmt: skip
        assert found["cwd"] == str(up.state / "jobs" / job / "work")
        assert {found[name] for name in ("CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
        assert (found["files"], found["oom"], found["root"]) == ([0, 1, 2], "500", "gone")


def test_nothing_of_the_service_or_of_other_users_can_be_opened(up: AccountsUp, ada: Person, bob: Person) -> None:
    theirs = up.script(bob, WAIT + "open('kept', 'w').write('secret')\nwait()")
    done = up.script(bob, "import os; open(os.environ['GPUWISE_CHECKPOINT_DIR'] + '/latest.json', 'w').write('{}')")
    up.succeeds(done)
    up.says(theirs, "waits")
    mine = up.script(ada, WAIT + f"wait()\n{TRY_ALL}", paths := up.home / "paths")
    up.says(mine, "waits")
    up.get("status")
    everything = [str(path) for path in sorted(up.state.rglob("*"))]
    for name in ("token", "gpuwise.db", "gpuwise.db-wal", "generation.json", "endpoint.json", f"live/{theirs}.1"):
        assert str(up.state / name) in everything
    assert str(up.state / "jobs" / theirs / "work" / "kept") in everything
    paths.write_text("\n".join(everything))
    go(up, mine)
    expected = {"waits"}
    for uid in (job["id"] for job in up.get("jobs")["jobs"] if job["user"] == ada.name):
        own = up.state / "jobs" / uid
        expected |= {f"read {own / name}" for name in ("work", "checkpoint", "attempts/1/job", "output.log")}
        expected.add(f"write {own / 'output.log'}")
    assert set(up.succeeds(mine)) == expected
    go(up, theirs)
    up.succeeds(theirs)


def test_folders_are_passed_and_not_listed(up: AccountsUp, ada: Person) -> None:
    job = up.script(ada, "pass")
    up.succeeds(job)
    folder = up.state / "jobs" / job
    modes = {path: stat.S_IMODE((up.state / path).stat().st_mode) for path in (".", "jobs", "live")}
    assert modes == {".": 0o711, "jobs": 0o711, "live": 0o700}
    passed = (folder, folder / "attempts", folder / "attempts" / "1")
    assert {(path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) for path in passed} == {(0, 0o711)}
    own = (folder / "work", folder / "checkpoint", folder / "attempts" / "1" / "job")
    assert {(path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) for path in own} == {(ada.uid, 0o700)}


WAIT = """
import os, time
def wait():
    print("waits", flush=True)
    while not os.path.exists(os.environ["GPUWISE_CHECKPOINT_DIR"] + "/go"): time.sleep(0.02)
"""


def go(up: AccountsUp, uid: str) -> None:
    """Lets a job continue that waits."""
    (up.state / "jobs" / uid / "checkpoint" / "go").touch()


SIGNAL = """
import os, signal, sys
for pid in sys.argv[1:]:
    for name in ("SIGTERM", "SIGKILL", "SIGUSR1", "SIGCONT"):
        try:
            os.kill(int(pid), getattr(signal, name))
            print("signalled", pid)
        except PermissionError:
            print("refused")
"""


def test_a_job_signals_neither_other_users_nor_supervisors(up: AccountsUp, ada: Person, bob: Person) -> None:
    theirs = up.script(bob, WAIT + "wait()")
    up.says(theirs, "waits")
    attempt = up.state / "jobs" / theirs / "attempts" / "1"
    supervisor = json.loads((attempt / "claim").read_text())["pid"]
    job = up.script(ada, f"import os\nprint(os.getppid())\n{SIGNAL}", *bob.processes(), supervisor, up.pid)
    lines = up.succeeds(job)
    assert set(lines[1:]) == {"refused"}
    assert len(lines) == 1 + 4 * 3
    own = up.script(ada, f"import os, sys\nsys.argv.append(os.getppid())\n{SIGNAL}")  # its own supervisor
    assert up.succeeds(own) == ["refused"] * 4
    go(up, theirs)
    up.succeeds(theirs)


FORGE = """
import json, os, socket, sys, time
other, mine, own = sys.argv[1], os.environ["GPUWISE_JOB_ID"], os.environ["GPUWISE_TOKEN"]
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
    while not os.path.exists(os.environ["GPUWISE_CHECKPOINT_DIR"] + "/go"):
        for job, token in ((other, own), (other, ""), (mine, own)):
            message = {"v": 1, "job": job, "attempt": 1, "token": token, "kind": "progress", "step": 7, "steps": 9}
            sender.sendto(json.dumps(message).encode(), os.environ["GPUWISE_SOCKET"])
        time.sleep(0.1)
"""


def test_a_job_cannot_speak_for_another_user_s(up: AccountsUp, ada: Person, bob: Person) -> None:
    theirs = up.script(bob, WAIT + "wait()")
    up.says(theirs, "waits")
    environ = f"/proc/{bob.processes()[0]}/environ"
    assert up.succeeds(up.script(ada, STEAL, environ))[0].startswith("refused")
    mine = up.script(ada, FORGE, theirs)
    until(lambda: up.get("jobs", mine)["step"] == 7, "its own progress")  # sent after the others
    assert up.get("jobs", theirs)["step"] is None
    for uid in (mine, theirs):
        go(up, uid)
        up.succeeds(uid)


def test_jobs_that_could_only_run_as_root_are_refused(up: AccountsUp) -> None:
    answer = up.run("submit", "--", "id")
    assert answer.code != 0
    assert "user 'root': account 'root' is root, as which no job runs; submit with the token of a user" in answer.err
    secret = up.new_token("nobody-of-that-name")
    for command in (("submit",), ("submit", "--dry-run"), ("run",)):
        answer = up.run(*command, "--", "id", GPUWISE_API_TOKEN=secret)
        assert answer.code != 0
        assert "there is no account 'nobody-of-that-name' on this machine; submit with" in answer.err


def test_a_folder_that_its_account_may_not_enter_is_named(up: AccountsUp, ada: Person, bob: Person) -> None:
    job = up.script(ada, "pass", workdir=str(up.state / "live"))
    assert up.ended(job) == "failed"
    why = up.get("jobs", job)["why_ended"]
    assert why.startswith(f"as account {ada.name}: its working folder may not be entered")


def test_a_job_is_cancelled_with_all_that_it_started(up: AccountsUp, ada: Person) -> None:
    job = up.script(
        ada, "import os\nif os.fork() == 0: os.setsid()\nprint('runs', flush=True)\nimport time; time.sleep(600)"
    )
    up.says(job, "runs\nruns")
    up.client(ada).post("jobs", job, "cancel")
    assert up.ended(job) == "cancelled"
    until(lambda: not ada.processes(), "its processes to be gone")


# -- terminals ---------------------------------------------------------------------------------------------------------


def as_person(
    person: Person, up: AccountsUp, *command: str, token: Person | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command line as an account, with a token in a file of theirs."""
    secret = person.home / "token"
    secret.write_text(up.token(token or person))
    secret.chmod(0o600)
    os.chown(secret, person.uid, -1)
    packages = [each for each in sys.path if each.endswith("site-packages")]
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(person.home), "GPUWISE_TOKEN_FILE": str(secret), "LANG": "C.UTF-8",
        "GPUWISE_SERVER": connect(state=up.state).target.url, "PYTHONPATH": os.pathsep.join([str(SOURCE), *packages]),
    }  # fmt: skip
    drop = ["setpriv", f"--reuid={person.name}", f"--regid={person.name}", "--init-groups"]
    return subprocess.run(
        [*drop, PYTHON, "-m", "gpuwise.cli.main", *command], env=environment, cwd=person.home, text=True,
        input="said\n", capture_output=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def client_python(up: AccountsUp, ada: Person) -> None:
    done = as_person(ada, up, "status")
    if done.returncode:
        pytest.skip(f"{PYTHON} cannot run gpuwise as another account: {done.stderr[-300:]}")


@pytest.mark.usefixtures("client_python")
def test_a_user_has_the_terminal_of_their_job(up: AccountsUp, ada: Person) -> None:
    done = as_person(ada, up, "run", "--", "sh", "-c", "id -un; read line; echo $line > /dev/stderr; exit 3")
    assert (done.returncode, done.stdout) == (3, f"{ada.name}\n"), done
    assert done.stderr.startswith("said\n")


@pytest.mark.usefixtures("client_python")
def test_others_have_not(up: AccountsUp, ada: Person, bob: Person) -> None:
    done = as_person(bob, up, "run", "--", "id", token=ada)
    assert done.returncode != 0
    assert f"your jobs run as account {ada.name}, and only that account and root may use their terminals" in done.stderr


def test_the_socket_of_a_terminal_is_its_account_s(up: AccountsUp, ada: Person) -> None:
    job = up.send(ada, "sleep", "600", terminal="pipe")
    socket = up.state / "jobs" / job / "attempts" / "1" / "terminal.sock"
    until(lambda: up.runs(job), "it to run")
    found = socket.stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (ada.uid, 0o600)
    up.client(ada).post("jobs", job, "cancel")
    assert up.ended(job) == "cancelled"


def test_root_may_use_the_terminal_of_a_user_s_job(up: AccountsUp, ada: Person) -> None:
    done = subprocess.run(
        [*COMMAND, "run", "--", "sh", "-c", "id -un; cat"], cwd=up.home, input=b"typed",
        env=up.environment | {"GPUWISE_API_TOKEN": up.token(ada)}, capture_output=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.stdout == f"{ada.name}\ntyped".encode(), done


# -- what up refuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--as-user", "no-such-account"), "there is no account 'no-such-account' on this machine"),
        (("--as-user", "root"), "account 'root' is root, as which no job runs; name an account"),
        (("--as-user", "submitter", "--mps"), "--mps cannot be used with --as-user"),
        (("--as-user", "submitter", "--demo"), "--demo cannot be used with --as-user"),
    ],
)
def test_up_says_what_cannot_be(tmp_path: Path, options: tuple[str, ...], error: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may name an account at all")
    answer = start(tmp_path / "state", *options)
    assert answer.returncode != 0
    assert error in answer.stderr
    assert not (tmp_path / "state" / "gpuwise.db").exists()


def test_up_refuses_a_folder_that_jobs_cannot_reach_or_others_can_replace(folder: Path, ada: Person) -> None:
    (closed := folder / "closed").mkdir(mode=0o700)
    answer = start(closed / "state", "--as-user", "submitter")
    assert f"{closed} may not be entered by other accounts" in answer.stderr
    assert "--state /var/lib/gpuwise" in answer.stderr
    answer = start(ada.home / "state", "--as-user", "submitter")
    assert answer.returncode != 0
    assert "may not be entered" in answer.stderr or "can be changed by others than root" in answer.stderr
    ada.home.chmod(0o755)
    assert (
        f"{ada.home} can be changed by others than root" in start(ada.home / "state", "--as-user", "submitter").stderr
    )


@pytest.mark.usefixtures("client_python")
def test_only_root_runs_jobs_as_others(up: AccountsUp, ada: Person) -> None:
    done = as_person(ada, up, "up", "--devices", "1", "--port", "0", "--as-user", "submitter")
    assert done.returncode != 0
    assert "--as-user submitter: only root can run jobs as other accounts" in done.stderr


def start(state: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A service that is refused."""
    command = [*COMMAND, "up", "--devices", "1", "--port", "0", "--state", str(state), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
