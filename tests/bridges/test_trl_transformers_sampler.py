"""Tokens that a saved model samples in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_model import make_model, make_tokenizer

from envport.errors import InvalidOption
from envport_bridges.agents.model.sampling import SampleRequest, SamplingSettings
from envport_bridges.agents.model.transformers_sampler import (
    TransformersSampler,
    load_model,
    load_tokenizer,
    weights_fingerprint,
)

GREEDY = SamplingSettings(temperature=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    # Settings that are not asked for below, but would be taken over.
    model.generation_config.do_sample = True
    model.generation_config.top_k = 1
    model.generation_config.repetition_penalty = 1.5
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return load_model(str(folder))


def sample(model: Any, *requests: tuple[list[int], int], end_ids: tuple[int, ...] = (), **options: Any) -> Any:
    made = TransformersSampler(model, end_ids=end_ids, pad_id=0, **options)
    return [future.result(0).ids for future in made.sample([SampleRequest(*request) for request in requests])]


def test_a_context_is_continued_alike_beside_longer_ones(model: Any):
    short, long = [5, 6], [7, 8, 9, 10, 11, 12]
    (alone,) = sample(model, (short, 6), settings=GREEDY)
    together = sample(model, (long, 9), (short, 6), settings=GREEDY)
    assert together[1] == alone
    assert [len(ids) for ids in together] == [9, 6]
    assert sample(model, (long, 9), (short, 6), settings=GREEDY, largest_batch=1) == together


def test_a_turn_ends_with_the_first_id_that_ends_it(model: Any):
    (whole,) = sample(model, ([5, 6], 12), settings=GREEDY)
    end = whole[3]
    until = whole.index(end) + 1
    ended, other = sample(model, ([5, 6], 12), ([9, 8], 12), settings=GREEDY, end_ids=(end,))
    assert ended == whole[:until]
    assert other.count(end) <= 1


def test_it_samples_from_the_model_s_own_distribution_by_default(model: Any):
    """The saved settings, which would always take the most probable token, do not count."""
    with torch.inference_mode():
        logits = model(torch.tensor([[5, 6]])).logits[0, -1]
    probable = logits.softmax(-1).topk(2).values.sum().item()
    drawn = sample(model, *[([5, 6], 1)] * 400, seed=0)
    assert len({id_ for (id_,) in drawn}) > 50
    shares = [id_ in logits.topk(2).indices for (id_,) in drawn]
    assert abs(sum(shares) / 400 - probable) < 0.1
    assert {id_ for (id_,) in sample(model, *[([5, 6], 1)] * 50, settings=SamplingSettings(top_k=1))} == {
        logits.argmax().item()
    }


def test_a_seed_makes_it_repeatable(model: Any):
    first, again, other = (sample(model, ([5, 6], 20), seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_training_changes_the_fingerprint_and_loading_does_not(folder: Path, model: Any):
    again = load_model(str(folder))
    assert weights_fingerprint(again) == weights_fingerprint(model)
    with torch.no_grad():
        again.model.norm.weight.mul_(1.01)
    assert weights_fingerprint(again) != weights_fingerprint(model)


@pytest.mark.parametrize(
    ("load", "options", "why"),
    [
        (load_model, {"name": "./nowhere"}, "of ./nowhere cannot be loaded"),
        (load_tokenizer, {"name": "./nowhere"}, "of ./nowhere cannot be loaded"),
        (load_model, {"dtype": "float33"}, "dtype is 'float33'"),
        (load_model, {"device": "abacus"}, "cannot be loaded: .*abacus"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_line(folder: Path, load: Any, options: dict[str, str], why: str):
    with pytest.raises(InvalidOption, match=why) as told:
        load(**{"name": str(folder), **options})
    assert "\n" not in str(told.value)


def test_a_folder_without_a_tokenizer_says_how_to_put_it_there(tmp_path: Path):
    """For this kind of model, transformers by itself gives a tokenizer that knows one token."""
    make_model(make_tokenizer()).config.save_pretrained(tmp_path)
    with pytest.raises(InvalidOption, match=r"has no tokenizer: trainer\.save_model.* tokenizer\.save_pretrained"):
        load_tokenizer(str(tmp_path))
