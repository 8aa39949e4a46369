from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.errors import InvalidRequest
from lakecore.io.secret_options import with_secrets

if TYPE_CHECKING:
    from pathlib import Path


def test_secrets_come_from_files_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "from the environment")
    (tmp_path / "secret").write_text("from a file\r\n")
    given = {
        "password-env": "A_SECRET",
        "s3.secret-key-file": str(tmp_path / "secret"),
        "some-file": "a name",
        "user": "me",
    }

    assert with_secrets(given) == {
        "password": "from the environment",
        "s3.secret-key": "from a file",
        "some-file": "a name",
        "user": "me",
    }


def test_variable_that_is_not_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A_SECRET", raising=False)

    with pytest.raises(InvalidRequest, match=r"no such variable\. variable=A_SECRET"):
        with_secrets({"password-env": "A_SECRET"})
    with pytest.raises(InvalidRequest, match="given twice"):
        with_secrets({"password-env": "A_SECRET", "password": "x"})
