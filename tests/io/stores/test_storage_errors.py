"""Errors of clients of storages, and their files, in lakecore's errors."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

import pytest

from lakecore.errors import AlreadyExists, LakecoreError, NotFound, StorageError
from lakecore.io.stores.storage_errors import (
    TranslatedFile,
    http_status,
    plain_remote_errors,
)


class ClientError(Exception):
    """What clients raise: with a status under one of several names."""

    def __init__(self, **facts: object) -> None:
        super().__init__("refused")
        vars(self).update(facts)


@pytest.mark.parametrize(
    ("error", "translated", "message"),
    [
        (FileNotFoundError(2, "no"), NotFound, "no such file"),
        (NotADirectoryError(20, "no"), NotFound, "no such file"),
        (IsADirectoryError(21, "no"), NotFound, "a directory, not a file"),
        (FileExistsError(17, "no"), AlreadyExists, "the path exists already"),
        (PermissionError(13, "no"), StorageError, "refused the credentials"),
        (ClientError(status=403), StorageError, "refused the credentials"),
        (ClientError(status_code="401"), StorageError, "refused the credentials"),
        (ClientError(code=500), StorageError, "the storage refused"),
    ],
)
def test_error_of_a_client_is_one_of_lakecore(
    error: Exception, translated: type[LakecoreError], message: str
) -> None:
    with pytest.raises(LakecoreError, match=message) as refusal:  # noqa: SIM117
        with plain_remote_errors("s3://b/f", (ClientError,)):
            raise error
    assert type(refusal.value) is translated
    assert refusal.value.facts["path"] == "s3://b/f"
    assert refusal.value.__cause__ is error


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        ({"response": {"ResponseMetadata": {"HTTPStatusCode": 404}}}, 404),
        ({"status_code": 404}, 404),
        ({"status": "404"}, 404),
        ({"status_code": None, "code": 503}, 503),
        ({"code": "AccessDenied"}, None),
        ({}, None),
    ],
)
def test_status_has_the_name_of_its_client(facts: dict[str, Any], status: int | None) -> None:
    assert http_status(ClientError(**facts)) == status


def test_every_call_of_a_file_is_translated() -> None:
    class Broken(io.BytesIO):
        def flush(self) -> None:
            raise IsADirectoryError

    translated = partial(plain_remote_errors, "s3://b/f", ())
    with pytest.raises(NotFound, match="a directory"):
        TranslatedFile(Broken(), translated).flush()
    whole = io.BytesIO(b"abc")
    file = TranslatedFile(whole, translated)
    file.flush()
    assert (file.seek(1), file.read(1), file.tell(), file.closed) == (1, b"b", 2, False)
    file.close()
    assert file.closed
