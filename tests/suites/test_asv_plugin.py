"""asv builds each commit and keeps its results, and ends as the project's own commands do."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = {
    "version": 1,
    "project": "tiny",
    "repo": ".",
    "branches": ["main"],
    "plugins": [".suites.asv_plugin"],
    "environment_type": "checkout",
    "build_command": ["python -c \"open('built', 'w')\""],
    "install_command": [],
    "uninstall_command": [],
    "benchmark_dir": "benchmarks",
    "env_dir": "build",
    "results_dir": "results",
    "matrix": {"env_nobuild": {"GNNBENCH_PLUGINS": ["mine.py"]}},
}
BENCHMARK = """
import os
import tiny


def time_work():
    tiny.work()


time_work.repeat = 12
time_work.number = 1
time_work.rounds = 1
time_work.warmup_time = 0


def track_plugins():
    return len(os.environ["GNNBENCH_PLUGINS"])
"""
SLEEPING = "import time\n\n\ndef work():\n    time.sleep({})\n"


class Repository:
    """A project of one function, and what asv says of its commits."""

    def __init__(self, folder):
        self.folder = folder
        paths = os.pathsep.join(path for path in (str(ROOT), *sys.path) if path)
        self._environment = {
            **os.environ,
            "HOME": str(folder.parent),
            "PYTHONPATH": paths,
            "ASV_PYTHONPATH": paths,
            **{
                f"GIT_{who}_{what}": "nobody"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            },
        }
        folder.mkdir()
        (folder / "benchmarks").mkdir()
        (folder / "benchmarks" / "__init__.py").write_text("")
        (folder / "benchmarks" / "work.py").write_text(BENCHMARK)
        (folder / "asv.conf.json").write_text(json.dumps(CONFIG))
        self._run("git", "init", "--quiet", "--initial-branch", "main")
        self.asv("machine", "--yes")

    def commit(self, module):
        (self.folder / "tiny.py").write_text(module)
        self._run("git", "add", "tiny.py")
        self._run("git", "commit", "--quiet", "--allow-empty", "--message", "another")

    def asv(self, *words):
        return self._run(sys.executable, "-m", "asv", *words, check=False)

    def _run(self, *words, check=True):
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=check,
        )


def test_results_of_a_commit_are_kept_and_slower_is_told(tmp_path):
    """The benchmarks run the commit's code, not the tree's, which ends at once. A benchmark that
    fails is no regression."""
    repository = Repository(tmp_path / "tiny")
    repository.commit(SLEEPING.format(0.002))
    repository.commit(SLEEPING.format(0.05))
    repository.commit("def work():\n    raise RuntimeError('broken')\n")
    (repository.folder / "tiny.py").write_text("def work():\n    raise SystemExit('the tree')\n")
    slower = repository.asv("continuous", "HEAD~2", "HEAD~1")
    assert slower.returncode == 1, slower.stdout + slower.stderr
    assert "PERFORMANCE DECREASED" in slower.stdout
    kept = [path for path in (repository.folder / "results").rglob("*.json") if "-" in path.stem]
    assert len(kept) == 2
    for path in kept:
        columns, results = (
            json.loads(path.read_text())[key] for key in ("result_columns", "results")
        )
        samples = results["work.time_work"][columns.index("samples")]
        assert len(samples[0]) == 12
        assert results["work.track_plugins"][0] == [len("mine.py")]
    faster = repository.asv("continuous", "HEAD~1", "HEAD~2")
    assert faster.returncode == 0, faster.stdout + faster.stderr
    failed = repository.asv("continuous", "HEAD~2", "HEAD")
    assert failed.returncode == 3, failed.stdout + failed.stderr
