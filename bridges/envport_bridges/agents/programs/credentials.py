"""Keeps the user's own keys from agents that are given a model."""

from __future__ import annotations

import re
from collections.abc import Mapping

from envport.secrecy import without_secrets

__all__ = ["without_credentials"]

# They hold keys, or send an agent to another model than the given one.
_PROVIDERS = (
    "ANTHROPIC",
    "AWS_",
    "AZURE_",
    "CLAUDE",
    "CODEX_",
    "GEMINI_",
    "GOOGLE_",
    "OPENAI_",
    "OPENCODE",
)
_WORDS = frozenset(
    (
        *("AUTH", "COOKIE", "CREDENTIAL", "CREDENTIALS", "CREDS", "KEY", "KEYS", "PASS", "PASSPHRASE"),
        *("PAT", "PWD", "SECRET", "SECRETS", "TOKEN", "TOKENS"),
    )
)
_ENDINGS = ("APIKEY", "PASSWD", "PASSWORD")
# The shell's folders, not passwords.
_FOLDERS = frozenset({"PWD", "OLDPWD"})
_LOGIN_IN_URL = re.compile(r"://[^/\s@]*:[^/\s@]+@")


def without_credentials(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables, without what looks like a key: of envport, of a provider of models, or of anybody.

    The name decides (`OPENAI_...`, `..._TOKEN`, `..._API_KEY`), or a login in the value (`https://user:password@...`).
    """
    return {
        name: value
        for name, value in without_secrets(environ).items()
        if not _tells(name.upper()) and not _LOGIN_IN_URL.search(value)
    }


def _tells(name: str) -> bool:
    if name in _FOLDERS:
        return False
    return name.startswith(_PROVIDERS) or any(word in _WORDS or word.endswith(_ENDINGS) for word in name.split("_"))
