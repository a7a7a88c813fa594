"""Every GPU named in the papers, traces and price lists gpuwise uses is in the catalogue, or knowingly left out."""

import csv

import pytest

from gpuwise.core.errors import UnknownNameError
from gpuwise.devices import catalogue
from gpuwise.devices.catalogue import gpu_type, gpu_types

# name as it is written there -> name in the catalogue
NAMED = {
    "the documents": {
        "NVIDIA Tesla V100": "V100",
        "NVIDIA Tesla P100": "P100",
        "K80": "K80",
        "M60": "M60",
        "Quadro P600": "P600",
        "P600": "P600",
        "GTX 1080Ti": "GTX1080Ti",
        "Geforce GTX 1080Ti": "GTX1080Ti",
        "GeForce 1080": "GTX1080",
        "2080": "RTX2080",
        "NVIDIA A100": "A100",
    },
    "layer times (justus2018)": {"K40": "K40", "k80": "K80", "1080ti": "GTX1080Ti"},
    "neusight": {
        "AMD Instinct MI100": "MI100",
        "AMD Instinct MI210": "MI210",
        "AMD Instinct MI250": "MI250",
        "NVIDIA A100-PCIE-40GB": "A100-PCIe-40GB",
        "NVIDIA A100-SXM4-40GB": "A100",
        "NVIDIA A100 80GB PCIe": "A100-PCIe-80GB",
        "NVIDIA H100 80GB HBM3": "H100",
        "NVIDIA L4": "L4",
        "Tesla P100-PCIE-16GB": "P100",
        "Tesla P4": "P4",
        "Tesla T4": "T4",
        "Tesla V100-PCIE-32GB": "V100-PCIe-32GB",
        "Tesla_V100-PCIE-32GB": "V100-PCIe-32GB",
    },
    "timm": {"rtx3090": "RTX3090", "rtx4090": "RTX4090"},
    "pytorch_gpu_benchmark": {
        "GeForce GTX 1080 Ti": "GTX1080Ti",
        "GeForce RTX 2080 Ti": "RTX2080Ti",
        "1080TI": "GTX1080Ti",
        "2080ti": "RTX2080Ti",
        "TITAN RTX": "TITANRTX",
        "TitanRTX": "TITANRTX",
        "TITAN V": "TITANV",
        "TITAN Xp": "TITANXp",
        "A100-SXM4": "A100",
    },
    "zeus": {"v100": "V100", "p100": "P100", "rtx6000": "RTX6000", "a40": "A40"},
    "gavel": {"k80": "K80", "p100": "P100", "v100": "V100"},
    "alibaba 2023": {
        "A10": "A10",
        "G1": "G1",
        "G2": "G2",
        "G3": "G3",
        "P100": "P100",
        "T4": "T4",
        "V100M16": "V100",
        "V100M32": "V100-32GB",
    },
    "schedtune": {"RTX3070": "RTX3070", "RTX3090": "RTX3090"},
    "mlperf": {
        "AMD Radeon RX 7900 XTX": "RX7900XTX",
        "NVIDIA A100-PCIe-40GB(250W)": "A100-PCIe-40GB",
        "NVIDIA A100-SXM4-40GB (400W)": "A100",
        "NVIDIA A100-SXM-40GB": "A100",
        "NVIDIA A100-SXM-80GB (500W)": "A100-80GB",
        "NVIDIA A100-SXM-80GB CTS": "A100-80GB",
        "A100-SXM4-80GB": "A100-80GB",
        "NVIDIA A100-PCIE-80GB": "A100-PCIe-80GB",
        "NVIDIA A30": "A30",
        "NVIDIA A30-PCIE-24GB": "A30",
        "NVIDIA A40": "A40",
        "NVIDIA GeForce RTX 4090": "RTX4090",
        "NVIDIA H100-PCIe": "H100-PCIe",
        "NVIDIA H100-PCIe-80GB": "H100-PCIe",
        "NVIDIA H100-SXM-80GB": "H100",
        "NVIDIA H100-SXM5-80GB": "H100",
        "NVIDIA H200-SXM5-141GB": "H200",
        "NVIDIA L40": "L40",
        "NVIDIA L40S": "L40S",
        "NVIDIA RTX A5000": "RTXA5000",
        "NVIDIA V100": "V100",
        "NVIDIA V100-SXM2-16GB (300W)": "V100",
        "NVIDIA V100-SXM2-32GB": "V100-32GB",
        "NVIDIA V100-SXM3-32GB (350W)": "V100-SXM3-32GB",
        "NVIDIA V100-SXM3-32GB (450W)": "V100-SXM3-32GB",
        "Nvidia Tesla V100-SXM2-32GB": "V100-32GB",
        "Nvidia Tesla V100S-PCIe-32GB": "V100S",
    },
    "skypilot": {
        "A100": "A100",
        "A100-80GB": "A100-80GB",
        "A100-80GB-SXM": "A100-80GB",
        "A10G": "A10G",
        "A4000": "RTXA4000",
        "A6000": "RTXA6000",
        "B200": "B200",
        "B300": "B300",
        "GH200": "GH200",
        "H100": "H100",
        "H100-MEGA": "H100",
        "H100-NVL": "H100-NVL",
        "H100-NVLINK": "H100-PCIe",
        "H100-SXM": "H100",
        "H200": "H200",
        "H200-SXM": "H200",
        "L4": "L4",
        "L40": "L40",
        "L40S": "L40S",
        "M4000": "M4000",
        "MI300X": "MI300X",
        "P4": "P4",
        "P40": "P40",
        "P4000": "P4000",
        "RTX PRO 4500": "RTXPRO4500",
        "RTX PRO Server 6000": "RTXPRO6000",
        "RTX3060": "RTX3060",
        "RTX3080": "RTX3080",
        "RTX4000-Ada": "RTX4000Ada",
        "RTX4090": "RTX4090",
        "RTX6000": "RTX6000",
        "RTX6000-Ada": "RTX6000Ada",
        "RTX8000": "RTX8000",
        "RTXA4000": "RTXA4000",
        "RTXA4500": "RTXA4500",
        "RTXA5000": "RTXA5000",
        "RTXA6000": "RTXA6000",
        "RTXPRO6000": "RTXPRO6000",
        "Radeon MI25": "MI25",
        "Radeon Pro V520": "RadeonProV520",
        "T4g": "T4G",
        "V100-32GB": "V100-32GB",
    },
}

