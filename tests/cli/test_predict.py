"""``predict``, ``fit`` and ``evaluate`` on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command import Answer
from command import gpuwise as gpuwise_in

pytest.importorskip("torch", reason="models are traced with PyTorch")

MODEL = """
import torch

def build(batch):
    layers = [torch.nn.Flatten(), torch.nn.Linear(3072, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)]
    return torch.nn.Sequential(*layers), [torch.zeros(batch, 3, 32, 32)]

def broken(batch):
    raise ValueError("no such layer")

def looks(batch):
    class Looks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)
        def forward(self, x):
            return self.layer(x) if x.sum() > 0 else x
    return Looks(), torch.zeros(batch, 4)
"""


def gpuwise(*words: str) -> Answer:
    return gpuwise_in(*words, folder=Path.cwd())


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(MODEL)
    (tmp_path / "damaged.onnx").write_bytes(b"damaged" * 20)
    (tmp_path / "config.json").write_text('{"hidden_size": 8}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_json_has_what_the_contract_says() -> None:
    answer = gpuwise("predict", "mine.py:build", "--batch", "64", "--gpu", "V100,A100", "-o", "json")
    rows = json.loads(answer.out)
    assert [row["gpu"] for row in rows] == ["V100", "A100"]
    for row in rows:
        assert row["batch"] == 64
        assert row["precision"] == "fp32"
        for name in ("step_time_s", "gpu_util_pct", "memory_bytes", "samples_per_s", "usd_per_epoch"):
            assert row[name].keys() == {"value", "low", "high"}, name
        assert {"fits", "p_oom", "source", "in_domain"} <= row.keys()


def test_a_pipe_gets_csv_and_a_table_has_units() -> None:
    plain = gpuwise("predict", "mine.py:build", "--gpu", "V100").out.splitlines()
    assert plain[0].startswith("gpu,gpus,batch,precision,step_time_s,step_time_s_low,step_time_s_high")
    table = gpuwise("predict", "mine.py:build", "--gpu", "V100", "-o", "table").out
    assert "step ms" in table
    assert "1.579 M parameters" in table  # 3072 · 512 + 512 + 512 · 10 + 10 = 1,578,506


def test_layers_shows_the_costliest_operators() -> None:
    rows = json.loads(gpuwise("predict", "mine.py:build", "--gpu", "V100", "--layers", "-o", "json").out)
    assert rows[0]["layer"] in ("1", "")  # the large matrix, or the update of its parameters
    assert {"operator", "phase", "gflops", "share_frac", "bound"} <= rows[0].keys()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mine.py:build", "--batch", "0"], "a batch of 0"),
        (["mine.py:build", "--gpu", "V1000"], "unknown GPU type 'V1000'"),
        (["mine.py:build", "--vm", "p99"], "unknown VM type 'p99'"),
        (["mine.py:nothing"], "nothing"),
        (["mine.py:broken"], "no such layer"),
        (["mine.py:looks"], "depend"),
        (["nowhere.py:build"], "nowhere.py"),
        (["damaged.onnx"], "damaged.onnx"),
        (["missing.onnx"], "missing.onnx"),
        (["hf:config.json"], "model_type"),
        (["resnet50"], "torchvision:"),
        (["mine.py:build", "--precision", "fp9"], "fp9"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(words: list[str], said: str) -> None:
    answer = gpuwise("predict", *words)
    assert answer.code == 2
    assert said in answer.err
    assert len(answer.err.strip().splitlines()) == 1, answer.err
    assert "Traceback" not in answer.err


def test_the_second_call_imports_nothing_heavy(here: Path) -> None:
    words = ["predict", "mine.py:build", "--gpu", "V100", "-o", "json"]
    first = gpuwise(*words)
    assert first.code == 0
    script = (
        "import sys; from gpuwise.cli.main import main; sys.argv = ['gpuwise', *sys.argv[1:]]\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'scipy', 'sklearn', 'polars', 'sqlalchemy'} & sys.modules.keys()), file=sys.stderr)"
    )
    second = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    assert second.stdout == first.out
    assert second.stderr.strip() == "[]"


def test_an_unknown_predictor_is_answered_with_those_there_are(tmp_path: Path) -> None:
    for verb in ("fit", "evaluate"):
        answer = gpuwise(verb, "memry", "--data", str(tmp_path))
        assert answer.code == 2
        assert "memory" in answer.err


def test_data_that_are_not_there_are_asked_for(tmp_path: Path) -> None:
    answer = gpuwise("evaluate", "mig", "--data", str(tmp_path / "nowhere"))
    assert answer.code == 2
    assert "is not a folder" in answer.err


def test_a_fit_is_written_used_and_the_same_again(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = gpuwise(
        "fit", "mig", "--data", str(data_dir), "--to", str(tmp_path / "own"), "--made", "2026-01-01", "-o", "json"
    )
    (row,) = json.loads(answer.out)
    document = json.loads(Path(row["file"]).read_text())
    assert document["made"] == "2026-01-01"
    assert document["data"][0]["licence"].startswith("MIT")
    assert document["errors"][0]["holdout"].startswith("mig")
    monkeypatch.setenv("GPUWISE_FITTED", str(tmp_path / "own"))
    assert json.loads(gpuwise("fit", "mig", "--data", str(data_dir), "--check", "-o", "json").out)[0]["same"] is True


def test_a_fit_that_differs_is_noticed(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpuwise("fit", "mig", "--data", str(data_dir), "--to", str(tmp_path), "--no-errors")
    document = json.loads((tmp_path / "mig.json").read_text())
    learned = document["predictor"]["learned"]
    name = next(name for name, value in learned.items() if isinstance(value, dict) and "__array__" in value)
    learned[name]["__array__"][0] = 123.0
    (tmp_path / "mig.json").write_text(json.dumps(document))
    monkeypatch.setenv("GPUWISE_FITTED", str(tmp_path))
    answer = gpuwise("fit", "mig", "--data", str(data_dir), "--check")
    assert answer.code == 2
    assert "not those in use" in answer.err


def test_evaluate_tells_errors_by_group_and_draws(data_dir: Path, tmp_path: Path) -> None:
    rows = json.loads(gpuwise("evaluate", "mig", "--data", str(data_dir), "-o", "json", "--plots", str(tmp_path)).out)
    assert {"mape", "rmsle", "bias", "under", "coverage", "width", "target", "met"} <= rows[0].keys()
    assert (tmp_path / f"{rows[0]['holdout']}.svg").read_text().startswith("<?xml")
    groups = json.loads(gpuwise("evaluate", "mig", "--data", str(data_dir), "-o", "json", "--groups").out)
    assert sum(row["rows"] for row in groups if row["holdout"] == rows[0]["holdout"]) == rows[0]["rows"]


def own_measurements(folder: Path) -> Path:
    """MISO's table of slices, of somebody's own jobs."""
    rows = [
        f"{slices},{memory},{model},8,{0.7 / slices},{0.7 / slices}"
        for model in ("mine", "yours")
        for slices, memory in ((1, 5), (3, 20), (7, 40))
    ]
    (folder / "miso").mkdir()
    head = "compute_slices,memory_gb,model,batch_size,median_iter_s,mean_iter_s"
    (folder / "miso" / "mig_iteration_time_summary.csv").write_text("\n".join((head, *rows)) + "\n")
    return folder


def test_the_shipped_predictors_can_be_scored_on_measurements_of_ones_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answer = gpuwise("evaluate", "--shipped", "--data", str(own_measurements(tmp_path)), "-o", "json")
    assert answer.code == 0
    (row,) = json.loads(answer.out)
    assert row["holdout"] == "mig-in-use"
    assert row["rows"] == 4
    assert f"{tmp_path}/gavel" in caplog.text  # what the other predictors would need; on stderr outside of tests


def test_predictors_whose_data_are_missing_do_not_keep_the_others_from_a_fit(tmp_path: Path) -> None:
    folder = own_measurements(tmp_path)
    answer = gpuwise("fit", "--data", str(folder), "--to", str(tmp_path / "own"), "--no-errors", "-o", "json")
    assert answer.code == 0
    assert [row["predictor"] for row in json.loads(answer.out)] == ["mig"]
    assert "left out: predictor layer_time: no layer times in" in answer.err
    assert gpuwise("fit", "layer_time", "--data", str(folder), "--to", str(tmp_path / "own")).code == 2


def test_a_folder_without_data_is_an_error(tmp_path: Path) -> None:
    for words in (("evaluate", "mig"), ("evaluate", "mig", "--shipped"), ("fit", "--no-errors")):
        answer = gpuwise(*words, "--data", str(tmp_path))
        assert answer.code == 2
        assert str(tmp_path) in answer.err
