"""Columns of a policy's own: declared with defaults, written through its decision, kept by journal and snapshot."""

from __future__ import annotations

import json
from typing import Any

import pytest
from audit import check_equal

from builders import Scripted, cluster, engine_with, job
from gpuwise.core.cluster.state import ClusterState
from gpuwise.core.commands import Decision
from gpuwise.core.errors import UnknownNameError
from gpuwise.core.events import JobNoted, WokeUp
from gpuwise.engine.checks import InvalidDecisionError
from gpuwise.engine.engine import Engine
from gpuwise.engine.journal import replay
from gpuwise.engine.snapshot import cluster_of, restore, snapshot


class Counting(Scripted):
    """A policy with two columns."""

    columns = {"looks": 0.0, "credit": 5.0}  # noqa: RUF012


def counting(*notes: tuple[str, int, float]) -> Engine:
    engine = engine_with([job("a"), job("b")], cluster("1x2:V100"), policy=Counting())
    return noted(engine, *notes)


def noted(engine: Engine, *notes: tuple[str, int, float]) -> Engine:
    engine.policy.script = [lambda draft: [draft.note(*note) for note in notes]]
    engine.step(1.0, [WokeUp(1.0)])
    return engine


def test_a_column_has_its_default_until_it_is_written_to():
    view = counting(("looks", 1, 3.0)).view
    assert (view.own("looks").tolist(), view.own("credit").tolist()) == ([0.0, 3.0], [5.0, 5.0])
    assert (view.own_value("looks", 1), view.own_value("credit", 0)) == (3.0, 5.0)


def test_what_is_written_is_journaled_and_replayed():
    engine = counting(("looks", 1, 3.0), ("credit", 0, -1.5), ("looks", 1, 4.0))
    assert [record for record in engine.journal.records if isinstance(record, JobNoted)] == [
        JobNoted(1.0, 1, "looks", 4.0),
        JobNoted(1.0, 0, "credit", -1.5),
    ]
    again = replay(engine.journal.lines())
    assert again.notes == engine.state.notes == {"looks": {1: 4.0}, "credit": {0: -1.5}}
    check_equal(again, engine.state)


def test_what_is_written_outlives_a_restart():
    document = json.loads(json.dumps(snapshot(counting(("looks", 1, 3.0)).state)))
    state = ClusterState(cluster_of(document))
    restore(state, document)
    assert state.notes == {"looks": {1: 3.0}}


def test_a_state_without_notes_has_none_in_its_snapshot():
    assert all("notes" not in entry for entry in snapshot(counting().state)["jobs"])


@pytest.mark.parametrize(
    ("note", "error"),
    [
        (("lokos", 1, 3.0), "column 'lokos', which is not among its `columns`"),
        (("looks", 7, 3.0), "writes 3.0 to 'looks' of job 7"),
        (("looks", 1, float("nan")), "writes nan"),
    ],
)
def test_what_cannot_be_written_is_refused(note: Any, error: str):
    engine = counting()
    with pytest.raises(InvalidDecisionError, match=error):
        noted(engine, note)
    assert engine.state.notes == {}


def test_a_column_that_was_not_declared_cannot_be_read():
    with pytest.raises(UnknownNameError, match="unknown column of this policy 'lokos'; did you mean looks"):
        counting().view.own("lokos")


def test_the_column_cannot_be_written_to_in_place():
    view = counting(("looks", 0, 1.0)).view
    with pytest.raises(ValueError, match="read-only"):
        view.own("looks")[0] = 9.0
    assert Decision().notes == ()


def test_a_rollback_takes_notes_back():
    draft = counting().view.draft()
    draft.note("looks", 0, 1.0)
    mark = draft.mark()
    draft.note("looks", 0, 2.0)
    draft.note("credit", 0, 2.0)
    draft.rollback(mark)
    assert draft.seal().notes == (("looks", 0, 1.0),)
