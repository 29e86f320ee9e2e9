"""Samples with a vLLM server, by token ids: no text is tokenized on the way there or back."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from typing import Any, cast

import httpx2

from envport.backoff import Backoff
from envport.client.certificates import trusted
from envport.client.reasons import reason_of
from envport_bridges.agents.model.sampling import (
    Sampled,
    SampleRequest,
    SamplerFailed,
    SamplerTimeout,
    SamplingSettings,
)
from envport_bridges.rollouts.loop import BackgroundLoop

__all__ = ["VllmSampler"]

# What a server answers that is being started, or that stands behind a proxy and is not there.
_STARTING = frozenset({502, 503, 504})
_ASK_SECONDS = 10.0
_QUOTED = 300


class VllmSampler:
    """Has a vLLM server continue each context in a request of its own; a `Sampler`.

    vLLM works on all requests at once, whenever they come. So none waits for another. Log probabilities come back with
    the tokens; to have them after temperature and the like, start vLLM with `--logprobs-mode processed_logprobs`.

    Attributes:
        model: The model's name there.
        most_ids: How many ids the server lets the model see at once, if it says so.

    Args:
        url: Address of the server, with or without `/v1`.
        settings: How tokens are chosen.
        end_ids: Ids that end a turn, beside those that the server knows.
        seed: Seed of the requests' seeds; chance if not given. vLLM's batches still make small differences.
        seconds: Seconds that an answer may take.
        patience: Seconds for which a request is sent again if nobody answers, because the server is being started.
        key: The server's API key, if it has one.

    Raises:
        SamplerFailed: The server does not answer.
    """

    def __init__(
        self,
        url: str,
        *,
        settings: SamplingSettings | None = None,
        end_ids: Collection[int] = (),
        seed: int | None = None,
        seconds: float = 600.0,
        patience: float = 10.0,
        key: str | None = None,
    ):
        self.url = url.rstrip("/").removesuffix("/v1")
        self._settings = settings or SamplingSettings()
        self._end_ids = sorted(end_ids)
        self._random = random.Random(seed)
        self._patience = patience
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.model, self.most_ids = _served_model(self.url, headers)
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=httpx2.Timeout(seconds, connect=_ASK_SECONDS),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
            verify=trusted(),
        )
        self._seconds = seconds
        self._loop = BackgroundLoop("envport-vllm")

    @property
    def gathers(self) -> bool:
        """Whether requests are best sampled together: no, vLLM does that by itself."""
        return False

    def sample(self, requests: Sequence[SampleRequest]) -> Sequence[Future[Sampled]]:
        """Begin to sample a continuation of each request.

        Returns:
            A future for each. It raises `SamplerFailed` if the server gave no tokens, and `SamplerTimeout` if it took
            too long. Cancelling it has vLLM stop.
        """
        return [self._loop.submit(self._sample(request, self._seed())) for request in requests]

    def close(self) -> None:
        """Stop, and have vLLM stop what it still samples."""
        self._loop.run(self._http.aclose())
        self._loop.stop()

    def _seed(self) -> int:
        # Requests without a seed share one that all of vLLM's data-parallel engines begin with.
        return self._random.getrandbits(63)

    async def _sample(self, request: SampleRequest, seed: int) -> Sampled:
        answer = await self._answer({**self._body(request), "seed": seed})
        try:
            (choice,) = answer["choices"]
            ids = [int(id_) for id_ in choice["token_ids"]]
            logprobs = [float(value) for value in choice["logprobs"]["token_logprobs"]]
        except (KeyError, TypeError, ValueError) as error:
            raise SamplerFailed(
                f"{self.url} does not answer with token ids and log probabilities, as vLLM 0.10.2 and later do: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not ids or len(ids) != len(logprobs):
            raise SamplerFailed(f"{self.url} answered with {len(ids)} tokens and {len(logprobs)} log probabilities")
        return Sampled(ids, logprobs)

    def _body(self, request: SampleRequest) -> dict[str, Any]:
        chosen = self._settings
        return {
            "model": self.model,
            "prompt": list(request.prompt_ids),
            "max_tokens": request.max_tokens,
            "n": 1,
            "temperature": chosen.temperature,
            "top_p": chosen.top_p,
            "top_k": chosen.top_k,
            "min_p": chosen.min_p,
            "repetition_penalty": chosen.repetition_penalty,
            "stop_token_ids": self._end_ids,
            "logprobs": 0,
            "return_token_ids": True,
        }

    async def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        backoff = Backoff(self._patience)
        while True:
            try:
                response = await self._http.post("/v1/completions", json=body)
            except httpx2.ConnectError as error:
                if await backoff.wait():
                    continue
                raise _unreachable(self.url, error) from error
            except httpx2.TimeoutException as error:
                raise SamplerTimeout(f"no answer from {self.url} within {self._seconds:g} seconds") from error
            except httpx2.HTTPError as error:
                raise _unreachable(self.url, error) from error
            if response.status_code in _STARTING and await backoff.wait():
                continue
            return _document(response)


def _served_model(url: str, headers: dict[str, str]) -> tuple[str, int | None]:
    try:
        with httpx2.Client(headers=headers, timeout=_ASK_SECONDS, verify=trusted()) as http:
            answer = _document(http.get(f"{url}/v1/models"))
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise _unreachable(url, error) from error
    models = cast("list[dict[str, Any]]", answer.get("data") or [])
    if not models:
        raise SamplerFailed(f"{url} serves no model")
    return str(models[0]["id"]), cast("int | None", models[0].get("max_model_len"))


def _document(response: httpx2.Response) -> dict[str, Any]:
    if not response.is_success:
        raise SamplerFailed(f"{response.url} answered with {response.status_code}: {response.text[:_QUOTED]}")
    try:
        found: Any = response.json()
    except ValueError as error:
        raise SamplerFailed(f"{response.url} does not answer with JSON: {response.text[:_QUOTED]}") from error
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _unreachable(url: str, error: Exception) -> SamplerFailed:
    return SamplerFailed(f"no answer from {url}: {reason_of(error)}")
