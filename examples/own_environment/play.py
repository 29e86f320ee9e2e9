"""Plays the environment of `guess_number.py` as the gateway would, and asserts what comes of it."""

import asyncio
from pathlib import Path

from envport.checker import check_environment
from envport.episodes import Episodes, OpenRequest
from envport.errors import InvalidArguments
from envport.registry import load
from envport.types import Choice

REFERENCE = f"{Path(__file__).parent / 'guess_number.py'}:GuessNumber"


async def play() -> None:
    spec = load(REFERENCE)
    assert list(spec.tools) == ["guess"]
    assert spec.tools["guess"].input_schema["properties"]["number"] == {"maximum": 100, "minimum": 1, "type": "integer"}

    episodes = Episodes({spec.name: spec})
    async with episodes.run():
        episode = await episodes.open_episode(OpenRequest(spec.name, "example", Choice(seed=7)))
        print(episode.first_observation.text)

        # What breaks the schema never reaches the environment, and the message says what is allowed.
        refusal = ""
        try:
            await episode.call("guess", {"number": 1000})
        except InvalidArguments as error:
            refusal = str(error)
        print(f"1000: {refusal}")
        assert refusal == "Argument 'number' is 1000; it has to be an integer at least 1, at most 100."

        low, high = 1, 100
        while episode.live:
            number = (low + high) // 2
            result = await episode.call("guess", {"number": number})
            print(f"{number}: {result.observation.text}")
            low, high = (number + 1, high) if result.observation.text == "Too low." else (low, number - 1)

        info = episode.info()
        print(f"{info.status} after {info.steps} guesses, reward {info.reward}")
        assert info.status == "terminated"
        assert info.reward == 1.0
        assert info.steps <= 7


def main() -> None:
    # The checker is what the built-in environments have to pass, too.
    report = check_environment(REFERENCE)
    print(report)
    assert report.ok
    asyncio.run(play())


if __name__ == "__main__":
    main()
