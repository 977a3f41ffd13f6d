"""Settings of the libraries below us: quiet, closed, no reports to anyone."""

import os

ENVIRONMENT = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # job workers we have no use for
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_SQLALCHEMYSTORE_POOL_SIZE": "40",  # its threads; others are refused in 30 s
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",  # short calls; who wants to wait longer says so
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # a local Ray stays on 127.0.0.1
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # stopping.py heeds signals
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_WARN_SLOW_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "1000",
}


def prepare() -> None:
    """Set what the user has not set; before MLflow or Ray is imported, which read it then."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
