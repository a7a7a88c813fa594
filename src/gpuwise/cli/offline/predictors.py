"""``fit`` and ``evaluate``: makes predictors from measured data, and says how wrong they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuwise.cli.show.output import Output, show
from gpuwise.core.errors import GpuwiseError

COLUMNS = ("holdout", "left_out", "unit", "rows", "mape_frac", "rmsle", "mae", "bias_frac", "under_frac",
           "coverage_frac", "width_frac", "target", "met")  # fmt: skip
_FRACTIONS = ("mape", "median_ape", "bias", "under", "under_5pct", "coverage", "width", "in_domain")

NamesArgument = Annotated[list[str] | None, typer.Argument(help="Predictors; all by default.")]
DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The folder of measured data; else $GPUWISE_DATA.")
]
OutputOption = Annotated[Output | None, typer.Option("-o", "--output", help="table, wide, json or csv.")]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("fit")(fit_command)
    app.command("evaluate")(evaluate_command)


def fit_command(
    names: NamesArgument = None,
    data: DataOption = None,
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="Where to write them; name it in $GPUWISE_FITTED to use them.")
    ] = Path("fitted"),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; say whether the fit gives what is in use.")
    ] = False,
    made: Annotated[str, typer.Option("--made", metavar="DAY", help="The day to write into them; today.")] = "",
    errors: Annotated[bool, typer.Option(help="Measure the errors on data left out, too.")] = True,
    output: OutputOption = None,
) -> None:
    """Fit predictors from measured data. The same data give the same numbers as those that are shipped."""
    from gpuwise.predict import registry
    from gpuwise.predict.fitting.recipes import choose
    from gpuwise.service.offline import fitting

    folder, rows, wrong = _data(data), [], []
    for recipe in choose(names or []):
        _say(f"fitting {recipe.name}")
        try:
            fitted = fitting.fit(recipe, folder, made=made, errors=errors and not check)
        except GpuwiseError as error:
            if check:
                raise
            print(f"left out: predictor {recipe.name}: {error}", file=sys.stderr)
            continue
        row: dict[str, Any] = {"predictor": recipe.name, "what": recipe.what, "data": list(recipe.data)}
        if check:
            found = fitting.differences(fitted, registry.load(recipe.name))
            wrong += found
            rows.append(row | {"same": not found})
        else:
            path = registry.write(fitted, to)
            rows.append(row | {"file": str(path), "size_bytes": path.stat().st_size})
    if not rows:
        raise GpuwiseError(f"{folder} has the data of no predictor")
    show(rows, output)
    if wrong:
        raise GpuwiseError(f"{len(wrong)} numbers are not those in use; the first: {wrong[0]}")


def evaluate_command(
    names: NamesArgument = None,
    data: DataOption = None,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="Fit nothing: ask the predictors in use for all that was measured.")
    ] = False,
    groups: Annotated[bool, typer.Option("--groups", help="A row for each data set, GPU or family.")] = False,
    plots: Annotated[
        Path | None, typer.Option("--plots", metavar="DIR", help="Also draw predicted against measured, here.")
    ] = None,
    output: OutputOption = None,
) -> None:
    """Measure how wrong predictors are on data left out of their fit: by family, GPU, batch size, number of GPUs.

    With --shipped the predictors in use are asked as they are: how good are they on measurements of one's own?
    """
    from gpuwise.service.offline import fitting

    folder, rows = _data(data), []
    run = fitting.evaluate_in_use if shipped else fitting.evaluate
    for evaluated in run(names or [], folder):
        _say(f"{evaluated.holdout.name}: {evaluated.scores.rows} rows")
        rows += list(evaluated.by_group()) if groups and len(evaluated.holdout.group) else [evaluated.row()]
        if plots is not None:
            from gpuwise.service.offline.evaluation_plots import draw

            draw(evaluated, plots)
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
    from gpuwise.service.offline.data import data_dir

    if given is not None and not given.is_dir():
        raise GpuwiseError(f"{given} is not a folder")
    return given or data_dir()


def _say(what: str) -> None:
    """Progress, for a person who waits."""
    if sys.stderr.isatty():
        print(what, file=sys.stderr)
