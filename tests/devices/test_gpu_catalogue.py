"""The figures of the GPU catalogue: arithmetic that must hold, and a source behind each."""

import dataclasses
import time
import tomllib
from importlib.resources import files

import pytest

from gpuwise.core.errors import GpuwiseError, UnknownNameError
from gpuwise.devices import catalogue
from gpuwise.devices.catalogue import gpu_type, gpu_types

DOCUMENT = tomllib.loads(files("gpuwise.devices").joinpath("gpus.toml").read_text(encoding="utf-8"))
FIGURES = [f.name for f in dataclasses.fields(catalogue.GpuType) if f.name not in {"name", "aliases", "sources"}]
NUMBERS = [name for name in FIGURES if name.endswith(("tflops", "_tops", "_s", "bytes", "mhz", "watts", "sms", "hour"))]
TENSOR = ["tf32_tensor_tflops", "fp16_tensor_tflops", "bf16_tensor_tflops", "fp8_tensor_tflops"]

# FP32 lanes in one SM (compute unit on AMD, where RDNA3 issues two).
LANES = {
    "Kepler": 192,
    "Maxwell": 128,
    "Pascal": 128,
    "Volta": 64,
    "Turing": 64,
    "Ampere": 128,
    "Ada": 128,
    "Hopper": 128,
    "GCN5": 64,
    "RDNA": 64,
    "RDNA3": 128,
    "CDNA": 64,
    "CDNA2": 64,
    "CDNA3": 128,
}
HALF_WIDTH = {"6.0", "8.0"}  # GP100 and GA100 have 64 lanes in an SM

CLOCKED = [g for g in gpu_types().values() if g.boost_clock_mhz and g.fp32_tflops and g.sms]


@pytest.mark.parametrize("gpu", CLOCKED, ids=lambda gpu: gpu.name)
def test_fp32_rate_is_two_operations_per_lane_and_clock(gpu):
    # V100: 2 × 5120 lanes × 1.53 GHz = 15.67 TFLOPS, printed as 15.7
    lanes = 64 if gpu.compute_capability in HALF_WIDTH else LANES[gpu.architecture]
    expected = 2 * gpu.sms * lanes * gpu.boost_clock_mhz * 1e6 / 1e12
    assert gpu.fp32_tflops == pytest.approx(expected, rel=0.03)


def test_v100_as_printed_in_its_datasheet():
    v100 = gpu_type("V100")
    assert v100.fp32_tflops == pytest.approx(2 * 5120 * 1.53e9 / 1e12, rel=0.02)
    assert v100.memory_bytes == 16 * 2**30
    assert v100.memory_bandwidth_bytes_per_s == 900e9
    assert (v100.fp64_tflops, v100.fp16_tensor_tflops, v100.tdp_watts) == (7.8, 125, 300)
    assert v100.gpu_link_bytes_per_s == 300e9
    assert not v100.mig


def test_k80_is_half_a_board():
    k80 = gpu_type("K80")  # board: 24 GB, 480 GB/s, 26 SMs, 8.74 TFLOPS, 300 W
    assert (k80.memory_bytes, k80.sms, k80.tdp_watts) == (12 * 2**30, 13, 150)
    assert k80.memory_bandwidth_bytes_per_s == 240e9
    assert 2 * k80.fp32_tflops == pytest.approx(8.74)


@pytest.mark.parametrize(
    ("gpu", "bus_bits", "gbit_per_s_per_pin"),
    [("RTX2080Ti", 352, 14), ("T4", 256, 10), ("RTX3090", 384, 19.5), ("A40", 384, 14.5), ("RTX4090", 384, 21)],
)
def test_memory_bandwidth_is_bus_width_times_pin_rate(gpu, bus_bits, gbit_per_s_per_pin):
    expected = bus_bits / 8 * gbit_per_s_per_pin * 1e9
    assert gpu_type(gpu).memory_bandwidth_bytes_per_s == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("gpu", gpu_types().values(), ids=lambda gpu: gpu.name)
