"""Installs the storage emulators of this suite: fake-gcs-server (by Go) and Azurite (by npm).

They are kept next to the Java kits of `setup.py`, built once, under a lock. A tool that is missing
(`go`, `npm`) fails the tests: CONTRIBUTING.md lists what a machine needs.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.interop.setup_peers import peers_home

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FAKE_GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
AZURITE = "azurite@3.35.0"


def fake_gcs_server() -> Path:
    """The program that plays Google Cloud Storage."""
    home = _home("fake-gcs-server")
    program = home / "fake-gcs-server"
    _install(home, program, ["go", "install", FAKE_GCS], {"GOBIN": str(home), "CGO_ENABLED": "0"})
    return program


def azurite() -> Path:
    """The script, for Node, that plays Azure's Blob Storage."""
    home = _home("azurite")
    script = home / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    options = ["--no-fund", "--no-audit", "--silent", "--prefix", str(home)]
    _install(home, script, ["npm", "install", *options, AZURITE], {})
    return script


def _home(name: str) -> Path:
    return peers_home() / "services" / name


def _install(home: Path, product: Path, command: list[str], more: Mapping[str, str]) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    wanted = " ".join(command)
    with (home.parent / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = home / "ready"
        if ready.exists() and product.exists() and ready.read_text(encoding="utf-8") == wanted:
            return
        program = shutil.which(command[0]) or shutil.which(command[0], path="/usr/local/go/bin")
        assert program, f"`{command[0]}` is not installed: CONTRIBUTING.md says what is needed"
        sys.stderr.write(f"installing {home.name} into {home}\n")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        done = subprocess.run(
            [program, *command[1:]],
            check=False,
            capture_output=True,
            encoding="utf-8",
            cwd=home,
            env={**os.environ, **more},
        )
        assert done.returncode == 0, f"failed: {wanted}\n{done.stdout}{done.stderr}"
        assert product.exists(), f"{wanted} did not make {product}"
        ready.write_text(wanted, encoding="utf-8")
