"""What a number came from: source commit and versions, as tags."""

import platform as machine  # the standard library's
import subprocess
from importlib.metadata import version
from pathlib import Path


def provenance() -> dict[str, str]:
    """Return commit and versions of everything that can move a number."""
    packages = ("oclgrid", "torch", "torchvision", "numpy", "ray", "mlflow")
    versions = {f"version.{p}": version(p) for p in packages}
    return {"commit": _commit(), "version.python": machine.python_version(), **versions}


def _commit() -> str:
    """Return the commit of the checkout the code runs from; "+changes" if it was edited."""
    folder = Path(__file__).parent
    git = ["git", "-C", str(folder)]
    try:
        tracked = subprocess.run(
            [*git, "ls-files", "--error-unmatch", __file__], capture_output=True
        )
        if tracked.returncode != 0:
            return "installed without a checkout"
        head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
        changes = subprocess.check_output([*git, "status", "--porcelain", "-uno"], text=True)
    except (OSError, subprocess.CalledProcessError):
        return "installed without a checkout"
    return head + ("+changes" if changes.strip() else "")
