"""Times of random convolution and dense layers on six GPUs (Justus et al. 2018, TensorFlow)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuwise.predict.base import PredictionError
from gpuwise.predict.fitting.data.tables import read_table

FOLDER = "justus2018_layer_times"

# The raw file of the V100 has numbers in place of names.
OPTIMIZERS = ("none", "sgd", "adadelta", "adagrad", "momentum", "adam", "rmsprop")
ACTIVATIONS = ("none", "relu", "tanh", "sigmoid")

CONVOLUTION = ("batchsize", "matsize", "kernelsize", "strides", "channels_in", "channels_out")
DENSE = ("batchsize", "dim_input", "dim_output")

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
    if not len(table):
        raise PredictionError(f"the files convolution_*.csv and dense_*.csv of {data / FOLDER} have no rows to use")
    return {name: table[name].to_numpy() for name in table.columns}


def _read(file: Path) -> Any:
    """A file; a dense layer is a convolution of one pixel with a filter of one pixel."""
    import polars as pl

    kind, gpu = file.stem.removesuffix("_raw").split("_", 1)
    activation = "activation_fct" if "activation_fct" in pl.read_csv(file, n_rows=0).columns else "activation"
    dense = kind == "dense"
    sizes, flags = DENSE if dense else CONVOLUTION, () if dense else ("padding", "use_bias")
    table = read_table(file, (*sizes, "time_median_ms"), (*flags, "time_std_ms"), ("optimizer", activation))
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
        _named("optimizer", OPTIMIZERS).alias("optimizer"),
        _named(activation, ACTIVATIONS).alias("activation"),
        (pl.col("time_median_ms") / 1e3).alias("time_s"),
        (pl.col("time_std_ms") / 1e3).alias("spread_s"),
    )


def _named(column: str, names: tuple[str, ...]) -> Any:
    import polars as pl

    return pl.col(column).str.to_lowercase().replace({str(number): name for number, name in enumerate(names)})