def test_figures_stand_in_the_order_physics_gives_them(gpu):
    assert all(getattr(gpu, name) is None or getattr(gpu, name) > 0 for name in NUMBERS)
    rates = [getattr(gpu, name) for name in TENSOR if getattr(gpu, name) is not None and name != "bf16_tensor_tflops"]
    assert rates == sorted(rates), "a narrower format is never slower"
    if gpu.fp64_tflops and gpu.fp32_tflops:
        assert gpu.fp64_tflops <= gpu.fp32_tflops
    if gpu.fp16_tflops and gpu.fp32_tflops:
        assert gpu.fp16_tflops >= gpu.fp32_tflops


@pytest.mark.parametrize(("name", "entry"), DOCUMENT["gpus"].items())
def test_every_figure_has_a_source_that_exists(name, entry):
    assert "default" in entry["source"]
    assert set(entry["source"].values()) <= set(DOCUMENT["sources"])
    unused = set(entry["source"]) - {"default"} - set(entry)
    assert not unused, "a source for a figure that is not there"
    gpu = gpu_types()[name]
    for figure in FIGURES:
        assert (gpu.source_of(figure) is None) == (getattr(gpu, figure) is None)


def test_every_source_is_used():
    used = {key for entry in DOCUMENT["gpus"].values() for key in entry["source"].values()}
    assert used == set(DOCUMENT["sources"])


def test_source_of_tells_overrides_from_the_default():
    v100 = gpu_type("V100")
    assert "datasheet" in v100.source_of("fp32_tflops")
    assert "skypilot-catalog" in v100.source_of("usd_per_hour")
    assert v100.source_of("fp8_tensor_tflops") is None
    assert "derived" in gpu_type("GTX1080Ti").source_of("fp64_tflops")


def test_source_of_an_unknown_figure_names_the_nearest():
    with pytest.raises(UnknownNameError, match="fp32_tflops"):
        gpu_type("V100").source_of("fp32_flops")


def test_types_come_oldest_first_and_undated_ones_last():
    dates = [gpu.release for gpu in gpu_types().values()]
    dated = [date for date in dates if date]
    assert dated == sorted(dated)
    assert dates[: len(dated)] == dated
    assert next(iter(gpu_types())) == "K40"
    assert all(len(date) == 7 and date[4] == "-" for date in dated)


def test_undisclosed_types_have_a_name_and_nothing_else():
    for name in ("G1", "G2", "G3"):
        gpu = gpu_type(name)
        assert gpu.vendor == "undisclosed"
        assert all(getattr(gpu, figure) is None for figure in NUMBERS)


def test_every_other_type_has_memory_and_an_architecture():
    for gpu in gpu_types().values():
        if gpu.vendor != "undisclosed":
            assert gpu.memory_bytes
            assert gpu.architecture


def test_pcie_bandwidth_follows_from_the_generation():
    # gen 4: 16 lanes × 16 GT/s × 128/130 / 8 bit = 31.5 GB/s
    assert gpu_type("A100").pcie_bytes_per_s == pytest.approx(16 * 16e9 * 128 / 130 / 8, rel=1e-3)
    assert gpu_type("GH200").pcie_bytes_per_s is None


def test_a_type_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        gpu_type("V100").memory_bytes = 0
    with pytest.raises(TypeError):
        gpu_types()["V100"] = None
    assert hash(gpu_type("V100")) == hash(gpu_type("Tesla V100"))


@pytest.mark.parametrize(
    ("asked", "nearest"), [("V10", "V100"), ("rtx 2080 tii", "RTX2080Ti"), ("A100-81GB", "A100-80GB")]
)
def test_unknown_types_name_the_nearest(asked, nearest):
    with pytest.raises(UnknownNameError) as failure:
        gpu_type(asked)
    assert nearest in failure.value.nearest
    assert isinstance(failure.value, GpuwiseError)
    assert repr(asked) in str(failure.value)


def test_loading_is_quick():
    def load_s():
        gpu_types.cache_clear()
        started = time.process_time()
        gpu_types()
        return time.process_time() - started

    # 12 ms measured; the command line has 300 ms for everything
    assert min(load_s() for _ in range(5)) < 0.030
