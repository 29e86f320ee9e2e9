"""The pages of the repository and their code blocks, as a Markdown parser reads them."""

from __future__ import annotations

import functools
import subprocess
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class CodeBlock:
    """A code block of a page.

    Args:
        page: Path of the page in the repository.
        language: What the fence says; empty for an indented block and for a fence without a language.
        body: The code.
    """

    page: str
    language: str
    body: str

    @property
    def first(self) -> str:
        """The first line, by which the block is known."""
        return self.body.splitlines()[0] if self.body else ""

    @property
    def lines(self) -> list[str]:
        """The commands of a block for a shell: without comments, continued lines as one."""
        joined = self.body.replace("\\\n", " ")
        return [line for line in joined.splitlines() if line and not line.startswith("#")]


@functools.cache
def blocks_of(page: str) -> tuple[CodeBlock, ...]:
    """All code blocks of a page, in order; those in lists and quotes too."""
    tokens = MarkdownIt().parse((ROOT / page).read_text("utf-8"))
    return tuple(
        CodeBlock(page, token.info.strip(), token.content) for token in tokens if token.type in ("fence", "code_block")
    )


def block(page: str, first: str) -> str:
    """The one block of a page that begins with a line."""
    (found,) = [it.body for it in blocks_of(page) if it.first == first]
    return found


def blocks_in(page: str, language: str) -> list[str]:
    """The blocks of a page in a language."""
    return [it.body for it in blocks_of(page) if it.language == language]


def commands(page: str) -> list[str]:
    """The lines of a page for a shell."""
    return [line for it in blocks_of(page) if it.language in ("bash", "sh") for line in it.lines]


@functools.cache
def pages() -> tuple[str, ...]:
    """All pages of the repository that are not ignored by git, also those that are not committed yet."""
    if not (ROOT / ".git").exists():
        # A copy or a source distribution, which has nothing that git ignores.
        found = (path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
        return tuple(sorted(str(page) for page in found if not any(part.startswith(".") for part in page.parts)))
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(sorted(page for page in set(listed.stdout.split()) if (ROOT / page).exists()))
