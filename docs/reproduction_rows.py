"""Writes the tables in reproduction.md: python docs/reproduction_rows.py, with the data at hand; takes two minutes."""

from __future__ import annotations

from pathlib import Path

from gpuwise.experiments.registry import reproduce
from gpuwise.experiments.rows import Row

PAGE = Path(__file__).with_name("reproduction.md")
EXPERIMENTS = ("priority", "colocation", "sharing")


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in EXPERIMENTS:
        begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
        head, rest = page.split(begin)
        page = head + begin + table(reproduce(name)) + end + rest.split(end)[1]
    PAGE.write_text(page, encoding="utf-8")


def table(rows: list[Row]) -> str:
    """The rows with a published figure; ours in bold where it is not near."""
    lines = ["| figure | unit | published | ours | difference |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        if row.paper is not None:
            ours = f"{row.ours:.4g}" if row.met else f"**{row.ours:.4g}**"
            lines.append(f"| {row.metric} | {row.unit} | {row.paper:.4g} | {ours} | {row.difference or ''} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
