"""Errors of clients of storages, and their files, in lakecore's errors."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

import pytest

from lakecore.errors import AlreadyExists, LakecoreError, NotFound, StorageError
from lakecore.io.stores.storage_errors import (
    Answer,
    TranslatedFile,
    answer,
    http_status,
    lacks_bucket,
    plain_remote_errors,
)


class ClientError(Exception):
    """What clients raise: with a status under one of several names."""

    def __init__(self, **facts: object) -> None:
        super().__init__("refused")
        for name, value in facts.items():
            setattr(self, name, value)


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
        ({"code": 99}, None),
        ({"code": 100}, 100),
        ({"code": 599}, 599),
        ({"code": 600}, None),
        ({"response": {"ResponseMetadata": None}, "status": 400}, 400),
        ({"__cause__": ClientError(__cause__=ClientError(code=418))}, 418),
        ({}, None),
    ],
)
def test_status_has_the_name_of_its_client(facts: dict[str, Any], status: int | None) -> None:
    assert http_status(ClientError(**facts)) == status


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (FileExistsError(17, "there"), Answer.TAKEN),
        (ClientError(status=412), Answer.TAKEN),
        (ClientError(status=409), Answer.BUSY),
        (PermissionError(13, "no"), Answer.REFUSED),
        (FileNotFoundError(2, "no"), Answer.REFUSED),
        (ClientError(status=399), Answer.NONE),
        (ClientError(status=400), Answer.REFUSED),
        (ClientError(status=408), Answer.NONE),
        (ClientError(status=429), Answer.NONE),
        (ClientError(status=499), Answer.REFUSED),
        (ClientError(status=500), Answer.NONE),
        (ClientError(status=501), Answer.REFUSED),
        (ClientError(status=502), Answer.NONE),
        (ConnectionError(), Answer.NONE),
    ],
)
def test_answer_to_a_conditional_put(error: Exception, meaning: Answer) -> None:
    assert answer(error) is meaning


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (ClientError(response={"Error": {"Code": "NoSuchBucket"}}), True),
        (ClientError(error_code="ContainerNotFound"), True),
        (ClientError(__cause__=ClientError(error_code="ContainerNotFound")), True),
        (OSError("The specified bucket does not exist."), True),
        (ClientError(response={"Error": {"Code": "NoSuchKey"}}), False),
        (ClientError(response="text"), False),
    ],
)
def test_absent_bucket_is_told_from_an_absent_file(error: Exception, *, lacks: bool) -> None:
    assert lacks_bucket(error) is lacks


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
