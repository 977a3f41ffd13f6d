"""Commands for whoever runs a cluster: its secrets, and its tracking server."""

import os
import sys
from pathlib import Path
from typing import Any

from oclgrid.platform.commands import DONE
from oclgrid.platform.environment import ENVIRONMENT


def make_secrets(options: Any) -> int:
    """Create a token for Ray and a password for MLflow, unless they are there."""
    from oclgrid.platform.secret_files import make_secrets

    del options
    for path in make_secrets():
        print(path)
    return DONE


def serve(options: Any) -> int:
    """Become the tracking server of a cluster; nobody gets in without the password."""
    from oclgrid.platform.secret_files import FOLDER, keep, mlflow_login
    from oclgrid.trainables.schema import SpecError

    if not 1 <= options.port <= 65535:
        raise SpecError(f"--port must lie in [1, 65535], got {options.port}")
    user, password = mlflow_login()
    folder = FOLDER.expanduser()
    key = keep(folder / "session_key", os.urandom(32).hex())
    # Not in the tracking database: the tables of both would meet.
    settings = f"[mlflow]\ndefault_permission = NO_PERMISSIONS\nadmin_username = {user}\n"
    settings += f"database_uri = sqlite:///{folder / 'users.db'}\n"
    (folder / "auth.ini").write_text(settings, encoding="utf-8")
    given = {
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"),
        "MLFLOW_AUTH_ADMIN_PASSWORD": password,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": key,
    }
    command = [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth"]
    command += ["--host", options.host, "--port", str(options.port), "--workers", "4"]
    command += ["--backend-store-uri", options.database]
    command += ["--artifacts-destination", _artifacts(options.artifacts)]
    print(f"tracking server on {options.host}:{options.port}", file=sys.stderr, flush=True)
    os.execve(sys.executable, command, {**ENVIRONMENT, **os.environ, **given})


def _artifacts(where: str) -> str:
    if "://" in where:
        return where
    Path(where).mkdir(parents=True, exist_ok=True)
    return Path(where).resolve().as_uri()
