"""Journals and snapshots of the version before, as they stand on disk."""

from __future__ import annotations

import json
from pathlib import Path

from builders import cluster, engine_with
from gpuwise.core.events import JobRevised
from gpuwise.core.job.needs import Forecast, Sharing, Source
from gpuwise.engine.journal import read_journal, replay
from gpuwise.engine.snapshot import restore, snapshot

JOURNAL = r"""
{"gpuwise_journal":1,"policy":"scripted","seed":0,"nodes":[{"name":"n0","gpu_type":"V100","gpus":4,"cpus":"inf","memory_bytes":"inf","gpu_memory_bytes":"inf","speed":1.0,"usd_per_hour":"nan"}]}
{"type":"JobSubmitted","at_s":0.0,"job":0,"spec":{"id":"a","submit_s":0.0,"duration_s":60.0,"gpus":2,"min_gpus":2,"max_gpus":2,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["EXCLUSIVE","MIG","SHARED","TIME_SLICE"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"","steps":60.0,"model":"m","batch_size":128,"gpu_util_frac":"nan","speeds":[],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}
{"type":"JobSubmitted","at_s":0.0,"job":1,"spec":{"id":"b","submit_s":0.0,"duration_s":60.0,"gpus":1,"min_gpus":1,"max_gpus":1,"gpu_frac":1.0,"gpu_memory_bytes":0.0,"gpu_types":[],"sharing":["MIG"],"cpus":0.0,"memory_bytes":0.0,"priority":0,"deadline_s":"inf","tenant":"","steps":500.0,"model":"","batch_size":0,"gpu_util_frac":"nan","speeds":[["V100",2.0]],"suspend_s":0.0,"resume_s":0.0,"migrate_s":0.0,"resize_s":0.0}}
{"type":"JobRevised","at_s":5.0,"job":0,"duration_s":90.0,"steps":null,"gpu_memory_bytes":null,"gpu_util_frac":null}
"""
SNAPSHOT = r"""
{"gpuwise_snapshot": 1, "now_s": 5.0, "nodes": [{"name": "n0", "gpu_type": "V100", "gpus": 4, "cpus": "inf", "memory_bytes": "inf", "gpu_memory_bytes": "inf", "speed": 1.0, "usd_per_hour": "nan"}], "down": [], "lost": [], "layouts": [], "jobs": [{"spec": {"id": "a", "submit_s": 0.0, "duration_s": 60.0, "gpus": 2, "min_gpus": 2, "max_gpus": 2, "gpu_frac": 1.0, "gpu_memory_bytes": 0.0, "gpu_types": ["V100"], "sharing": ["EXCLUSIVE"], "cpus": 0.0, "memory_bytes": 0.0, "priority": 0, "deadline_s": "inf", "tenant": "", "steps": 60.0, "model": "m", "batch_size": 128, "gpu_util_frac": "nan", "speeds": [], "suspend_s": 0.0, "resume_s": 0.0, "migrate_s": 0.0, "resize_s": 0.0}, "course": {"status": 1, "steps_done": 15.0, "since_s": 0.0, "rate": 0.0, "saved_steps": 15.0, "placed_s": "nan", "attained_gpu_s": 0.0, "held_gpus": 0.0, "held_s": 0.0, "overhead_gpu_s": 0.0, "first_start_s": "nan", "finish_s": "nan", "placements": 0, "preemptions": 0, "migrations": 0, "resizes": 0, "held": 0, "over": 0}, "hold": null, "key": 0.0}], "placed": []}
"""  # noqa: E501


def test_a_journal_of_the_version_before_replays() -> None:
    jobs = replay(JOURNAL.strip().splitlines()).jobs
    a, b = jobs.spec(0), jobs.spec(1)
    # Its batch is that of both GPUs, and 60 steps in 60 s is how it wrote that steps are not known.
    assert (a.batch_per_gpu, a.steps, a.model) == (64, None, "m")
    assert a.duration == Forecast(90.0, a.duration_low_s, a.duration_high_s, Source.OBSERVED)
    assert (b.batch_per_gpu, b.steps, b.speeds) == (0, 500.0, (("V100", 2.0),))
    assert b.sharing == frozenset((Sharing.MIG,))
    assert (b.retries, b.require, b.roles) == (0, (), ())


DATA = Path(__file__).parent / "data"


def test_a_journal_of_its_simulator_leads_to_the_state_it_led_to_then() -> None:
    """Lost nodes, suspensions, migrations, rearrangements and MIG cuts; nodes stand in it by their numbers."""
    path = DATA / "journal_before.jsonl"
    kinds = {json.loads(line).get("type") for line in path.read_text().splitlines()}
    assert kinds >= {"NodeLost", "NodeRestored", "Suspend", "Resume", "Migrate", "Rearrange", "Repartition"}
    state, then = read_journal(path), json.loads((DATA / "journal_before_state.json").read_text())
    jobs = state.jobs
    assert state.now_s == then["now_s"]
    layouts = sorted([*where, [list(each) for each in slices]] for where, slices in state.capacity.layouts.items())
    assert layouts == then["layouts"]
    assert {jobs.ids[job] for job in state.placed} == then["placed"].keys()
    for uid, course in then["jobs"].items():
        now = {name: getattr(jobs, name).item(jobs.row_of[uid]) for name in course}
        assert {name: None if value != value else value for name, value in now.items()} == course, uid


def test_a_snapshot_of_the_version_before_is_restored() -> None:
    state = engine_with([], cluster("1x4:V100")).state
    restore(state, json.loads(SNAPSHOT))
    spec = state.jobs.spec(0)
    assert (spec.batch_per_gpu, spec.steps, spec.gpu_types) == (64, None, ("V100",))
    assert (state.jobs.steps.item(0), state.jobs.steps_done.item(0)) == (60.0, 15.0)


def test_unknown_steps_stay_unknown_and_progress_counts_on_after_a_revision_and_a_restart() -> None:
    """A quarter is done; another run time changes neither that nor whether steps are known."""
    engine = engine_with([], cluster("1x4:V100"))
    restore(engine.state, json.loads(SNAPSHOT))
    engine.step(6.0, [JobRevised(6.0, 0, duration_s=100.0, duration_low_s=80.0, source=Source.HISTORY)])
    again = engine_with([], cluster("1x4:V100")).state
    restore(again, json.loads(json.dumps(snapshot(engine.state))))
    for state in (engine.state, again):
        jobs = state.jobs
        assert not jobs.steps_known.item(0)
        assert jobs.steps_done.item(0) / jobs.steps.item(0) == 0.25
        assert jobs.duration(0).source is Source.HISTORY
        assert (jobs.duration(0).value, jobs.duration(0).low) == (100.0, 80.0)
        assert jobs.spec(0).steps is None
