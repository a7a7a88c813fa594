"""What ``import gpuwise`` gives: all of it there, documented, and at home in a notebook."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import replace

import polars as pl
import pytest

import gpuwise
from gpuwise import JobSpec, SimulationResult, Trace, simulate
from gpuwise.sim.traces.files import trace_from_frame

EVIL = "<script>alert('&')</script>"
COLUMNS = [
    "id", "tenant", "gpus", "submit_s", "start_s", "finish_s", "jct_s", "queue_s", "gpu_s", "status", "preemptions",
    "migrations", "deadline_s",
]  # fmt: skip


@pytest.fixture(scope="module")
def result() -> SimulationResult:
    jobs = [
        JobSpec(id="a", duration_s=10, gpus=4, tenant="x"),
        JobSpec(id="b", duration_s=20, gpus=2, submit_s=5, deadline_s=20),
    ]
    return simulate(jobs, "1x4:V100")


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", gpuwise.__all__)
def test_every_name_is_there_and_documented(name: str) -> None:
    thing = getattr(gpuwise, name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        words = (thing.__doc__ or "").strip()
        assert words, f"{name} has no docstring"
        assert not words.startswith(f"{name}("), f"{name} has only the docstring that a dataclass makes"
        assert thing.__name__ == name
        members = vars(thing).items() if inspect.isclass(thing) else ()
        for member, value in members:
            shown = value.fget if isinstance(value, property) else value
            if not member.startswith("_") and inspect.isroutine(shown):
                assert inspect.getdoc(shown), f"{name}.{member} has no docstring"


def test_names_are_sorted_and_listed() -> None:
    assert len(set(gpuwise.__all__)) == len(gpuwise.__all__)
    assert set(dir(gpuwise)) == {*gpuwise.__all__, "__version__"}
    assert {"simulate", "read_trace", "JobSpec", "ClusterSpec", "SimulationResult"} <= set(gpuwise.__all__)


def test_a_policy_author_finds_everything_in_one_place() -> None:
    from gpuwise.core.commands import COMMAND_TYPES
    from gpuwise.core.events import EVENT_TYPES

    kinds = {kind.__name__ for kind in (*COMMAND_TYPES, *EVENT_TYPES)}
    parts = {"Grant", "Placement", "MigSlice", "Status", "Shape", "Capacity", "Placer", "Sharing", "Decision", "Draft"}
    rates = {"RateModel", "Rates", "DeclaredRates", "PredictedRates", "Truth", "time_left_s"}
    errors = {"GpuwiseError", "ReadOnlyError", "OverAllocationError", "DraftError", "InvalidDecisionError"}
    assert kinds | parts | rates | errors <= set(gpuwise.__all__)


def test_a_policy_needs_nothing_but_the_public_names() -> None:
    class Halves:
        """Two jobs on each GPU, by turns of a minute."""

        name = "halves"
        wakes_on = gpuwise.CAPACITY_CHANGES

        def decide(self, view: gpuwise.ClusterView, rng: object) -> gpuwise.Decision:
            draft = view.draft()
            for job in draft.waiting():
                places = ((0, device) for device in range(2))
                half = next((place for place in places if self.has_half(draft, place)), None)
                if half is not None:
                    draft.time_slice(job, 60.0, [half], share=0.5)
            return draft.seal()

        def has_half(self, draft: gpuwise.Draft, place: tuple[int, int]) -> bool:
            capacity = draft.capacity
            return bool(capacity.idle[0] >> place[1] & 1) or capacity.open_milli[place] >= 500

    result = simulate([JobSpec(id=name, duration_s=10.0) for name in "abcd"], "1x2:V100", Halves())
    assert result.metrics.makespan_s == 20.0
    placements = [record.placement for record in result.engine.journal.records if isinstance(record, gpuwise.Start)]
    assert {(each.sharing, each.milli, each.quantum_s) for each in placements} == {
        (gpuwise.Sharing.TIME_SLICE, 500, 60.0)
    }


def test_an_import_of_everything_works() -> None:
    namespace: dict[str, object] = {}
    exec("from gpuwise import *", namespace)
    assert set(gpuwise.__all__) <= namespace.keys()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'gpuwise' has no attribute 'simulat'"):
        _ = gpuwise.simulat  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="cannot import name 'simulat'"):
        from gpuwise import simulat  # type: ignore[attr-defined] # noqa: F401


def test_the_import_alone_loads_nothing_heavy() -> None:
    program = "import sys, gpuwise; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"polars", "numpy", "matplotlib", "typer"} & set(done.stdout.split())


# -- results -----------------------------------------------------------------------------------------------------------


def test_a_result_has_a_row_for_each_job(result: SimulationResult) -> None:
    frame = result.to_frame()
    assert frame.columns == COLUMNS
    # b waits for a's 4 GPUs from 5 s to 10 s, ends at 30 s and so misses its deadline by 10 s.
    assert frame.rows() == [
        ("a", "x", 4, 0.0, 0.0, 10.0, 10.0, 0.0, 40.0, "succeeded", 0, 0, float("inf")),
        ("b", "", 2, 5.0, 10.0, 30.0, 25.0, 5.0, 40.0, "succeeded", 0, 0, 20.0),
    ]
    assert (result.metrics.deadline_misses, result.metrics.makespan_s) == (1, 30.0)


def test_a_result_in_words(result: SimulationResult) -> None:
    assert str(result).startswith("fifo on 1x4:V100: jobs 2, average JCT 17.5s")


def test_a_result_in_a_notebook_is_a_table_that_is_safe(result: SimulationResult) -> None:
    page = replace(result, policy=EVIL, cluster=EVIL)._repr_html_()
    assert EVIL not in page
    assert page.count("&lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;") == 2
    assert page.count("<tr>") == page.count("</tr>") == 7
    assert "17.5s" in page


def test_a_result_draws_itself(result: SimulationResult) -> None:
    pytest.importorskip("matplotlib")
    figure = result.plot()
    assert len(figure.axes) == 4
    assert all(axes.get_title(loc="left") for axes in figure.axes)


# -- traces ------------------------------------------------------------------------------------------------------------


def test_a_trace_in_a_notebook_is_safe() -> None:
    jobs = pl.DataFrame({"id": [EVIL, "b"], "submit_s": [0.0, 7200.0], "duration_s": [60.0, 120.0], "gpus": [1, 8]})
    trace = trace_from_frame(jobs, name=EVIL)
    assert isinstance(trace, Trace)
    page = trace._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "2 jobs submitted over 2.0 h" in page
    assert "duration_s" in page
    assert "<table" in page
