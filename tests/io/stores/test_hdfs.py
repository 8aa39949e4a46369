"""The parts of the HDFS store that need no server; `tests/services` uses a real server."""

from __future__ import annotations

import pickle

import pytest

from lakecore.errors import InvalidRequest, StorageError, Unsupported
from lakecore.io.stores import hdfs
from lakecore.io.stores.hdfs import HdfsStore


def test_missing_package_is_named_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hdfs, "PACKAGE", "no_such_package_hdfs")

    with pytest.raises(Unsupported, match=r"pip install 'lakecore\[hdfs\]'"):
        HdfsStore("hdfs://host:8020/w", {}).read("hdfs://host:8020/w/file")


def test_failed_login_by_kerberos_names_the_command_that_gets_a_ticket() -> None:
    told = (
        'GSSAPIError(GssMajorCodes { raw: "0x00070000", calling_error: "none" }, 2529639053, '
        '"No Kerberos credentials available (default cache: /tmp/krb5cc_0)")'
    )

    with (
        pytest.raises(StorageError, match=r"`kinit -kt.*KRB5CCNAME.*reason=No Kerberos .*krb5cc_0"),
        hdfs._plain_errors("hdfs://host:8020/w"),  # noqa: SLF001
    ):
        raise RuntimeError(told)


def test_whole_file_system_is_not_deleted() -> None:
    with pytest.raises(InvalidRequest, match="root"):
        HdfsStore("hdfs://host:8020/w", {}).delete_directory("hdfs://host:8020/")


def test_pickled_store_keeps_its_settings() -> None:
    store = pickle.loads(pickle.dumps(HdfsStore("hdfs://host:8020/w", {})))

    assert repr(store) == "HdfsStore('hdfs://host:8020')"
    assert store.renames_at_once
