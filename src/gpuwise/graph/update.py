"""The optimizer's part of a step."""

from __future__ import annotations

from gpuwise.graph.ops import Kind, Op, Optimizer, Phase

_FLOPS = {Optimizer.SGD: 2.0, Optimizer.MOMENTUM: 4.0, Optimizer.ADAM: 12.0}
_VALUE_BYTES = 4.0


def update_ops(optimizer: Optimizer, parameters: int, parameter_bytes: float | None = None) -> list[Op]:
    """One pass over all parameters: reads each value, its gradient and its states, writes the value and the states.

    The gradient and the states are held as the parameters are: 4 bytes a value, unless ``parameter_bytes`` says else.
    """
    if optimizer is Optimizer.NONE or not parameters:
        return []
    values = 1 + optimizer.states
    size = _VALUE_BYTES * parameters if parameter_bytes is None else parameter_bytes
    return [
        Op(
            kind=Kind.OPTIMIZER,
            phase=Phase.UPDATE,
            operator=f"optimizer.{optimizer}",
            layer="",
            flops=_FLOPS[optimizer] * parameters,
            read_bytes=size * (values + 1),
            write_bytes=size * values,
            output=(parameters,),
        )
    ]
