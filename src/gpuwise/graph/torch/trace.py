"""From a PyTorch module to its graph: one training step on tensors that have shapes and no data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map

from gpuwise.graph.ops import Graph, GraphError, Op, Optimizer, Phase, Precision, update_ops
from gpuwise.graph.torch.gpu_rules import as_on_gpu
from gpuwise.graph.torch.prepare import (
    Unfilled,
    example,
    in_one_line,
    plain_kernels,
    plain_module,
    quietly,
    tensors_in,
    unchanged,
    usual_loss,
    why_not_traced,
    without_data,
)
from gpuwise.graph.torch.recorder import Recorder

Loss = Callable[..., torch.Tensor]


@dataclass(frozen=True, slots=True)
class Built:
    """A model that is ready to be traced."""

    module: torch.nn.Module
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] | None = None
    loss: Loss | None = None
    """From the model's output to a number; without one, cross entropy for class scores and else the mean."""
    notes: tuple[str, ...] = ()


def trace(
    build: Callable[[], Built],
    name: str,
    *,
    batch: int,
    precision: Precision = Precision.FP32,
    optimizer: Optimizer = Optimizer.MOMENTUM,
) -> Graph:
    """The graph of a model. ``build`` makes it; it is called on the meta device, so weights take no memory."""
    with unchanged(), quietly(), plain_kernels():
        built = _with_shapes(_build(build, name), name)
        with FakeTensorMode(allow_non_fake_inputs=True), as_on_gpu():
            return _traced(built, name, batch, precision, optimizer)


def _build(build: Callable[[], Built], name: str) -> Built:
    """Builds on the meta device; a model that reads values of tensors while it is built is built on the CPU."""
    try:
        with torch.device("meta"):
            return build()
    except GraphError:
        raise
    except (Exception, SystemExit) as on_meta:
        try:
            with Unfilled():
                built = build()
        except GraphError:
            raise
        except (Exception, SystemExit) as error:
            raise GraphError(f"{name}: the model could not be built: {in_one_line(error)}") from error
        note = f"built with its weights on the CPU, as it cannot be built on the meta device ({type(on_meta).__name__})"
        return replace(built, notes=(*built.notes, note))


def _with_shapes(built: Built, name: str) -> Built:
    try:
        return replace(built, module=plain_module(built.module, built.args, built.kwargs or {}))
    except (Exception, SystemExit) as error:
        raise why_not_traced(name, error, "") from error


def _traced(built: Built, name: str, batch: int, precision: Precision, optimizer: Optimizer) -> Graph:
    module = built.module
    try:
        without_data(module)
        args, kwargs = tree_map(example, (list(built.args), dict(built.kwargs or {})))
        module.train(optimizer is not Optimizer.NONE)
        recorder = Recorder(module)
    except (Exception, SystemExit) as error:
        raise why_not_traced(name, error, "") from error
    inputs = list(tensors_in((args, kwargs)))
    for each in inputs:
        recorder.memory.ignore(each)
    saved = _Saved(module)
    try:
        _run(replace(built, args=args, kwargs=kwargs), recorder, saved, precision, optimizer)
    except GraphError as error:
        raise GraphError(f"{name}: {error}") from error
    except (Exception, SystemExit) as error:
        raise why_not_traced(name, error, recorder.failed_in) from error
    about = {"model": name, "batch": batch, "precision": precision, "optimizer": optimizer, "notes": built.notes}
    return _graph(about, module, inputs, recorder, saved)


def _graph(
    about: Mapping[str, Any], module: torch.nn.Module, inputs: list[torch.Tensor], recorder: Recorder, saved: _Saved
) -> Graph:
    trained = [each for each in module.parameters() if each.requires_grad]
    count, trained_bytes = sum(each.numel() for each in trained), _bytes_of(trained)
    return Graph(
        **about,
        ops=(*saved.spread_over(recorder.ops), *update_ops(about["optimizer"], count, trained_bytes)),
        parameters=sum(each.numel() for each in module.parameters()),
        parameter_bytes=_bytes_of(module.parameters()),
        buffer_bytes=_bytes_of(module.buffers()),
        input_bytes=_bytes_of(inputs),
        input_shape=tuple(inputs[0].shape) if inputs else (),
        peak_bytes=float(recorder.memory.peak_bytes),
        saved_bytes=float(saved.total_bytes),
        unknown=dict(recorder.unknown),
        trainable_parameters=count,
        trainable_bytes=trained_bytes,
    )


def _bytes_of(tensors: Any) -> float:
    return float(sum(each.numel() * each.itemsize for each in tensors))


def _run(built: Built, recorder: Recorder, saved: _Saved, precision: Precision, optimizer: Optimizer) -> None:
    """A forward pass and, if the model is trained, the loss and the backward pass."""
    half = torch.bfloat16 if precision is Precision.BF16 else torch.float16
    trains = optimizer is not Optimizer.NONE
    with recorder, torch.set_grad_enabled(trains), recorder.inside(built.module):
        with torch.autocast("cpu", half, enabled=precision.is_mixed), saved.watching(recorder):
            output = built.module(*built.args, **(built.kwargs or {}))
            if not trains:
                return
            loss = (built.loss or usual_loss)(output)
            del output
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise GraphError(f"the loss must be one number that depends on trained parameters; it is {_shown(loss)}")
        recorder.phase = Phase.BACKWARD
        loss.backward()  # type: ignore[no-untyped-call]


def _shown(value: object) -> str:
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    return f"a tensor of shape {tuple(value.shape)} that {'needs' if value.requires_grad else 'has no'} gradients"


class _Saved:
    """What the forward pass saves for the backward pass, beside parameters."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.total_bytes = 0
        self._known = {id(each.untyped_storage()) for each in (*module.parameters(), *module.buffers())}
        self._storages: list[Any] = []
        self._by_op: dict[int, int] = {}

    @contextlib.contextmanager
    def watching(self, recorder: Recorder) -> Iterator[None]:
        """Counts what is saved inside the context."""

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if id(storage) not in self._known:
                self._known.add(id(storage))
                self._storages.append(storage)  # so that its id is not reused
                self.total_bytes += storage.nbytes()
                maker = recorder.made_by.get(id(storage), len(recorder.ops))  # an input: the operator about to run
                self._by_op[maker] = self._by_op.get(maker, 0) + storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            yield
        self._storages.clear()

    def spread_over(self, ops: Sequence[Op]) -> list[Op]:
        """The operators, each with what it has saved."""
        return [
            replace(op, saved_bytes=float(self._by_op[number])) if number in self._by_op else op
            for number, op in enumerate(ops)
        ]
