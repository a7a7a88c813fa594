"""Job files: what they come to, and that whatever is wrong with one is told in one line that names the place."""

from __future__ import annotations

import json
import math
from datetime import datetime
from functools import partial
from pathlib import Path
from time import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwise.cli.submit import draft as draft_module
from gpuwise.cli.submit.draft import Draft
from gpuwise.cli.submit.environment import job_environment
from gpuwise.cli.submit.fields import FIELDS
from gpuwise.cli.submit.job_file import read_jobfile
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.job.request import JobRequest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "jobs"
GIB = 2**30


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder the user is in, without an environment to take along."""
    monkeypatch.setattr(draft_module, "job_environment", partial(job_environment, mine={}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str, name: str = "job.toml") -> list[Draft]:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")
    return read_jobfile(Path(name))


def body(text: str) -> dict[str, Any]:
    (draft,) = read('command = "true"\n' + text)
    return draft.body()


def bodies(text: str) -> list[dict[str, Any]]:
    return [draft.body() for draft in read(text)]


def wrong(text: str) -> str:
    with pytest.raises(GpuwiseError) as caught:
        bodies(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- one job -----------------------------------------------------------------------------------------------------------


def test_a_file_with_everything(folder: Path) -> None:
    (draft,) = read(
        'command = ["python", "train.py", "--lr", "0.1"]\nworkdir = "sub"\nname = "resnet"\nqueue = "vision"\n'
        'gpus = "1-4"\ngpu_memory = "4GiB"\ngpu_type = "A100,V100"\nsharing = "exclusive,time-slice"\ncpus = 2\n'
        'memory = "16GiB"\nduration = "2h"\nsteps = 1e4\npriority = -3\ndeadline = 2030-01-31T18:00:00Z\nretries = 2\n'
        'after = [17, "18-2"]\narray = "0-2,7"\nprocesses = "per-gpu"\ntime_limit = "1d"\ngrace = 30\n'
        '[env]\nLR = 0.1\nNAME = "a b"\n'
    )
    assert draft.body() == {
        "command": ["python", "train.py", "--lr", "0.1"],
        "workdir": str(folder / "sub"),
        "name": "resnet",
        "queue": "vision",
        "min_gpus": 1,
        "max_gpus": 4,
        "gpu_memory_bytes": 4 * GIB,
        "gpu_types": ["A100", "V100"],
        "sharing": ["exclusive", "time_slice"],
        "cpus": 2,
        "memory_bytes": 16 * GIB,
        "duration_s": 7200,
        "steps": 10_000,
        "priority": -3,
        "deadline_s": datetime.fromisoformat("2030-01-31T18:00:00Z").timestamp(),
        "retries": 2,
        "after": ["17", "18-2"],
        "array": [0, 1, 2, 7],
        "processes": "per-gpu",
        "time_limit_s": 86_400,
        "grace_s": 30,
        "env": {"LR": "0.1", "NAME": "a b"},
    }  # gpus is 1, the fewest it runs on, which is the default


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ('duration = "01:30:00"', "duration_s", 5400),
        ("duration = 90", "duration_s", 90),
        ("gpu_memory = 1024", "gpu_memory_bytes", 1024),
        ('gpu_memory = "512MiB"', "gpu_memory_bytes", 512 * 2**20),
        ("gpu_frac = 0.25", "gpu_frac", 0.25),
        ("gpus = 0", "gpus", 0),
        ('gpus = "3"', "gpus", 3),
        ("array = 3", "array", [0, 1, 2]),
        ('array = "3"', "array", [0, 1, 2]),
        ("array = [5, 3]", "array", [5, 3]),
        ('array = "0,3,7"', "array", [0, 3, 7]),
        ("after = 17", "after", ["17"]),
        ('after = "17, 18"', "after", ["17", "18"]),
        ('gpu_type = ["A100"]', "gpu_types", ["A100"]),
        ('workdir = ""', "workdir", None),
        ('workdir = "/data"', "workdir", "/data"),
    ],
)
def test_values_as_people_write_them(text: str, name: str, expected: object, folder: Path) -> None:
    assert body(text).get(name) == expected


def test_roles_are_text_or_tables_and_say_how_many_gpus_there_are(folder: Path) -> None:
    text = body('role = ["ps:2,cpus=4,memory_bytes=8GiB", "worker:3,min_count=1,gpus=2"]')
    tables = body(
        '[[role]]\nname = "ps"\ncount = 2\ncpus = 4\nmemory_bytes = "8GiB"\n'
        '[[role]]\nname = "worker"\ncount = 3\nmin_count = 1\ngpus = 2'
    )
    assert text == tables
    assert (text["gpus"], text["min_gpus"]) == (6, 2)
    assert text["roles"][0] == {"name": "ps", "count": 2, "cpus": 4, "memory_bytes": 8 * GIB}


@pytest.mark.parametrize("text", ["'zone=a,b'", "['zone=a,b']", "{zone = 'a,b'}", "{zone = ['a', 'b']}"])
def test_labels_are_text_or_a_table(text: str, folder: Path) -> None:
    assert body(f"require = {text}\nwithin = 'zone'")["require"] == {"zone": ["a", "b"]}


def test_a_command_on_one_line_is_split_as_a_shell_would(folder: Path) -> None:
    (draft,) = read("command = \"python -c 'print(1); print(2)' $HOME\"")
    assert draft.body()["command"] == ["python", "-c", "print(1); print(2)", "$HOME"]


def test_a_deadline_may_be_counted_from_now(folder: Path) -> None:
    assert body('deadline = "+6h"')["deadline_s"] == pytest.approx(time() + 6 * 3600, abs=5)


def test_a_deadline_without_a_zone_is_local(folder: Path) -> None:
    assert body('deadline = "2030-01-31T18:00"')["deadline_s"] == datetime(2030, 1, 31, 18).timestamp()


def test_a_working_folder_is_seen_from_the_file(folder: Path) -> None:
    (draft,) = read('command = "true"\nworkdir = "../data"', "sub/job.toml")
    assert draft.body()["workdir"] == str(folder / "data")


def test_without_a_working_folder_it_is_where_the_user_is(folder: Path) -> None:
    (draft,) = read('command = "true"', "sub/job.toml")
    assert draft.body()["workdir"] == str(folder)


def test_options_count_more_than_the_file(folder: Path) -> None:
    (draft,) = read('command = "true"\ngpus = 4\nname = "a"\nworkdir = "x"\n[env]\nA = 1\nB = 2\n')
    changed = draft.with_options({"gpus": "2", "workdir": "y", "env": {"B": "3"}}).body()
    assert changed["gpus"] == 2
    assert changed["name"] == "a"
    assert changed["workdir"] == str(folder / "y")
    assert changed["env"] == {"A": "1", "B": "3"}


# -- several jobs ------------------------------------------------------------------------------------------------------

PAIR = '[[job]]\nname = "b"\nafter = "a"\ncommand = "true"\n[[job]]\nname = "a"\ncommand = "true"\n'


def test_jobs_come_after_those_they_wait_for(folder: Path) -> None:
    second, first = sorted(read(PAIR), key=lambda draft: draft.after, reverse=True)
    assert [draft.name for draft in read(PAIR)] == ["a", "b"]
    assert (first.name, first.after) == ("a", ())
    assert (second.name, second.after) == ("b", ("a",))
    assert "after" not in second.body()  # an id takes its place when the first has one


def test_jobs_that_do_not_wait_stay_in_the_order_of_the_file(folder: Path) -> None:
    text = "".join(f'[[job]]\nname = "{name}"\ncommand = "true"\n' for name in "cab")
    text += '[[job]]\nname = "d"\nafter = ["c", 17]\ncommand = "true"\n[[job]]\nname = "e"\ncommand = "true"\n'
    drafts = read(text)
    assert [draft.name for draft in drafts] == ["c", "a", "b", "d", "e"]
    assert drafts[3].body()["after"] == ["17"]


def test_what_stands_above_holds_for_all(folder: Path) -> None:
    one, two = read(
        'queue = "q"\ngpus = 2\n[env]\nA = "shared"\nB = "shared"\n'
        '[[job]]\ncommand = "true"\n[[job]]\ncommand = "true"\ngpus = 1\n[job.env]\nB = "own"\n'
    )
    assert (one.body()["queue"], one.body()["gpus"], one.body()["env"]) == ("q", 2, {"A": "shared", "B": "shared"})
    assert (two.body()["queue"], two.values["gpus"], two.body()["env"]) == ("q", 1, {"A": "shared", "B": "own"})


def test_a_thousand_jobs_are_read_at_once(folder: Path) -> None:
    text = "".join(f'[[job]]\nname = "j{i}"\ncommand = "true"\nafter = "j{i + 1}"\n' for i in range(1000))
    begun = time()
    drafts = read(text + '[[job]]\nname = "j1000"\ncommand = "true"\n')
    assert time() - begun < 5
    assert drafts[0].name == "j1000"


def test_the_examples_are_right() -> None:
    found = {path.name: [draft.body() for draft in read_jobfile(path)] for path in EXAMPLES.glob("*.toml")}
    assert {name: len(bodies) for name, bodies in found.items()} == {
        "train.toml": 1,
        "sweep.toml": 1,
        "pipeline.toml": 3,
    }
    assert {job["workdir"] for jobs in found.values() for job in jobs} == {str(EXAMPLES.parent)}
    assert {job["retries"] for job in found["pipeline.toml"]} == {1}


# -- what is wrong -----------------------------------------------------------------------------------------------------

OK = 'command = "true"\n'
WRONG = {
    # each a file, and words that its answer must have
    "not TOML": ("gpus 4", "job.toml", "not TOML", "line 1"),
    "unknown key": (OK + "gpuz = 4", "job.toml:2: gpuz", "not a key", "did you mean gpus"),
    "hyphen": (OK + "gpu-memory = 4", "job.toml:2: gpu-memory", "did you mean gpu_memory"),
    "key of the API": (OK + "duration_s = 4", "job.toml:2: duration_s", "duration"),
    "no command": ("gpus = 1", "job.toml", "no command"),
    "empty command": ('command = ""', "job.toml:1: command is ''", "list of words"),
    "open quote": ("command = \"python 'x\"", "job.toml:1: command", "list of words"),
    "table as command": ("command = {a = 1}", "job.toml:1: command is {'a': 1}"),
    "numbers in a command": ('command = ["sleep", 5]', "job.toml:1: command", "['sleep', 5]"),
    "gpus": (OK + '\n\ngpus = "many"', "job.toml:4: gpus is 'many'", "such as 2", "1-4"),
    "gpus backwards": (OK + 'gpus = "4-1"', "job.toml:2: gpus is '4-1'"),
    "too many gpus": (OK + "gpus = 70000", "job.toml:2: gpus is 70000", "to 65536"),
    "fraction of several": (OK + "gpus = 2\ngpu_frac = 0.5", "job.toml:3: gpu_frac is 0.5", "one GPU"),
    "fraction": (OK + "gpu_frac = 1.5", "job.toml:2: gpu_frac is 1.5", "at most 1"),
    "memory": (OK + 'gpu_memory = "4 apples"', "job.toml:2: gpu_memory is '4 apples'", "4GiB"),
    "duration": (OK + 'duration = "soon"', "job.toml:2: duration is 'soon'", "2h"),
    "not a number": (OK + "cpus = nan", "job.toml:2: cpus is nan"),
    "boolean": (OK + "priority = true", "job.toml:2: priority is True", "whole number"),
    "half a retry": (OK + "retries = 1.5", "job.toml:2: retries is 1.5", "whole number"),
    "retries": (OK + "retries = 101", "job.toml:2: retries is 101", "0 to 100"),
    "grace": (OK + 'grace = "2h"', "job.toml:2: grace is 7200", "3600"),
    "deadline": (OK + 'deadline = "tomorrow"', "job.toml:2: deadline is 'tomorrow'", "+6h"),
    "a day as deadline": (OK + "deadline = 2030-01-31", "job.toml:2: deadline"),
    "array": (OK + 'array = "9-0"', "job.toml:2: array is '9-0'", "0-9"),
    "array too large": (OK + "array = 10001", "job.toml:2: array is 10001"),
    "array twice": (OK + "array = [1, 1]", "job.toml:2: array", "once"),
    "sharing": (OK + 'sharing = "sometimes"', "job.toml:2: sharing is 'sometimes'", "time-slice"),
    "processes": (OK + 'processes = "two"', "job.toml:2: processes is 'two'", "one or per-gpu"),
    "reserved variable": (OK + '[env]\nGPUWISE_X = "1"', "job.toml:2: env", "GPUWISE_"),
    "label without a value": (OK + 'require = "zone"', "job.toml:2: require: zone has no value", "zone=a,b"),
    "label twice": (OK + 'require = ["zone=a", "zone=b"]', "job.toml:2: require", "each key once"),
    "role without a count": (OK + 'role = "ps:many"', "job.toml:2: role: count is 'many'; it must be a whole number"),
    "need of a role": (OK + '[[role]]\nname = "ps"\ngpu = 1', "job.toml:2: role", "'gpu' is not one of name, count,"),
    "role without a name": (OK + "role = {count = 2}", "job.toml:2: role is {'count': 2}", "ps:2,cpus=4"),
    "cpus beside roles": (OK + 'cpus = 4\nrole = "ps:2,cpus=4"', "job.toml:2: cpus is 4", "each role has its own"),
    "gpus beside roles": (OK + 'gpus = 3\nrole = "w:2,gpus=1"', "job.toml:2: gpus is 3", "2, as many as its roles"),
    "name of a variable": (OK + '[env]\n"a b" = "1"', "job.toml:2: env", "a b"),
    "list in a variable": (OK + "[env]\nX = [1]", "job.toml:2: env", "text or a number"),
    "name": (OK + 'name = "a\\nb"', "job.toml:2: name", "letters"),
    "after nobody": (OK + 'after = "prepare"', "job.toml:2: after names 'prepare'", "id of a job"),
    "a table of one job": ('[job]\ncommand = "true"', "job.toml", "[[job]]"),
    "no jobs": ("job = []", "job.toml", "[[job]]"),
    "no command in one": (OK.join(["[[job]]\n", "[[job]]\ngpus = 1\n"]), "job.toml: job 2", "no command"),
    "key in a table": ("[[job]]\n" + OK + "[[job]]\n" + OK + "gpuz = 1", "job.toml:5: gpuz"),
    "value in a table": ("[[job]]\n" + OK + "[[job]]\n" + OK + 'gpus = "x"', "job.toml:5: gpus is 'x'"),
    "circle": (PAIR.replace('name = "a"', 'name = "a"\nafter = "b"'), "job.toml:", "circle", "b → a → b"),
    "itself": ('[[job]]\nname = "a"\nafter = "a"\n' + OK, "job.toml:3: after", "a → a"),
    "after a stranger": (PAIR.replace('after = "a"', 'after = "aa"'), "job.toml:3: after names 'aa'", "did you mean a"),
    "two of a name": (PAIR + '[[job]]\nname = "a"\n' + OK, "job.toml:3: after names 'a'", "2 jobs"),
    "nested": ("x = " + "[" * 5000, "job.toml", "nested"),
    "many digits": ("gpus = " + "9" * 5000, "job.toml"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_with_its_place(name: str, folder: Path) -> None:
    text, *words = WRONG[name]
    told = wrong(text)
    assert len(told) < 400
    for word in words:
        assert word in told


def test_files_that_are_none(folder: Path) -> None:
    (folder / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (folder / "large.toml").write_bytes(b"#" * (5 << 20))
    (folder / "folder.toml").mkdir()
    for name, word in {
        "binary": "not a text file", "large": "too large", "folder": "directory", "nowhere": "No such file",
    }.items():  # fmt: skip
        with pytest.raises(GpuwiseError, match=rf"{name}\.toml: .*{word}"):
            read_jobfile(Path(f"{name}.toml"))


# -- anything at all ---------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
numbers = st.one_of(st.integers(), st.floats(), st.booleans())
words = st.sampled_from(["1-4", "0-9", "2h", "+6h", "4GiB", "A100,V100", "a", "b", "one", "17", "", "python x.py", "'"])
scalars = st.one_of(texts, numbers, words, st.datetimes())
values = st.one_of(scalars, st.lists(scalars, max_size=3), st.dictionaries(texts, scalars, max_size=2))
keys = st.one_of(st.sampled_from(sorted(FIELDS)), texts)
PLAUSIBLE: dict[str, list[object]] = {
    "name": ["a", "b"], "after": [17, "a", ["a", "b"]], "gpus": [2, "1-4"], "gpu_memory": ["4GiB"], "cpus": [1.5],
    "sharing": ["mig"], "duration": ["2h", 60], "deadline": ["+6h"], "array": [3, "0,3"], "env": [{"LR": 0.1}],
    "workdir": ["x", ""], "processes": ["per-gpu"], "priority": [-1], "retries": [2], "command": ["python x.py"],
}  # fmt: skip
right_jobs = st.fixed_dictionaries({}, optional={key: st.sampled_from(given) for key, given in PLAUSIBLE.items()})
jobs = st.builds(
    lambda job, odd: {"command": ["true"], **job, **odd}, right_jobs, st.dictionaries(keys, values, max_size=1)
)
ANY_FILE = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def toml(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(each):08x}" for each in value) + '"'
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value).replace("infinity", "inf")
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(name)} = {toml(each)}" for name, each in value.items()) + "}"
    return str(value)


def lines(job: dict[str, Any]) -> str:
    return "".join(f"{key if key in FIELDS else toml(key)} = {toml(value)}\n" for key, value in job.items())


def check_file(data: bytes, path: Path) -> None:
    """A file comes to jobs that the server takes, or to one line that begins with the file's name."""
    path.write_bytes(data)
    made, told = [], str(path)
    try:
        made = [draft.body() for draft in read_jobfile(path)]
    except GpuwiseError as error:
        told = str(error)
    assert told.startswith(str(path))
    assert len(told.splitlines()) == 1
    assert len(told) < 600 + len(str(path))
    for each in made:
        assert JobRequest.from_json(json.loads(json.dumps(each, allow_nan=False))).command


@ANY_FILE
@given(data=st.one_of(st.binary(max_size=60), texts.map(str.encode)))
def test_any_bytes(data: bytes, tmp_path: Path) -> None:
    check_file(data, tmp_path / "any.toml")


@ANY_FILE
@given(job=jobs)
def test_any_values(job: dict[str, Any], tmp_path: Path) -> None:
    check_file(lines(job).encode(), tmp_path / "any.toml")


@ANY_FILE
@given(shared=jobs, tables=st.lists(jobs, min_size=1, max_size=4))
def test_any_tables(shared: dict[str, Any], tables: list[dict[str, Any]], tmp_path: Path) -> None:
    text = lines(shared) + "".join("[[job]]\n" + lines(table) for table in tables)
    check_file(text.encode(), tmp_path / "any.toml")
