"""A stand-in for Slurm: its first argument is the command, and jobs are processes of this machine.

``$STUB_SLURM`` has a folder for each job: its name, its state, and its script.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

JOBS = Path(os.environ["STUB_SLURM"])


def find_option(words, name):
    return next(word.partition("=")[2] for word in words if word.startswith(f"--{name}="))


def sbatch(words):
    script = sys.stdin.read()
    assert script.startswith("#!")
    number = str(1 + len(list(JOBS.iterdir())))
    job = JOBS / number
    job.mkdir()
    (job / "script").write_text(script)
    (job / "state").write_text("RUNNING")
    (job / "name").write_text(find_option(words, "job-name"))
    with open(find_option(words, "output"), "w") as log:
        subprocess.Popen(
            [sys.executable, __file__, "run", number],
            cwd=find_option(words, "chdir"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    print(f"Submitted batch job {number}")


def run(words):
    job = JOBS / words[0]
    environment = os.environ | {"SLURM_JOB_ID": words[0], "SLURM_JOB_NODELIST": "node[0-1]"}
    ended = subprocess.run(["sh", str(job / "script")], env=environment, check=False)
    (job / "ended").write_text("FAILED" if ended.returncode else "COMPLETED")
    (job / "ended").replace(job / "state")


def squeue(words):
    for job in JOBS.glob("*/name"):
        print(f"{job.parent.name}|{(job.parent / 'state').read_text()}|{job.read_text()}")


def scontrol(words):
    assert words == ["show", "hostnames", "node[0-1]"]
    print("127.0.0.1\n127.0.0.1")


def srun(words):
    count = int(find_option(words, "nodes"))
    command = [word for word in words if not re.match("--[a-z-]+=", word)]
    nodes = [
        subprocess.Popen(command, env=os.environ | {"SLURM_NODEID": str(number)})
        for number in range(count)
    ]
    sys.exit(max(node.wait() for node in nodes))


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2:])
