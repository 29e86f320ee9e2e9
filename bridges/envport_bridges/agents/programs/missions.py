"""What an agent is told: the episode that it has to play, and the model that it has to play it with."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["MODEL_NAME", "Mission", "ModelAccess"]

MODEL_NAME = "policy"
"""The name by which agents ask for the model. The endpoint takes any name."""


@dataclass(frozen=True)
class ModelAccess:
    """Access to a model of ours.

    Attributes:
        url: Root of its endpoint, such as `http://127.0.0.1:8001`. This is the base URL of Anthropic's API.
        token: Token that only allows asking it for this mission.
    """

    url: str
    token: str = field(repr=False)

    @property
    def openai_url(self) -> str:
        """The base URL of OpenAI's API."""
        return f"{self.url.rstrip('/')}/v1"


@dataclass(frozen=True)
class Mission:
    """The episode that an agent has to play.

    Attributes:
        mcp_url: MCP address of the episode.
        token: Bearer token that only allows playing this episode.
        prompt: The task's prompt and the first observation.
        model: The model that it has to play with; `None` if it brings its own.
    """

    mcp_url: str
    token: str = field(repr=False)
    prompt: str
    model: ModelAccess | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the agent's MCP requests."""
        return {"Authorization": f"Bearer {self.token}"}
