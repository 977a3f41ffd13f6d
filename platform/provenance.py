"""What a number came from: source commit, versions and machine, as tags."""

import os
import platform as machine  # the standard library's
import subprocess
from importlib.metadata import version
from pathlib import Path


def provenance() -> dict[str, str]:
    """Return commit and versions of everything that can move a number."""
    packages = ("oclgrid", "torch", "torchvision", "numpy", "ray", "mlflow")
    versions = {f"version.{p}": version(p) for p in packages}
    return {"commit": _commit(), "version.python": machine.python_version(), **versions}


def hardware() -> dict[str, str]:
    """Return processor, cores, kind of kernels and GPU of the machine this process runs on."""
    import torch  # a worker has it; who only asks for versions need not wait for it

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    cores = str(os.cpu_count() or 1)
    kernels = torch.backends.cpu.get_cpu_capability()  # numbers are bit-equal within one kind
    return {
        "hardware.cpu": _processor(),
        "hardware.cores": cores,
        "hardware.kernels": kernels,
        "hardware.gpu": gpu,
    }


def _processor() -> str:
    """Return the model of the processor, or at least its architecture."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return machine.machine()


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
