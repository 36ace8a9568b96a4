"""What the housekeeper does: flushing, retention, compaction."""
