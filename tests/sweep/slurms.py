"""A Slurm of this machine: its daemons as processes of a test, with two nodes and no accounting."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

#: Control groups and the machine's service manager are left alone.
SETTINGS = """
ClusterName=gnnbench
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MinJobAge=36000
MailProg=/bin/true
SlurmdParameters=config_overrides
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4
NodeName=two NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
#: Only prevents a hang.
STARTING_S = 60.0


def find_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def run_slurm(folder: Path) -> Iterator[Path]:
    """Start Slurm and yield its settings; its logs are in the folder."""
    (folder / "state").mkdir(parents=True)
    settings = folder / "slurm.conf"
    host, ports = socket.gethostname().partition(".")[0], find_ports(3)
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    settings.write_text(SETTINGS.format(host=host, user=user, folder=folder, ports=ports))
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    files = {name: folder / f"munge.{name}" for name in ("socket", "pid", "log", "seed")}
    munge = [
        f"--{name}{'' if name == 'socket' else '-file'}={path}" for name, path in files.items()
    ]
    daemons = [
        ["munged", "--foreground", "--force", f"--key-file={key}", *munge],
        ["slurmctld", "-D"],
        ["slurmd", "-D", "-N", "one"],
        ["slurmd", "-D", "-N", "two"],
    ]
    environment = os.environ | {"SLURM_CONF": str(settings)}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, words in enumerate(daemons):
            with open(folder / f"{words[0]}-{number}.log", "wb") as log:
                started.append(subprocess.Popen(words, stdout=log, stderr=log, env=environment))
            if words[0] == "munged":
                await_file(files["socket"])
        await_nodes(environment, folder)
        yield settings
    finally:
        # Jobs outlive the daemons.
        subprocess.run(["scancel", f"--user={user}"], env=environment, check=False)
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30)


def await_file(path: Path) -> None:
    until_s = time.monotonic() + STARTING_S
    while not path.exists():
        assert time.monotonic() < until_s, f"{path} did not appear"
        time.sleep(0.05)


def await_nodes(environment: dict[str, str], folder: Path) -> None:
    until_s = time.monotonic() + STARTING_S
    words = ["sinfo", "--noheader", "--Node", "--format=%T"]
    while True:
        answer = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
        if answer.stdout.split() == ["idle", "idle"]:
            return
        assert time.monotonic() < until_s, (answer, [p.read_text() for p in folder.glob("*.log")])
        time.sleep(0.5)


def count_jobs() -> int:
    words = ["squeue", "--noheader", "--states=all", "--format=%A"]
    answer = subprocess.run(words, capture_output=True, text=True, check=True)
    return len(answer.stdout.split())
