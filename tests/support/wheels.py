"""The two distributions of this repository, built and unpacked."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from patience import patient

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "gateway" / "envport-client"


def unpacked(project: Path, folder: Path) -> Path:
    """Build the wheel of a project, and unpack it into a folder, which is returned."""
    built = folder / "built"
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(built)]
    subprocess.run(command, cwd=project, timeout=patient(60), check=True, capture_output=True)
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"
