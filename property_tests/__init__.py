"""The laws: codecs, merges, histories, crashes."""
