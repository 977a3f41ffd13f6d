"""Commands for work that goes on without its terminal: submit, status, logs, stop."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oclgrid.platform.commands import DONE, SOME_FAILED

if TYPE_CHECKING:
    from oclgrid.platform.jobs import Jobs, Work


def submit(options: Any) -> int:
    """Start a sweep or search that goes on by itself; attach to it if it is running."""
    work = _work(options)
    jobs = _jobs(options)
    if jobs.submit(work):
        print(f"submitted {work.name}; it goes on without this terminal", file=sys.stderr)
    else:
        print(f"{work.name} is running already; nothing was started", file=sys.stderr)
    if options.follow:
        return _follow(jobs, work.name)
    print(f"see `oclgrid status` and `oclgrid logs {work.name} --follow`", file=sys.stderr)
    return DONE


def status(options: Any) -> int:
    """Print how jobs stand, and the last thing each has said."""
    from oclgrid.platform.jobs import find

    jobs = _jobs(options)
    shown = [find(jobs, options.name)] if options.name else jobs.all()
    if not shown:
        print("no jobs; submit one with `oclgrid submit SWEEP`", file=sys.stderr)
    for job in shown:
        *_, last = ["", *jobs.lines(job.name, follow=False)]
        note = f" ({job.told})" if job.told else ""
        print(f"{job.name}: {job.state}{note}")
        print(f"    {last}")
    return DONE


def logs(options: Any) -> int:
    """Print what a job has said, and go on as it says more."""
    from oclgrid.platform.jobs import find

    jobs = _jobs(options)
    find(jobs, options.name)
    if options.follow:
        return _follow(jobs, options.name)
    for line in jobs.lines(options.name, follow=False):
        print(line)
    return DONE


def stop(options: Any) -> int:
    """Ask a job to finish the stages under way and end."""
    from oclgrid.platform.jobs import find

    jobs = _jobs(options)
    if find(jobs, options.name).state != "running":
        print(f"{options.name} is not running", file=sys.stderr)
        return DONE
    jobs.stop(options.name)
    print(f"{options.name} ends after the stages under way; submit it again to go on",
          file=sys.stderr)  # fmt: skip
    return DONE


def _follow(jobs: "Jobs", name: str) -> int:
    """Print a job's log until it ends; Ctrl-C leaves the job running."""
    from oclgrid.platform.jobs import find

    try:
        for line in jobs.lines(name, follow=True):
            print(line, flush=True)
    except KeyboardInterrupt:
        print(f"{name} goes on; stop it with `oclgrid stop {name}`", file=sys.stderr)
        return DONE
    job = find(jobs, name)
    print(f"{name}: {job.state}", file=sys.stderr)
    return DONE if job.state == "finished" else SOME_FAILED


def _jobs(options: Any) -> "Jobs":
    """Return where jobs run: on the cluster at an address, or in this machine's background."""
    from oclgrid.platform.jobs import BackgroundJobs
    from oclgrid.platform.location import find_store
    from oclgrid.trainables.schema import SpecError

    if options.address is not None:
        from oclgrid.platform.secret_files import use_ray_token

        use_ray_token()  # before Ray is imported, which looks for it then
        from oclgrid.platform.cluster_jobs import ClusterJobs

        return ClusterJobs(options.address)
    location = find_store(options.store)
    if location.folder is None:
        raise SpecError("jobs of this machine lie in a store's folder; give one, or --address")
    return BackgroundJobs(location.folder.resolve() / "jobs")


def _work(options: Any) -> "Work":
    """Return the command that runs what was asked for, after checking that it can be read."""
    from oclgrid.platform.jobs import Work
    from oclgrid.search_spaces.named import kind_of
    from oclgrid.search_spaces.search import read_search
    from oclgrid.search_spaces.sweep import read_sweep

    is_search = kind_of(options.work) == "search"
    name = read_search(options.work).name if is_search else read_sweep(options.work).name
    is_file = options.work.endswith((".yaml", ".yml"))
    what = Path(options.work).resolve() if is_file else options.work
    given = {n: getattr(options, n) for n in ("store", "data", "slots")}
    passed = [f"--{n}={v}" for n, v in given.items() if v is not None]
    verb = "tune" if is_search else "run"
    return Work(name=name, verb=verb, what=what, options=tuple(passed))
