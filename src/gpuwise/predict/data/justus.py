"""Times of random convolution and dense layers on six GPUs (Justus et al. 2018, TensorFlow)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuwise.predict.base import PredictionError

FOLDER = "justus2018_layer_times"

# The raw file of the V100 has numbers in place of names.
OPTIMIZERS = ("none", "sgd", "adadelta", "adagrad", "momentum", "adam", "rmsprop")
ACTIVATIONS = ("none", "relu", "tanh", "sigmoid")

Table = dict[str, Any]


def layers(data: Path) -> Table:
    """Every measured layer: the columns of `LayerTime`, and ``time_s`` (the median) with ``spread_s``."""
    import polars as pl

    files = sorted((data / FOLDER).glob("convolution_*.csv")) + sorted((data / FOLDER).glob("dense_*.csv"))
    if not files:
        raise PredictionError(
            f"no layer times in {data / FOLDER}: files convolution_*.csv and dense_*.csv are expected"
        )
    table = pl.concat([_read(file) for file in files])
    return {name: table[name].to_numpy() for name in table.columns}


def _read(file: Path) -> Any:
    """A file; a dense layer is a convolution of one pixel with a filter of one pixel."""
    import polars as pl

    kind, gpu = file.stem.removesuffix("_raw").split("_")
    table = pl.read_csv(file)
    given = set(table.columns)
    activation = "activation" if "activation" in given else "activation_fct"
    dense = kind == "dense"
    one = pl.lit(1)
    return table.select(
        pl.lit(gpu).alias("gpu"),
        pl.lit("dense" if dense else "conv").alias("kind"),
        pl.col("batchsize").cast(pl.Int64).alias("batch"),
        (one if dense else pl.col("matsize")).cast(pl.Int64).alias("input_size"),
        (one if dense else pl.col("kernelsize")).cast(pl.Int64).alias("kernel"),
        (one if dense else pl.col("strides")).cast(pl.Int64).alias("stride"),
        (pl.lit(0) if dense else pl.col("padding")).cast(pl.Int64).alias("same_padding"),
        pl.col("dim_input" if dense else "channels_in").cast(pl.Int64).alias("channels_in"),
        pl.col("dim_output" if dense else "channels_out").cast(pl.Int64).alias("channels_out"),
        (one if dense else pl.col("use_bias")).cast(pl.Int64).alias("bias"),
        _named(table, "optimizer", OPTIMIZERS).alias("optimizer"),
        _named(table, activation, ACTIVATIONS).alias("activation"),
        (pl.col("time_median_ms") / 1e3).alias("time_s"),
        (pl.col("time_std_ms") / 1e3).alias("spread_s"),
    )


def _named(table: Any, column: str, names: tuple[str, ...]) -> Any:
    import polars as pl

    if table[column].dtype.is_numeric():
        return pl.col(column).replace_strict(dict(enumerate(names)), return_dtype=pl.String)
    return pl.col(column).str.to_lowercase()
