"""Commands for whoever runs a cluster: its secrets, its tracking server, its end."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from oclgrid.platform.commands import DONE, SOME_FAILED
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
    # Else each request hashes the password anew: 0.1 s of a core, which is the head's limit.
    settings += "auth_cache_ttl_seconds = 600\n"
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


def down(options: Any) -> int:
    """End what `ray up` began on machines one has; results stay.

    `ray down` alone stops Ray on the head, and leaves the server there and Ray on the workers.
    """
    import yaml

    from oclgrid.trainables.schema import SpecError

    try:
        config = yaml.safe_load(Path(options.file).read_text(encoding="utf-8"))
        provider, user = config["provider"], config["auth"]["ssh_user"]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise SpecError(f"{options.file} is no cluster file that can be read: {error!r}") from error
    if provider["type"] != "local":
        raise SpecError(f"machines of a cloud end with `ray down {options.file}`, all of them")
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    ended = subprocess.run([*ray, "exec", options.file, _end(provider["worker_ips"], user)])
    last = subprocess.run([*ray, "down", "--yes", options.file])
    return SOME_FAILED if ended.returncode or last.returncode else DONE


def _end(workers: Iterable[str], user: str) -> str:
    """Return what the head runs; it reaches the workers, which this computer may not."""
    ssh = "ssh -i ~/ray_bootstrap_key.pem -o BatchMode=yes -o ConnectTimeout=10 -o LogLevel=ERROR"
    ssh += " -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    stop = shlex.quote("~/oclgrid/.venv/bin/ray stop --force")
    each = [
        f"{{ {ssh} {shlex.quote(f'{user}@{worker}')} {stop} || echo {worker} was not reached; }} &"
        for worker in workers
    ]
    server = "pkill -f '[m]lflow server --app-name basic-auth'"
    return f"ray stop; {server}; {' '.join(each)} wait"
