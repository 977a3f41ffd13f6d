"""What opens a cluster: a token for Ray and a password for MLflow, in files for one user only."""

import configparser
import os
import secrets
from pathlib import Path

from oclgrid.trainables.schema import SpecError

FOLDER = Path("~/.oclgrid")
RAY_TOKEN = FOLDER / "ray_token"
MLFLOW_CREDENTIALS = FOLDER / "mlflow_credentials"
"""In the format of ``~/.mlflow/credentials``, where nodes of a cluster have it."""
USER = "oclgrid"


def make_secrets() -> list[Path]:
    """Create what is not there yet; return the files."""
    credentials = (
        f"[mlflow]\nmlflow_tracking_username = {USER}\n"
        f"mlflow_tracking_password = {secrets.token_urlsafe(32)}\n"
    )
    contents = {RAY_TOKEN: secrets.token_hex(32), MLFLOW_CREDENTIALS: credentials}
    for path, content in contents.items():
        keep(path.expanduser(), content)
    return [path.expanduser() for path in contents]


def keep(path: Path, content: str) -> str:
    """Write a file that only this user can read, unless it is there; return its content."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text(encoding="utf-8")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(content)
    return content


def mlflow_login() -> tuple[str, str]:
    """Return user and password of the tracking server, as MLflow's own clients would find them."""
    for path in (Path("~/.mlflow/credentials"), MLFLOW_CREDENTIALS):
        parsed = configparser.ConfigParser(interpolation=None)
        if parsed.read(path.expanduser()):
            try:
                found = parsed["mlflow"]
                return found["mlflow_tracking_username"], found["mlflow_tracking_password"]
            except KeyError as error:
                raise SpecError(f"{path} lacks {error}; see `oclgrid secrets`") from error
    raise SpecError("there is no password for the tracking server; `oclgrid secrets` makes one")


def use_ray_token() -> None:
    """Let Ray's clients present the cluster's token, unless the user has said which."""
    token = RAY_TOKEN.expanduser()
    if token.exists() and "RAY_AUTH_TOKEN" not in os.environ:
        os.environ.setdefault("RAY_AUTH_TOKEN_PATH", str(token))
    os.environ.setdefault("RAY_AUTH_MODE", "token")
