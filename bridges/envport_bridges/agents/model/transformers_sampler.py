"""Samples with a model of transformers, in this process. No other module of agents imports transformers or torch."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future
from importlib import import_module
from pathlib import Path
from typing import Any

from envport.errors import InvalidOption, MissingExtra
from envport_bridges.agents.model.sampling import Sampled, SampleRequest, SamplingSettings

__all__ = ["TransformersSampler", "load_configuration", "load_model", "load_tokenizer", "weights_fingerprint"]

_COMPARED_VALUES = 16
_TOKENIZERS = ("tokenizer*", "vocab*", "*.model", "tekken.json")
"""Files of which a folder with a tokenizer has at least one."""


class TransformersSampler:
    """Samples continuations of a batch of contexts at once; a `Sampler`.

    It does not compute log probabilities. The trainer does, where it needs them.

    Args:
        model: A causal language model of transformers.
        end_ids: The ids that end a turn.
        pad_id: The id that fills up shorter contexts.
        settings: How tokens are chosen.
        seed: Seed of torch's random numbers; chance if not given. The same requests in the same batches then give the
            same tokens.
        largest_batch: Most contexts that are continued at once, as far as memory allows.
    """

    def __init__(
        self,
        model: Any,
        *,
        end_ids: Collection[int],
        pad_id: int,
        settings: SamplingSettings | None = None,
        seed: int | None = None,
        largest_batch: int = 64,
    ):
        self._model = model
        self._end_ids = frozenset(end_ids)
        self._pad_id = pad_id
        self._settings = settings or SamplingSettings()
        self._largest_batch = largest_batch
        if seed is not None:
            _library("torch").manual_seed(seed)

    @property
    def gathers(self) -> bool:
        """Whether requests are best sampled together: yes, a batch costs hardly more than one."""
        return True

    def sample(self, requests: Sequence[SampleRequest]) -> Sequence[Future[Sampled]]:
        """Sample a continuation of each request before returning.

        Raises:
            Exception: The model failed, for example because memory ran out.
        """
        futures: list[Future[Sampled]] = []
        for start in range(0, len(requests), self._largest_batch):
            for sampled in self._sample(requests[start : start + self._largest_batch]):
                future: Future[Sampled] = Future()
                future.set_result(sampled)
                futures.append(future)
        return futures

    def _sample(self, requests: Sequence[SampleRequest]) -> Iterator[Sampled]:
        torch = _library("torch")
        longest = max(len(request.prompt_ids) for request in requests)
        pads = [longest - len(request.prompt_ids) for request in requests]
        ids = [[self._pad_id] * pad + list(request.prompt_ids) for pad, request in zip(pads, requests, strict=True)]
        mask = [[0] * pad + [1] * (longest - pad) for pad in pads]
        device = self._model.device
        with torch.inference_mode():
            written = self._model.generate(
                input_ids=torch.tensor(ids, device=device),
                attention_mask=torch.tensor(mask, device=device),
                generation_config=self._generation(max(request.max_tokens for request in requests)),
            )
        for row, request in zip(written[:, longest:].tolist(), requests, strict=True):
            yield Sampled(self._cut(row[: request.max_tokens]))

    def _generation(self, max_tokens: int) -> Any:
        chosen = self._settings
        # Explicit values, because those that are missing come from the model's own file.
        sampling: dict[str, Any] = {"do_sample": False}
        if chosen.temperature > 0:
            sampling = {
                "do_sample": True,
                "temperature": chosen.temperature,
                "top_p": chosen.top_p,
                "top_k": chosen.top_k,
                "min_p": chosen.min_p or None,
            }
        return _library("transformers").GenerationConfig(
            max_new_tokens=max_tokens,
            pad_token_id=self._pad_id,
            eos_token_id=sorted(self._end_ids) or None,
            repetition_penalty=chosen.repetition_penalty,
            disable_compile=True,
            **sampling,
        )

    def _cut(self, ids: list[int]) -> list[int]:
        """The ids up to the one that ends the turn. The others of the batch may have gone on."""
        end = next((place for place, id_ in enumerate(ids) if id_ in self._end_ids), len(ids))
        return ids[: end + 1]


def load_model(name: str, *, device: str = "cpu", dtype: str = "auto") -> Any:
    """Load a causal language model.

    Args:
        name: A folder, or a name on the Hugging Face hub.
        device: Where it runs, as torch names it: `cpu`, `cuda`, `cuda:1`, `mps`.
        dtype: Type of its weights, as torch names it; `auto` for that in which it was saved.

    Raises:
        InvalidOption: It cannot be loaded; the message says why.
        MissingExtra: transformers or torch is not installed.
    """
    torch = _library("torch")
    if dtype != "auto" and not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise InvalidOption(f"dtype is {dtype!r}; it has to be auto, or a type of torch such as float32 or bfloat16")
    try:
        model = _library("transformers").AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
        return model.to(device).eval()
    except (OSError, ValueError, KeyError, RuntimeError, AssertionError) as error:
        raise _not_loaded("model", name, error) from error


def load_tokenizer(name: str) -> Any:
    """Load a tokenizer.

    Args:
        name: A folder, or a name on the Hugging Face hub.

    Raises:
        InvalidOption: It cannot be loaded; the message says why.
        MissingExtra: transformers is not installed.
    """
    # For some models, transformers would make up a tokenizer that knows one token.
    if (folder := Path(name)).is_dir() and not any(file for kind in _TOKENIZERS for file in folder.glob(kind)):
        raise InvalidOption(
            f"the folder {name} has no tokenizer: trainer.save_model(FOLDER) puts it there with the model, where the "
            "trainer has one (processing_class), and tokenizer.save_pretrained(FOLDER) without it"
        )
    try:
        return _library("transformers").AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise _not_loaded("tokenizer", name, error) from error


def load_configuration(name: str) -> tuple[Any, list[int] | None]:
    """Load what is known of a model without its weights.

    Args:
        name: A folder, or a name on the Hugging Face hub.

    Returns:
        Its configuration, and the ids that end a turn by its generation configuration, if it has one.

    Raises:
        InvalidOption: It cannot be loaded; the message says why.
        MissingExtra: transformers is not installed.
    """
    transformers = _library("transformers")
    try:
        configuration = transformers.AutoConfig.from_pretrained(name)
    except (OSError, ValueError, KeyError) as error:
        raise _not_loaded("configuration", name, error) from error
    try:
        ended_by = transformers.GenerationConfig.from_pretrained(name).eos_token_id
    except OSError:
        ended_by = None
    return configuration, [ended_by] if isinstance(ended_by, int) else ended_by


def _not_loaded(what: str, name: str, error: Exception) -> InvalidOption:
    why = " ".join(str(error).split()) or type(error).__name__
    return InvalidOption(f"the {what} of {name} cannot be loaded: {why}")


def weights_fingerprint(model: Any) -> str:
    """A fingerprint of a model's weights: a few values of each. Training changes it, and loading again does not."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        flat = weight.detach().flatten()
        chosen = flat[:: max(1, len(flat) // _COMPARED_VALUES)]
        digest.update(f"{name} {tuple(weight.shape)} {chosen.double().tolist()}\n".encode())
    return digest.hexdigest()


def _library(name: str) -> Any:
    """The whole library, because the types of what is used are partial."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtra("Sampling from a saved model", "trl") from error
