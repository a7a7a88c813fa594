"""``predict``: what a model will need, before it runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from gpuwise.cli.options import OutputOption
from gpuwise.cli.show.tables import Output, is_for_people, show
from gpuwise.core.errors import GpuwiseError
from gpuwise.core.units import parse_duration_s

LAYERS = (
    "gpu", "layer", "operator", "phase", "shape", "gflops", "read_and_written_bytes", "time_ms", "share_frac", "bound",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """How the model trains."""

    batch: Annotated[int, typer.Option(help="Samples in a step on each GPU.")] = 32
    precision: Annotated[str, typer.Option(help="fp32, tf32, fp16 or bf16; the last two are mixed.")] = "fp32"
    optimizer: Annotated[str, typer.Option(help="sgd, momentum or adam; none is a forward pass alone.")] = "momentum"
    image: Annotated[int | None, typer.Option(metavar="PIXELS", help="Height and width of images.")] = None
    sequence: Annotated[int | None, typer.Option(metavar="TOKENS", help="Length of sequences.")] = None


def predict_command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="torchvision:NAME, timm:NAME, hf:CONFIG.json, FILE.py:FUNCTION, MODULE:FUNCTION or FILE.onnx. "
            "Naming a file or function runs its code.",
        ),
    ],
    gpu: Annotated[str | None, typer.Option(metavar="TYPES", help="GPU types, such as V100,A100.")] = None,
    vm: Annotated[
        str | None, typer.Option(metavar="TYPES", help="VM types, such as p3dn.24xlarge; or a cloud: azure.")
    ] = None,
    gpus: Annotated[int, typer.Option(metavar="N", help="GPUs of a type that train together.")] = 1,
    *,
    training: TrainingOptions,
    measured: Annotated[
        str | None,
        typer.Option(metavar="GPU=TIME", help="What a step took where it has run, such as V100=0.21,T4=0.5."),
    ] = None,
    samples: Annotated[int, typer.Option(help="Samples in an epoch; ImageNet's if not given.")] = 1_281_167,
    layers: Annotated[bool, typer.Option("--layers", help="Show the costliest operators instead.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Trace the model again even if it is in the cache.")] = False,
    output: OutputOption = None,
) -> None:
    """Predict time, memory and cost of a model, without running it. One row per GPU or VM type."""
    from gpuwise.service.offline.predict import costliest, predict

    forecast = predict(
        model, gpus=_names(gpu), vms=_names(vm), count=gpus, measured=_times(measured), epoch_samples=samples,
        fresh=fresh, **asdict(training),
    )  # fmt: skip
    if layers:
        show(costliest(forecast), output, LAYERS, title=forecast.title)
    elif output is Output.JSON:
        show(forecast.to_dicts(), output)
    elif not is_for_people(output):
        show([row.flat() for row in forecast], output)
    else:
        show(forecast.table(), output, title=forecast.title)
        for remark in forecast.remarks():
            print(remark)


def _names(given: str | None) -> list[str] | None:
    return [name.strip() for name in given.split(",") if name.strip()] if given else None


def _times(given: str | None) -> dict[str, float] | None:
    """Seconds by GPU type."""
    times = {}
    for each in _names(given) or ():
        name, equals, time = each.partition("=")
        if not equals:
            raise GpuwiseError(f"--measured {each}: give GPU=TIME, such as V100=0.21")
        times[name.strip()] = parse_duration_s(time)
    return times or None
