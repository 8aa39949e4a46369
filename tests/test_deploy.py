"""The files of examples/deploy: their form, and that the command line knows what they run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "examples" / "deploy"
UNIT = (DEPLOY / "lakecore@.service").read_text()
IMAGE = (DEPLOY / "Dockerfile").read_text()
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
DEPLOYMENTS = [each for each in OBJECTS if each["kind"] == "Deployment"]


def commands() -> dict[str, list[str]]:
    """Where a command is, and its words."""
    found = {
        f"unit {text}": text.split() for text in re.findall(r"COMMAND=((?:[\w./-]+ ?)+)", UNIT)
    }
    for each in DEPLOYMENTS:
        (container,) = each["spec"]["template"]["spec"]["containers"]
        found[f"pod {each['metadata']['name']}"] = container["args"]
    found["image"] = re.findall(r"docker run lakecore (.*)$", IMAGE, re.MULTILINE)[0].split()
    return {name: [word for word in words if word != "and"] for name, words in found.items()}


@pytest.mark.parametrize(("name", "words"), commands().items())
def test_the_command_line_knows_the_command_and_its_flags(name: str, words: list[str]) -> None:
    verb = words[:2] if words[0] == "cdc" else words[:1]
    shown = subprocess.check_output(
        [sys.executable, "-m", "lakecore", verb[0], "--help"], text=True
    )

    flags = {word for word in words if word.startswith("--")}
    assert flags <= set(re.findall(r"--[a-z-]+", shown)), name
    assert " ".join(verb) in shown


def test_each_long_command_is_run_by_the_unit_and_by_a_pod() -> None:
    for kind in ("unit", "pod"):
        verbs = {words[0] for name, words in commands().items() if name.startswith(kind)}
        assert verbs == {"serve-rest", "compact", "cdc"}


def test_the_deployments_select_their_pods_and_run_without_root() -> None:
    for each in DEPLOYMENTS:
        spec = each["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert each["apiVersion"] == "apps/v1"
        assert spec["selector"]["matchLabels"] == labels == {"app": each["metadata"]["name"]}
        assert spec["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
        volumes = {volume["name"] for volume in spec["template"]["spec"].get("volumes", [])}
        for container in spec["template"]["spec"]["containers"]:
            assert all(isinstance(word, str) for word in container["args"])
            assert {mount["name"] for mount in container.get("volumeMounts", [])} == volumes
            assert container["resources"]["limits"]["memory"]
    (service,) = [each for each in OBJECTS if each["kind"] == "Service"]
    assert service["spec"]["selector"] in [
        each["spec"]["selector"]["matchLabels"] for each in DEPLOYMENTS
    ]


def test_the_image_has_known_extras_and_does_not_run_as_root() -> None:
    steps = [line for line in IMAGE.splitlines() if line and not line.startswith("#")]
    words = [line.split()[0] for line in steps]
    install = (ROOT / "docs" / "install.md").read_text()
    (extras,) = re.findall(r"/src\[([\w,-]+)\]", IMAGE)

    assert words[0] == "FROM"
    assert ":" in steps[0]
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert "--no-cache-dir" in IMAGE
    assert json.loads(steps[words.index("ENTRYPOINT")].partition(" ")[2]) == ["lakecore"]
    assert all(f"| `{extra}` |" in install for extra in extras.split(","))


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = Path(sys.executable)
    (tmp_path / "lakecore@.service").write_text(
        UNIT.replace("/opt/lakecore/bin/lakecore", str(program))
    )
    if shutil.which("systemd-analyze"):
        subprocess.run(
            ["systemd-analyze", "verify", str(tmp_path / "lakecore@.service")], check=True
        )
    sections = re.findall(r"^\[(\w+)\]$", UNIT, re.MULTILINE)
    settings = [line for line in UNIT.splitlines() if line and line[0] not in "#["]

    assert sections == ["Unit", "Service", "Install"]
    assert all(re.fullmatch(r"[A-Z][A-Za-z]+=.+", line) for line in settings)
