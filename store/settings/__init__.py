"""What a store keeps beside its messages: settings, topics, offsets, the checkpoint, and how full its disk is."""
