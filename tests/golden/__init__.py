"""Tables, files and texts that other implementations wrote; nothing here changes by a test."""
