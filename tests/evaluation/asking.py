"""An agent that asks its model and plays nothing: `asking.py NUMBER [TEXT]`; each time, the conversation goes on."""

from __future__ import annotations

import json
import os
import sys
from urllib.request import Request, urlopen


def main() -> None:
    number, text = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "Go on."
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    messages: list[object] = []
    for _ in range(number):
        messages.append({"role": "user", "content": text})
        body = json.dumps({"model": "policy", "messages": messages}).encode()
        url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
        with urlopen(Request(url, body, headers)) as answer:
            messages.append(json.load(answer)["choices"][0]["message"])
    print("done")


main()
