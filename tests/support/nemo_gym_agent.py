"""An agent as NeMo Gym's documentation describes its own: it seeds a session, plays what its model calls, verifies.

As there, the cookies of each request are those that the last answer set, and no others; the path of a call is the name
of the tool that the model wrote; and what is answered is shown to the model as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any

import httpx2
from patience import patient

Items = list[dict[str, Any]]
Model = Callable[[Items], Items]


def say(text: str) -> Items:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return [{"id": "msg", "type": "message", "role": "assistant", "status": "completed", "content": content}]


def call(name: str, arguments: Any) -> Items:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return [{"type": "function_call", "call_id": "call", "name": name, "arguments": written}]


def scripted(calls: Iterable[tuple[str, Any]]) -> Model:
    """A model that makes these calls, and then stops."""
    rest = iter(calls)

    def model(items: Items) -> Items:
        made = next(rest, None)
        return say("I stop.") if made is None else call(*made)

    return model


@dataclass
class NemoGymAgent:
    """One rollout.

    Attributes:
        url: Where the resources server is.
        headers: Sent with every request.
        cookies: Those of the last answer.
        outputs: What the model and the tools said.
        answers: Every answer to a call.
    """

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    outputs: Items = field(default_factory=list)
    answers: list[httpx2.Response] = field(default_factory=list)

    def post(self, path: str, body: Any) -> httpx2.Response:
        sent = dict(self.headers)
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = httpx2.post(f"{self.url}{path}", json=body, headers=sent, timeout=patient(30))
        self.cookies = {}
        for line in answer.headers.get_list("set-cookie"):
            for name, morsel in SimpleCookie(line).items():
                assert (morsel["path"], morsel["httponly"]) == ("/", True)
                self.cookies[name] = morsel.value
        return answer

    def seed(self, row: dict[str, Any]) -> dict[str, Any]:
        return self.post("/seed_session", row).raise_for_status().json()

    def play(self, row: dict[str, Any], model: Model) -> None:
        asked = row["responses_create_params"]["input"]
        while True:
            made = model(asked + self.outputs)
            self.outputs += made
            calls = [item for item in made if item["type"] == "function_call"]
            if not calls:
                return
            for item in calls:
                answer = self.post(f"/{item['name']}", json.loads(item["arguments"]))
                self.answers.append(answer)
                output = {"type": "function_call_output", "call_id": item["call_id"], "output": answer.text}
                self.outputs.append(output)

    def verify(self, row: dict[str, Any]) -> httpx2.Response:
        response = {"id": "resp", "object": "response", "model": "scripted", "output": self.outputs}
        return self.post("/verify", row | {"response": response})

    def run(self, row: dict[str, Any], model: Model) -> dict[str, Any]:
        self.seed(row)
        self.play(row, model)
        return self.verify(row).raise_for_status().json()