NOT_GPUS = {
    "TPU": "matrix processor of Google",
    "TPU v3": "matrix processor of Google",
    "TPU-v5p": "matrix processor of Google",
    "Inferentia": "inference chip of AWS",
    "Inferentia2": "inference chip of AWS",
    "Trainium": "training chip of AWS",
    "Habana Gaudi": "training chip of Intel",
    "Habana Gaudi2": "training chip of Intel",
    "Intel(R) Gaudi(R) 2 AI Accelerator": "training chip of Intel",
    "Gaudi HL-205": "training chip of Intel",
    "Ascend910": "training chip of Huawei",
    "Ascend 910 Premium A": "training chip of Huawei",
    "Ascend 910 Pro A": "training chip of Huawei",
    "Graphcore IPU GC200": "training chip of Graphcore",
    "Qualcomm AI100": "inference chip of Qualcomm",
    "Virtex UltraScale+ (VU47P)": "FPGA",
    "N/A": "a system without accelerator",
    "": "a system without accelerator",
}

COLUMNS = [
    ("neusight/device_configs.csv", "Device"),
    ("pytorch_gpu_benchmark/step_time_ms_bs12.csv", "gpu"),
    ("alibaba_gpu_v2023/openb_node_list_all_node.csv", "model"),
    ("mlperf_training/runs_v0.7.csv", "accelerator"),
    ("mlperf_training/runs_v1.0.csv", "accelerator"),
    ("mlperf_training/runs_v2.1.csv", "accelerator"),
    ("mlperf_training/runs_v3.0.csv", "accelerator"),
    ("mlperf_training/runs_v4.0.csv", "accelerator"),
    ("skypilot_catalog/aws_gpu_vms_v7.csv", "AcceleratorName"),
    ("skypilot_catalog/azure_gpu_vms_v4.csv", "AcceleratorName"),
    ("skypilot_catalog/azure_gpu_vms_v8.csv", "AcceleratorName"),
    ("skypilot_catalog/gcp_gpu_vms_v8.csv", "AcceleratorName"),
    ("skypilot_catalog/gpu_memory_metadata.csv", "GPU"),
]


@pytest.mark.parametrize(
    ("written", "name"), [pair for names in NAMED.values() for pair in names.items()], ids=lambda name: name
)
def test_names_found_in_papers_traces_and_price_lists(written, name):
    assert gpu_type(written).name == name


@pytest.mark.parametrize("name", [name for name in NOT_GPUS if name])
def test_what_is_not_a_gpu_is_not_in_the_catalogue(name):
    with pytest.raises(UnknownNameError):
        gpu_type(name)


@pytest.mark.parametrize(("file", "column"), COLUMNS, ids=lambda value: value)
def test_no_name_in_the_data_was_overlooked(shared_data, file, column):
    if not (shared_data / file).exists():
        pytest.skip(f"{file} is absent")
    with (shared_data / file).open(encoding="utf-8", newline="") as rows:
        written = {row[column] for row in csv.DictReader(rows)}
    unknown = {name for name in written if not _known(name)}
    assert not unknown


def _known(name):
    if name in NOT_GPUS or name.startswith("tpu-"):
        return True
    try:
        return bool(gpu_type(name))
    except UnknownNameError:
        return False


@pytest.mark.parametrize("spelling", ["rtx 2080 ti", "RTX-2080Ti", "2080Ti", "GEFORCE_RTX_2080_TI", "nvidia rtx2080ti"])
def test_case_separators_and_brand_do_not_matter(spelling):
    assert gpu_type(spelling) is gpu_type("RTX2080Ti")


def test_near_names_stay_apart():
    apart = ["RTX2080", "RTX2080Ti", "GTX1080", "GTX1080Ti", "RTX6000", "RTX6000Ada", "RTXA6000", "RTXPRO6000"]
    apart += ["A100", "A100-80GB", "A10", "A10G", "L4", "L40", "L40S", "P4", "P40", "P4000", "T4", "T4G"]
    assert [gpu_type(name).name for name in apart] == apart


def test_no_two_types_share_a_spelling():
    owner: dict[str, str] = {}
    for gpu in gpu_types().values():
        for spelling in {catalogue.spelling_key(name) for name in (gpu.name, *gpu.aliases)}:
            assert owner.setdefault(spelling, gpu.name) == gpu.name
