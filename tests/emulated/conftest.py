"""Builds the emulated devices, and trains on them, or on CUDA's where there are any, in a process
of its own."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SOURCE = HERE / "emulated.cpp"

Case = dict[str, Any]
Found = dict[str, Any]


def compile_library(compiler: str, library: Path) -> None:
    """A shared object of torch operators; it needs torch's headers and nothing of Python's."""
    from torch.utils.cpp_extension import include_paths, library_paths

    scratch = library.with_suffix(f".{os.getpid()}.so")
    subprocess.run(
        [
            compiler,
            *("-std=c++20", "-O1", "-w", "-shared", "-fPIC", str(SOURCE), "-o", str(scratch)),
            *(f"-I{path}" for path in include_paths()),
            *(f"-L{path}" for path in library_paths()),
            *("-lc10", "-ltorch_cpu"),
        ],
        check=True,
    )
    scratch.replace(library)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The devices' library, compiled once for this source and torch, in about 10 seconds."""
    import torch

    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("emulated devices are compiled, and there is no C++ compiler here")
    text = SOURCE.read_bytes() + torch.__version__.encode() + compiler.encode()
    # Beside the directories of this user's runs, so that every worker and the next run find it.
    root = tmp_path_factory.getbasetemp().parent
    library = root / f"emulated-{hashlib.sha256(text).hexdigest()[:16]}.so"
    if not library.is_file():
        compile_library(compiler, library)
    return library


def list_devices() -> list[str]:
    import torch

    return ["emulated", "cuda"] if torch.cuda.is_available() else ["emulated"]


@pytest.fixture(scope="session", params=list_devices())
def train_cases(request: pytest.FixtureRequest) -> Callable[[Sequence[Case]], list[Found]]:
    """What training of some cases finds; see ``training.py``."""
    emulated = request.param == "emulated"
    words = [str(request.getfixturevalue("library"))] if emulated else []
    # cuBLAS takes no memory for itself, which no ledger has.
    environment = os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":0:0"}

    def train(cases: Sequence[Case]) -> list[Found]:
        done = subprocess.run(
            [sys.executable, str(HERE / "training.py"), *words],
            env=environment,
            input=json.dumps(list(cases)),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        found: list[Found] = json.loads(done.stdout)
        return found

    return train
