"""The S3 service that the tests of io share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores import S3Service, s3_service

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def _s3_running() -> Iterator[S3Service]:
    with s3_service() as service:
        with service.client() as client:
            client.create_bucket(Bucket="warehouse")
        yield service


@pytest.fixture
def s3(_s3_running: S3Service) -> Iterator[S3Service]:
    """An S3 service with the bucket `warehouse`."""
    yield _s3_running
    _s3_running.be_well()
