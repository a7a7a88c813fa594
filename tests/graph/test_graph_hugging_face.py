"""Models of transformers, from a config.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tracing import product_macs

from gpuwise.graph.models import hugging_face
from gpuwise.graph.models.by_name import ModelSpec, graph_of
from gpuwise.graph.models.libraries import library
from gpuwise.graph.ops import Graph, GraphError, Kind, Optimizer, Phase

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 100,
}
CONFIGS = {
    "bert": {"model_type": "bert", "architectures": ["BertForMaskedLM"], **SMALL},
    "gpt2": {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 32, "n_layer": 2, "n_head": 4,
        "vocab_size": 100,
    },
    "vit": {"model_type": "vit", "architectures": ["ViTForImageClassification"], "image_size": 32, **SMALL},
    "t5": {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 32, "d_kv": 8, "d_ff": 64,
        "num_layers": 2, "num_heads": 4, "vocab_size": 100, "is_encoder_decoder": True,
    },
    "bart": {
        "model_type": "bart", "architectures": ["BartForConditionalGeneration"], "d_model": 32, "encoder_layers": 1,
        "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64, "vocab_size": 100,
    },
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _transformers() -> None:
    try:
        library("transformers")
    except GraphError as error:
        pytest.skip(str(error))


@pytest.fixture
def ask(tmp_path: Path):
    def asked(config: object, batch: int = 2, **how: object) -> Graph:
        path = tmp_path / "config.json"
        path.write_text(config if isinstance(config, str) else json.dumps(config))
        return graph_of(ModelSpec(f"hf:{path}", batch, **how))

    return asked


def test_bert_costs_its_linear_layers_and_attention_and_gives_its_own_loss(ask) -> None:
    graph = ask(CONFIGS["bert"], sequence=16)
    tokens = 2 * 16
    layer = tokens * (4 * 32 * 32 + 2 * 32 * 64) + 2 * (2 * 4 * 16 * 16 * 8)
    head = tokens * (32 * 32 + 32 * 100)
    assert graph.forward_macs == 2 * layer + head
    # Words are embedded with the weights of the head. Position and type are embedded too.
    norms, layers_ = 2 * 32, 2 * (4 * (32 * 32 + 32) + 32 * 64 + 64 + 64 * 32 + 32 + 2 * 2 * 32)
    assert graph.parameters == 100 * 32 + 512 * 32 + 2 * 32 + norms + layers_ + 32 * 32 + 32 + 2 * 32 + 100
    assert graph.input_shape == (2, 16)
    assert not graph.unknown
    assert next(iter(graph.of(Phase.FORWARD, Kind.LOSS))).output == (tokens, 100)


@pytest.mark.parametrize(("name", "tokens"), [("gpt2", 128), ("t5", 128), ("bart", 128)])
def test_language_models_are_traced_with_their_loss(ask, name: str, tokens: int) -> None:
    graph = ask(CONFIGS[name])
    assert graph.input_shape == (2, tokens)
    assert not graph.unknown
    assert any(op.kind is Kind.LOSS for op in graph.of(Phase.FORWARD))
    assert 2.0 <= product_macs(graph, Phase.BACKWARD) / graph.forward_macs < 2.3
    joined = [op for op in graph.of(Phase.FORWARD) if op.operator == "aten.cat" and op.dtype == "float32"]
    assert not joined  # keys are not kept for generation


def test_a_model_of_images_takes_images_of_its_size_or_another(ask) -> None:
    assert ask(CONFIGS["vit"]).input_shape == (2, 3, 32, 32)
    assert ask(CONFIGS["vit"], image=64, optimizer=Optimizer.NONE).input_shape == (2, 3, 64, 64)


def test_a_folder_or_a_config_without_a_prefix_will_do(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["bert"]))
    names = (f"hf:{tmp_path}", str(tmp_path / "config.json"))
    first, second = (graph_of(ModelSpec(name, 1, optimizer=Optimizer.NONE, sequence=8)) for name in names)
    assert first.ops == second.ops


def test_without_an_architecture_the_one_for_language_is_taken(ask) -> None:
    config = {key: value for key, value in CONFIGS["gpt2"].items() if key != "architectures"}
    assert any(op.output[-1] == 100 for op in ask(config, sequence=8).of(Phase.FORWARD, Kind.LINEAR))


def test_short_positions_mean_short_sequences_unless_more_is_asked(ask) -> None:
    config = CONFIGS["bert"] | {"max_position_embeddings": 20}
    assert ask(config, optimizer=Optimizer.NONE).input_shape == (2, 20)
    with pytest.raises(GraphError, match="sequences of 21 tokens; the model takes 20 at most"):
        ask(config, sequence=21)


BROKEN = {
    "no JSON": ("{", "not a configuration that can be read: JSONDecodeError"),
    "nothing": ("", "not a configuration that can be read"),
    "a list": ("[]", "no key 'model_type'"),
    "no type": ({"hidden_size": 3}, "no key 'model_type', so it is not a Hugging Face model configuration"),
    "a type that is a number": ({"model_type": 3}, "no key 'model_type'"),
    "a type that is none": ({"model_type": "bertt"}, "no model of type 'bertt'; did you mean .*bert"),
    "heads that do not divide": (
        CONFIGS["bert"] | {"num_attention_heads": 5},
        "hidden size|could not be built|refuses",
    ),
    "a size of letters": (CONFIGS["bert"] | {"hidden_size": "wide"}, "refuses|could not be built"),
    "a negative size": (CONFIGS["bert"] | {"hidden_size": -8}, "refuses|could not be built"),
}


@pytest.mark.parametrize(("config", "cause"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_config_gets_one_line_that_names_the_cause(ask, config: object, cause: str) -> None:
    with pytest.raises(GraphError, match=cause) as error:
        ask(config)
    assert "\n" not in str(error.value)
    assert "config.json" in str(error.value)


def test_a_config_cannot_name_anything_but_a_model(ask) -> None:
    graph = ask(CONFIGS["bert"] | {"architectures": ["pipeline", "AutoModel", "BertTokenizer"]}, sequence=8)
    assert any(op.output[-1] == 100 for op in graph.of(Phase.FORWARD, Kind.LINEAR))  # what a BERT is by default


def test_a_config_that_is_not_there_is_named() -> None:
    with pytest.raises(GraphError, match=r"there is no file no/such/config\.json"):
        graph_of(ModelSpec("hf:no/such/config.json", 1))


def test_a_name_that_cannot_be_found_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, **_: object) -> None:
        raise OSError(f"{name} is not here\nand nowhere else")

    monkeypatch.setattr(hugging_face, "_reach_hub", lambda: None)
    monkeypatch.setattr(library("transformers").AutoConfig, "from_pretrained", refuse)
    with pytest.raises(GraphError, match=r"no configuration for 'some/model'.*some/model is not here\)$"):
        graph_of(ModelSpec("hf:some/model", 1))


def test_without_the_hub_a_name_that_transformers_knows_has_its_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError("no network")

    monkeypatch.setattr(hugging_face, "_reach_hub", refuse)
    graph = graph_of(ModelSpec("hf:bert-base-uncased", 1, sequence=16))
    # 110 million, and the head of a language model: its bias and the layer before it.
    assert graph.parameters == pytest.approx(110e6, rel=0.01)
    assert any("could not be downloaded" in note for note in graph.notes)
    with pytest.raises(GraphError, match=r"no configuration for 'bert-of-nobody'.*no network"):
        graph_of(ModelSpec("hf:bert-of-nobody", 1))
