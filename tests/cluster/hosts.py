"""Machines of a cluster on one machine: namespaces with an address, processes, a home and an sshd.

The network of the machine itself is not touched: the switch is a bridge in the namespace of the
user's own computer, and there is no way out. All of it ends with this process, however that ends.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "hosts"
"""Homes, keys and logs; a former run's are removed."""
HOME = FOLDER / "home"
"""Where each machine has its own."""
NEEDED = {
    "/usr/sbin/sshd": "openssh-server",
    "ip": "iproute2",
    "rsync": "rsync",
    "pkill": "procps",
    "unshare": "util-linux",
    "pg_ctlcluster": "postgresql",
}
SSHD = """\
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {keys}
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
MaxSessions 50
MaxStartups 50
PidFile none
"""
VENV = Path(sys.prefix)
NET = "10.77.0"
ENVIRONMENT = {
    "HOME": str(HOME),
    "LANG": "C.UTF-8",
    "PATH": f"{VENV / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}


@dataclass(frozen=True, slots=True)
class Host:
    """A machine that is up."""

    name: str
    address: str
    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        """Its first process, as seen from outside."""
        outer = self.process.pid
        return int(Path(f"/proc/{outer}/task/{outer}/children").read_text())

    def inside(self, *command: str, folder: Path = ROOT, **environment: str) -> list[str]:
        """Return the command line that runs a command on this machine."""
        variables = [f"{k}={v}" for k, v in {**ENVIRONMENT, **environment}.items()]
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        return [*enter, "env", "-i", f"--chdir={folder}", *variables, *command]

    def run(self, *command: str, **environment: str) -> str:
        """Run a command there; return what it printed."""
        done = subprocess.run(
            self.inside(*command, **environment),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, f"{self.name}: {' '.join(command)}\n{done.stdout}"
        return done.stdout

    def processes(self) -> dict[int, str]:
        """Return the command lines of its processes, by their ids there."""
        lines = self.run("ps", "-ww", "-eo", "pid=,args=").splitlines()
        return {int(pid): rest for pid, rest in (line.split(maxsplit=1) for line in lines)}

    def power_off(self) -> None:
        """End every process at once."""
        self.process.kill()
        self.process.wait()

    def await_word(self, word: str) -> None:
        """Return when its script has said something."""
        assert self.process.stdout
        said = self.process.stdout.readline().strip()
        assert said == word, (FOLDER / self.name / "log").read_text()

    def plug_in(self, command: str, switch: "Host") -> None:
        """Let the command make its network device, and wait until the machine is up."""
        enter = ["nsenter", f"--target={switch.pid}", "--net"]
        subprocess.run([*enter, *command.split()], check=True)
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.await_word("ready")


class Hosts:
    """A computer of the user's own and machines that it reaches over SSH."""

    def __init__(self, own: Host, machines: dict[str, Host]) -> None:
        self.own, self.machines = own, machines

    def set_cable(self, name: str, state: str) -> None:
        """Set the cable of a machine "up" or "down"."""
        self.own.run("ip", "link", "set", name, state)


def check() -> None:
    """Say what is missing, if anything is."""
    assert os.geteuid() == 0, "machines are made of namespaces, which takes root"
    missing = [p for program, p in NEEDED.items() if not shutil.which(program)]
    assert not missing, f"on Debian: apt-get update && apt-get install {' '.join(missing)}"


@contextmanager
def hosts(names: list[str]) -> Iterator[Hosts]:
    """Hold the user's computer and machines of these names, which take root logins by key."""
    check()
    shutil.rmtree(FOLDER, ignore_errors=True)
    HOME.mkdir(parents=True)
    passwd = Path("/etc/passwd").read_text(encoding="utf-8")
    lived = re.compile(r"^(root:.*:)[^:]*(:[^:]*)$", re.MULTILINE)
    (FOLDER / "passwd").write_text(lived.sub(rf"\g<1>{HOME}\g<2>", passwd), encoding="utf-8")
    key = FOLDER / "own" / "home" / ".ssh" / "id_ed25519"
    _make_key(key)
    with ExitStack() as stack:
        own = stack.enter_context(_host("own", f"{NET}.10"))
        own.plug_in("ip link add eth0 type bridge", own)
        machines = {}
        for number, name in enumerate(names, start=11):
            _make_key(FOLDER / name / "host_key")
            address, folder = f"{NET}.{number}", FOLDER / name
            settings = SSHD.format(address=address, folder=folder, keys=key.with_suffix(".pub"))
            (folder / "sshd_config").write_text(settings, encoding="utf-8")
            machines[name] = stack.enter_context(_host(name, address))
            cable = f"ip link add {name} up master eth0 type veth peer name eth0 netns"
            machines[name].plug_in(f"{cable} {machines[name].pid}", own)
        yield Hosts(own, machines)


def _make_key(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


@contextmanager
def _host(name: str, address: str) -> Iterator[Host]:
    """Hold a machine that waits for its cable."""
    for part in ("home", "postgresql", "tmp"):
        (FOLDER / name / part).mkdir(parents=True, exist_ok=True)
    new = ["--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--mount-proc", "--kill-child"]
    script = [str(Path(__file__).with_name("host.sh")), name, address, str(FOLDER), str(VENV)]
    seen = [str(ROOT), sys.base_prefix]
    with (FOLDER / name / "log").open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "unshare", *new, *script, *seen],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    with process:
        host = Host(name, address, process)
        try:
            host.await_word("waiting")
            yield host
        finally:
            host.power_off()
