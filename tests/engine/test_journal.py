"""The journal: written and read back it gives the same state, and a broken one says where."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from audit import check_equal
from test_life_cycle import happen

from builders import HALVES, cluster, engine_with, job, mig, node, on, run
from gpuwise.core.commands import Grant, MigSlice, Placement, Provision, Release, Repartition, Start
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.events import DevicesClaimed, JobFailed, JobStarted, NodeAdded, WokeUp
from gpuwise.core.job.needs import Sharing
from gpuwise.engine.engine import Engine
from gpuwise.engine.journal import JournalError, placement_of, plain, read_journal, replay
from gpuwise.engine.snapshot import cluster_of, restore, snapshot


def eventful() -> Engine:
    """An engine that has seen most kinds of records, with numbers that JSON does not have."""
    spec = cluster(node("a", 2, "A100", usd_per_hour=3.5), node("b", 2, "T4", cpus=math.inf, usd_per_hour=math.nan))
    jobs = [
        job("a", 10.0, gpu_frac=0.4, tenant="nan", deadline_s=math.inf),
        job("inf", 10.0, 2, gpu_types=("T4",), sharing=frozenset((Sharing.EXCLUSIVE,)), steps=77.0),
        job("ünï", 10.0, gpu_util_frac=0.3, deadline_s=99.5),
    ]
    engine = engine_with(jobs, spec)
    happen(engine, 1.0, Repartition(0, 1, HALVES))
    happen(engine, 1.0, Start(0, mig(0, 1, 4)))
    happen(engine, 1.5, Start(1, on((1, 0), (1, 1))))
    happen(engine, 2.0, JobStarted(2.0, 1))
    happen(engine, 2.25, JobFailed(2.25, 1, 0.0, 'a "quoted"\ncause', True))
    happen(engine, 3.0, Provision(node("c", 4, "T4")))
    happen(engine, 4.0, NodeAdded(4.0, node("c", 4, "T4")))
    happen(engine, 5.0, Release(1))
    return engine


def test_a_journal_replays_to_the_same_state():
    engine = eventful()
    check_equal(engine.state, replay(engine.journal.lines()))


def test_a_journal_file_replays_to_the_same_state(tmp_path: Path):
    engine = eventful()
    path = tmp_path / "run.journal"
    engine.journal.write(path)
    assert len(path.read_text().splitlines()) == 1 + len(engine.journal)
    check_equal(engine.state, read_journal(path))


def test_every_line_is_plain_json():
    for line in eventful().journal.lines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_a_whole_run_replays():
    jobs = [job(f"j{i}", 10.0 + i, 1 + i % 3, at=float(i), suspend_s=1.0, resume_s=2.0) for i in range(20)]
    result = run(jobs, "2x2:V100", "srtf")
    assert result.metrics.preemptions > 0
    check_equal(result.engine.state, replay(result.engine.journal.lines()))


def test_a_command_is_carried_out_when_the_engine_says_even_if_the_event_before_it_is_older():
    """Events that come in late keep their own time; what follows from them happens now."""
    engine = engine_with([job("a", 10.0), job("b", 10.0)], cluster("1x2:V100"))
    engine.policy.script = [lambda draft: draft.start(0)]
    engine.step(7.0, [WokeUp(5.0)])
    assert engine.state.jobs.placed_s[0] == 7.0
    check_equal(engine.state, replay(engine.journal.lines()))


def test_equal_runs_have_equal_digests_and_others_do_not():
    assert eventful().journal.digest() == eventful().journal.digest()
    longer = eventful()
    longer.step(9.0, [WokeUp(9.0)])
    assert longer.journal.digest() != eventful().journal.digest()


BROKEN = {
    "nothing": ([], "line 1: not JSON"),
    "something else": (['{"a":1}'], "line 1: not a gpuwise journal of version 1"),
    "another version": (['{"gpuwise_journal":99,"nodes":[]}'], "line 1: not a gpuwise journal of version 1"),
    "a list": (["[]"], "line 1: not a record"),
}


@pytest.mark.parametrize(("lines", "message"), BROKEN.values(), ids=BROKEN)
def test_what_is_not_a_journal_is_refused(lines: list[str], message: str):
    with pytest.raises(JournalError, match=message):
        replay(lines)


def test_a_broken_line_is_named_by_its_number():
    lines = list(eventful().journal.lines())
    with pytest.raises(JournalError, match="line 3: not JSON"):
        replay([*lines[:2], lines[2][:-5], *lines[3:]])
    with pytest.raises(JournalError, match="line 3: unknown record 'Nonsense'"):
        replay([*lines[:2], '{"type":"Nonsense","at_s":0.0}'])
    with pytest.raises(JournalError, match="line 2: job 1 is declared as row 0; lines are missing"):
        replay([lines[0], *lines[2:]])


def test_a_line_without_what_its_record_needs_is_named_by_its_number():
    lines = list(eventful().journal.lines())
    with pytest.raises(JournalError, match="line 2"):
        replay([lines[0], '{"at_s":0.0}'])
    with pytest.raises(JournalError, match="line 2"):
        replay([lines[0], '{"type":"JobStarted","at_s":0.0}'])


def test_a_quantum_is_written_where_there_is_one_and_read_from_lines_that_have_none():
    placement = Placement((Grant(0, 1),), Sharing.TIME_SLICE, 500)
    assert "quantum_s" not in plain(placement)
    assert placement_of(plain(placement)) == placement
    by_turns = placement._replace(quantum_s=30.0)
    assert plain(by_turns)["quantum_s"] == 30.0
    assert placement_of(plain(by_turns)) == by_turns


def test_numbers_that_json_does_not_have_come_back_from_claims_and_slices():
    engine = engine_with([], cluster(node("a", 2, "A100")))
    happen(engine, 1.0, DevicesClaimed(1.0, "a", (("a/0", math.inf, False),), cpus=math.inf, memory_bytes=math.inf))
    engine.order(2.0, (Repartition(0, 1, (MigSlice("1g", 0, 142, math.inf),)),))
    check_equal(engine.state, replay(engine.journal.lines()))
    document = json.loads(json.dumps(snapshot(engine.state), allow_nan=False))
    again = engine_with([], cluster_of(document))
    restore(again.state, document)
    check_equal(engine.state, again.state)


def test_a_group_of_links_names_devices():
    with pytest.raises(GpuwiseError, match="links are"):
        node("a", 2, links=((), (0, 1)))
