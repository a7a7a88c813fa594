"""Writes the table of errors in prediction.md from the shipped fits: python docs/prediction_errors.py"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuwise.predict import registry
from gpuwise.predict.fitting.recipes import recipes

PAGE = Path(__file__).with_name("prediction.md")
BEGIN, END = "<!-- errors:begin -->\n", "<!-- errors:end -->"
MEASURES = {"mape": "MAPE", "rmsle": "RMSLE", "mae": "MAE", "under_5pct": "under by > 5 %"}


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    head, rest = page.split(BEGIN)
    PAGE.write_text(head + BEGIN + table() + END + rest.split(END)[1], encoding="utf-8")


def table() -> str:
    lines = [
        "| what, and what was left out | data | rows | error | target | coverage of the 90 % interval | command |",
        "| --- " * 7 + "|",
    ]
    for name in recipes():
        lines += [_line(name, row) for row in registry.load(name).errors if row["target"]]
    return "\n".join(lines) + "\n"


def _line(name: str, row: dict[str, Any]) -> str:
    met = dict(zip([each.split()[0] for each in row["target"].split("; ")], row["met"].split("; "), strict=True))
    aims = {each.split()[0]: each.split()[1:] for each in row["target"].split("; ")}
    errors, targets = [], []
    for measure in (each for each in aims if each != "coverage"):
        errors.append(_marked(f"{MEASURES[measure]} {_shown(measure, row[measure])}", met[measure]))
        targets.append(
            f"{_shown(measure, float(aims[measure][0].rstrip(',')))}, goal {_shown(measure, float(aims[measure][-1]))}"
        )
    coverage = _marked(f"{100 * row['coverage']:.0f} %", met.get("coverage", "yes"))
    what = f"`{row['holdout']}`: {row['left_out']}"
    cells = (what, row["data"], f"{row['rows']:,}", "; ".join(errors), "; ".join(targets), coverage)
    return f"| {' | '.join(cells)} | `gpuwise evaluate {name}` |"


def _shown(measure: str, value: float) -> str:
    return f"{value:.3f}".rstrip("0") if measure in ("rmsle", "mae") else f"{100 * value:.3g} %"


def _marked(text: str, met: str) -> str:
    return f"**{text}**" if met == "no" else text


if __name__ == "__main__":
    main()
