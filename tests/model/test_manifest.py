from __future__ import annotations

from lakecore.model.manifest import ColumnStatistics, TableStatistics

FOUND = TableStatistics(
    snapshot_id=3,
    schema_id=0,
    merged_record_count=1_200,
    columns={"n": ColumnStatistics(column_id=1, min="1", null_count=0)},
)


def test_statistics_are_shown_as_names_and_values() -> None:
    assert str(FOUND) == "snapshot  3\nrows      1,200\nn         nulls 0, min 1"
    assert repr(FOUND).startswith("TableStatistics(snapshot_id=3, merged_record_count=1200, col")
    html = FOUND._repr_html_()
    assert html.startswith("<table><caption>Statistics</caption>")
    assert ">rows</th><td style='text-align:left'>1,200</td>" in html
