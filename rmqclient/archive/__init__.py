"""Sealed files of a store in object storage."""
