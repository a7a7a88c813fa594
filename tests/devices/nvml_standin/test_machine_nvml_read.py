"""What is read of GPUs, and what becomes of that which cannot be read."""

import math
from dataclasses import asdict

import pytest
from standin import FUNCTION_NOT_FOUND, GIB, NO_PERMISSION, NOT_SUPPORTED, UNKNOWN, Gpu, mig_gpu

BUSY = {"used": 10 * GIB, "util": 37, "milliwatt": 251_500, "celsius": 61, "mhz": 1275}

FIELDS = {
    "util_frac": ["nvmlDeviceGetUtilizationRates"],
    "memory_used_bytes": ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"],
    "memory_total_bytes": ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"],
    "power_w": ["nvmlDeviceGetPowerUsage"],
    "temperature_c": ["nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"],
    "sm_clock_mhz": ["nvmlDeviceGetClockInfo"],
}


def test_everything_a_gpu_tells_is_read_in_base_units(watch):
    machine = watch(Gpu(**BUSY, processes=[(4242, 6 * GIB, -1), (4243, 3 * GIB, -1)]), Gpu(util=100))

    busy, other = machine.read()[0, 0], machine.read()[0, 1]
    assert asdict(busy) == {
        "util_frac": 0.37,
        "memory_used_bytes": 10 * GIB,
        "memory_total_bytes": 40 * GIB,
        "power_w": 251.5,
        "temperature_c": 61,
        "sm_clock_mhz": 1275,
        "processes": {4242: 6 * GIB, 4243: 3 * GIB},
    }
    assert (other.util_frac, other.processes) == (1.0, {})


def test_a_reading_is_of_this_moment(watch, world):
    machine = watch(Gpu(util=10))
    before = machine.read()[0, 0].util_frac
    world.change(0, util=90)

    assert (before, machine.read()[0, 0].util_frac) == (0.1, 0.9)


def test_processes_whose_memory_the_driver_hides_are_listed_all_the_same(watch):
    processes = watch(Gpu(processes=[(7, -1, -1), (8, GIB, -1)])).read()[0, 0].processes

    assert math.isnan(processes[7])
    assert processes[8] == GIB


def test_clients_of_mps_count_as_processes(watch):
    gpu = Gpu(processes=[(1, 2 * GIB, -1), (2, -1, -1)], mps_processes=[(2, 3 * GIB), (1, -1), (3, GIB)])

    assert watch(gpu).read()[0, 0].processes == {1: 2 * GIB, 2: 3 * GIB, 3: GIB}


@pytest.mark.parametrize("code", [NOT_SUPPORTED, UNKNOWN, NO_PERMISSION, FUNCTION_NOT_FOUND])
@pytest.mark.parametrize("field", FIELDS)
def test_what_cannot_be_read_is_nan_and_the_rest_is_read(watch, world, field, code):
    machine = watch(Gpu(**BUSY, processes=[(5, GIB, -1)]))
    for function in FIELDS[field]:
        world.fail(function, code)

    reading = asdict(machine.read()[0, 0])
    unknown = {name for name in FIELDS if math.isnan(reading[name])}
    assert unknown == {name for name, functions in FIELDS.items() if functions == FIELDS[field]}
    assert reading["processes"] == {5: GIB}
    assert machine.lost() == frozenset()


def test_processes_that_cannot_be_read_are_none(watch, world):
    machine = watch(Gpu(**BUSY, processes=[(5, GIB, -1)]))
    world.fail("nvmlDeviceGetComputeRunningProcesses_v3", UNKNOWN)

    assert machine.read()[0, 0].processes == {}
    assert machine.read()[0, 0].util_frac == 0.37


def test_older_drivers_count_what_they_keep_for_themselves_as_used(watch, world):
    machine = watch(Gpu(used=10 * GIB))
    world.fail("nvmlDeviceGetMemoryInfo_v2", FUNCTION_NOT_FOUND)

    assert machine.read()[0, 0].memory_used_bytes == 10 * GIB + 40 * GIB / 64


@pytest.mark.parametrize("missing", FIELDS["temperature_c"])
def test_either_way_to_ask_for_the_temperature_will_do(watch, world, missing):
    machine = watch(Gpu(celsius=55))
    world.fail(missing, FUNCTION_NOT_FOUND)

    assert machine.read()[0, 0].temperature_c == 55


def test_a_gpu_that_is_cut_tells_no_utilization_but_its_processes(watch):
    machine = watch(mig_gpu(("3g.20gb", 0), ("3g.20gb", 4), processes=[(11, GIB, 1), (12, 2 * GIB, 2)]))

    reading = machine.read()[0, 0]
    assert math.isnan(reading.util_frac)
    assert reading.processes == {11: GIB, 12: 2 * GIB}


def test_without_root_the_processes_of_a_gpu_that_is_cut_are_read_slice_by_slice(watch, world):
    machine = watch(mig_gpu(("3g.20gb", 0), ("3g.20gb", 4), processes=[(11, GIB, 1), (12, 2 * GIB, 2)]))
    world.fail("nvmlDeviceGetComputeRunningProcesses_v3", NO_PERMISSION)

    assert machine.read()[0, 0].processes == {11: GIB, 12: 2 * GIB}
    world.fail("nvmlDeviceGetComputeRunningProcesses_v3/slice", NO_PERMISSION)
    assert machine.read()[0, 0].processes == {}
