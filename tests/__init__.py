"""The tests of lakecore; the folders mirror the package."""
