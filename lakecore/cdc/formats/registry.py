"""The table of formats, by their name in the option `value.format`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lakecore.cdc.formats.debezium import DebeziumAvro, DebeziumBson, DebeziumJson, SchemaRegistry
from lakecore.cdc.formats.decoder import Decoder, JsonDecoder, TextFormat
from lakecore.cdc.formats.json_dialects import (
    DMS_JSON,
    MAXWELL_JSON,
    OGG_JSON,
    PLAIN_JSON,
    AliyunJson,
    CanalJson,
)
from lakecore.cdc.types.mapping import DEFAULT_MAPPING, OF_TYPES, TypeMapping
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _text_decoder(message_format: TextFormat, mapping: TypeMapping) -> Decoder:
    del mapping  # there are no types to map
    return JsonDecoder(message_format)


_TEXT_FORMATS = {each.name: each for each in (MAXWELL_JSON, OGG_JSON, PLAIN_JSON, DMS_JSON)}
FORMATS: Mapping[str, Callable[[TypeMapping], Decoder]] = {
    "debezium-json": lambda mapping: JsonDecoder(DebeziumJson(mapping)),
    "canal-json": lambda mapping: JsonDecoder(CanalJson(mapping)),
    "aliyun-json": lambda mapping: JsonDecoder(AliyunJson(mapping)),
    **{name: partial(_text_decoder, each) for name, each in _TEXT_FORMATS.items()},
    "debezium-bson": lambda _mapping: DebeziumBson(),
}
TEXT_ONLY = frozenset({*_TEXT_FORMATS, "debezium-bson"})
"""The formats whose columns are all STRING."""
AVRO = "debezium-avro"
VALUE_FORMATS = (*FORMATS, AVRO)
"""The names of all formats; the Avro format needs a schema registry."""


def decoder_for(
    value_format: str, mapping: TypeMapping = DEFAULT_MAPPING, registry_url: str | None = None
) -> Decoder:
    """A new decoder for a format.

    Raises InvalidRequest for an unknown format, listing the known formats.
    """
    if value_format == AVRO:
        if registry_url is None:
            raise InvalidRequest("debezium-avro needs an option", option="schema.registry.url")
        return DebeziumAvro(SchemaRegistry(registry_url), mapping)
    make = FORMATS.get(value_format)
    if make is None:
        raise InvalidRequest("unknown value.format", format=value_format, known=VALUE_FORMATS)
    without = sorted(mapping.options & OF_TYPES)
    if value_format in TEXT_ONLY and without:
        raise InvalidRequest(
            "the messages of the format state no types, so every column is STRING; leave these "
            "options of --type_mapping out",
            format=value_format,
            options=without,
        )
    return make(mapping)
