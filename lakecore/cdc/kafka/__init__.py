"""Topics of Kafka as a source of changes. It needs the extra `cdc-kafka`."""

from __future__ import annotations
