"""``fit`` and ``evaluate``: makes predictors from measured data, and says how wrong they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwise.cli.options import OutputOption
from gpuwise.cli.show.tables import Output, show
from gpuwise.core.errors import GpuwiseError

COLUMNS = ("holdout", "left_out", "unit", "rows", "mape_frac", "rmsle", "mae", "bias_frac", "under_frac",
           "coverage_frac", "width_frac", "target", "met")  # fmt: skip
_FRACTIONS = ("mape", "median_ape", "bias", "under", "under_5pct", "coverage", "width", "in_domain")

NamesArgument = Annotated[list[str] | None, typer.Argument(help="Predictors; all by default.")]
DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The folder of measured data; else $GPUWISE_DATA.")
]


def fit_command(
    names: NamesArgument = None,
    data: DataOption = None,
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="Where to write them; name it in $GPUWISE_FITTED to use them.")
    ] = Path("fitted"),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; check that the fit gives what is in use.")
    ] = False,
    made: Annotated[str, typer.Option("--made", metavar="DAY", help="The day to write into them; today.")] = "",
    errors: Annotated[bool, typer.Option(help="Measure the errors on data left out, too.")] = True,
    output: OutputOption = None,
) -> None:
    """Fit predictors from measured data. The same data give the same numbers as those that are shipped."""
    from gpuwise.service.offline import fitting

    folder, rows, wrong = _data(data), [], list[str]()
    for name in fitting.predictor_names(names or ()):
        _progress(f"fitting {name}")
        if check:
            row, found = fitting.fit_and_check(name, folder)
            wrong += found
        else:
            try:
                row = fitting.fit_and_write(name, folder, to, made=made, errors=errors)
            except GpuwiseError as error:
                print(f"left out: predictor {name}: {error}", file=sys.stderr)
                continue
        rows.append(row)
    if not rows:
        raise GpuwiseError(f"{folder} has the data of no predictor")
    show(rows, output)
    if wrong:
        raise GpuwiseError(f"{len(wrong)} numbers are not those in use; the first: {wrong[0]}")


def evaluate_command(
    names: NamesArgument = None,
    data: DataOption = None,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Fit nothing: evaluate the predictors in use on all that was measured.")
    ] = False,
    groups: Annotated[bool, typer.Option("--groups", help="One row per data set, GPU or family.")] = False,
    plots: Annotated[
        Path | None, typer.Option("--plots", metavar="DIR", help="Also draw predicted against measured, here.")
    ] = None,
    output: OutputOption = None,
) -> None:
    """Measure the errors of predictors on data left out of the fit. By family, GPU, batch size, number of GPUs.

    With --shipped the predictors in use are evaluated as they are, for example on measurements of your own.
    """
    from gpuwise.service.offline import fitting

    folder, rows = _data(data), []
    run = fitting.evaluate_in_use if shipped else fitting.evaluate
    for evaluated in run(names or [], folder):
        _progress(f"{evaluated.holdout.name}: {evaluated.scores.rows} rows")
        rows += list(evaluated.by_group()) if groups and len(evaluated.holdout.group) else [evaluated.row()]
        if plots is not None:
            evaluated.draw(plots)
    if not rows:
        raise GpuwiseError(f"nothing to evaluate in {folder}: it has no data of these predictors")
    if output in (Output.JSON, Output.CSV):
        show(rows, output)
    else:
        columns = ("holdout", "group", *COLUMNS[3:11]) if groups else COLUMNS
        show([_percent(row) for row in rows], output, columns)


def _percent(row: dict[str, Any]) -> dict[str, Any]:
    """Fractions under names that tables show as percent."""
    return {f"{name}_frac" if name in _FRACTIONS else name: value for name, value in row.items()}


def _data(given: Path | None) -> Path:
    from gpuwise.service.offline.catalogue import data_dir

    if given is not None and not given.is_dir():
        raise GpuwiseError(f"{given} is not a folder")
    return given or data_dir()


def _progress(what: str) -> None:
    """Prints what is under way, on a terminal."""
    if sys.stderr.isatty():
        print(what, file=sys.stderr)
