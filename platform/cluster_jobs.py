"""Jobs on a Ray cluster, through its job API."""

import asyncio
import logging
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient

from oclgrid.platform.jobs import STOP_SECONDS, Job, Work
from oclgrid.trainables.schema import SpecError

STATES = {
    JobStatus.PENDING: "running",
    JobStatus.RUNNING: "running",
    JobStatus.SUCCEEDED: "finished",
    JobStatus.STOPPED: "stopped",
    JobStatus.FAILED: "failed",
}
OWN = "oclgrid"
"""Key of a job's metadata that holds the name of its sweep or search."""
START_SECONDS = 120
"""How long a head that answers may take until it can run jobs."""


class ClusterJobs:
    """Jobs of the cluster whose dashboard is at an address."""

    def __init__(self, address: str) -> None:
        for talker in (
            "ray",
            "ray.dashboard.modules.job.sdk",
            "ray.dashboard.modules.dashboard_sdk",
        ):
            logging.getLogger(talker).setLevel(logging.ERROR)
        self._address = address
        try:
            self._client = JobSubmissionClient(address)
        except Exception as error:  # requests, Ray and asyncio raise nearly anything
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> SpecError:
        reason = " ".join(str(error).split())[:200]
        return SpecError(
            f"no cluster takes jobs at {self._address}: {reason}; is the tunnel open "
            f"(`ray dashboard cluster.yaml`) and the token that of the cluster?"
        )

    def submit(self, work: Work) -> bool:
        """Start a job on the head, unless one of that name is running."""
        former = self._jobs().get(work.name)
        if former is not None and STATES[former.status] == "running":
            return False
        number = int(former.metadata["number"]) + 1 if former and former.metadata else 1
        with tempfile.TemporaryDirectory(prefix="oclgrid-job-") as folder:
            environment: dict[str, object] = {
                "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)}
            }
            what = str(work.what)
            if isinstance(work.what, Path):
                shutil.copy(work.what, folder)
                environment["working_dir"], what = folder, work.what.name
            command = ["oclgrid", work.verb, what, *work.options, "--address", "auto"]
            self._submit(
                entrypoint=shlex.join(command),
                submission_id=f"{OWN}-{work.name}-{number}",
                metadata={OWN: work.name, "number": str(number)},
                runtime_env=environment,
            )
        return True

    def _submit(self, **job: Any) -> None:
        """Submit a job; wait for a head that is still starting what takes it."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self._client.submit_job(**job)
                return
            except RuntimeError as error:
                if "No available agent" not in str(error) or time.monotonic() > deadline:
                    raise self._refused(error) from error
            time.sleep(1)

    def _jobs(self) -> dict[str, JobDetails]:
        """Return the newest job of each name."""
        newest: dict[str, JobDetails] = {}
        for job in sorted(self._client.list_jobs(), key=lambda job: job.start_time or 0):
            if job.metadata and OWN in job.metadata:
                newest[job.metadata[OWN]] = job
        return newest

    def all(self) -> list[Job]:
        """Return the newest job of every name."""
        return [
            Job(name=name, state=STATES[job.status], told=_reason(job))
            for name, job in sorted(self._jobs().items())
        ]

    def lines(self, name: str, *, follow: bool) -> Iterator[str]:
        """Yield the log, line by line."""
        submission = self._jobs()[name].submission_id
        assert submission is not None  # it was submitted
        if not follow:
            yield from self._client.get_job_logs(submission).splitlines()
            return
        tail = self._client.tail_job_logs(submission)
        with asyncio.Runner() as runner:
            rest = ""
            while (part := runner.run(anext(tail, None))) is not None:
                *whole, rest = (rest + part).split("\n")
                yield from whole
            if rest:
                yield rest

    def stop(self, name: str) -> None:
        """Ask the job to finish the stages under way and end."""
        job = self._jobs()[name]
        if STATES[job.status] == "running":
            assert job.submission_id is not None
            self._client.stop_job(job.submission_id)


def _reason(job: JobDetails) -> str:
    return "" if job.status is not JobStatus.FAILED else " ".join((job.message or "").split())[:200]
