"""The command ``gpuwise``."""

from __future__ import annotations

import sys

import typer

from gpuwise.core.errors import GpuwiseError

app = typer.Typer(
    name="gpuwise",
    help="Know what a deep learning job needs before it runs, and find it the best place on shared GPUs.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from gpuwise.core import __version__

        print(f"gpuwise {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """Know what a deep learning job needs before it runs, and find it the best place on shared GPUs."""


def main() -> None:
    """Runs the command line; what a user can mend is told in one line, with exit code 2."""
    from gpuwise.cli import live
    from gpuwise.cli.live import up
    from gpuwise.cli.offline import catalogue, predict, predictors, reproduce, simulate, traces

    for module in (predict, predictors, simulate, traces, catalogue, reproduce, up, live):
        module.register(app)
    try:
        app()
    except GpuwiseError as error:
        print("gpuwise: " + "; ".join(str(error).splitlines()), file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        print(f"gpuwise: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("gpuwise: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
