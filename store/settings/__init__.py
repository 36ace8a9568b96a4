"""What a store keeps besides its messages: fixed settings, topics, offsets, the checkpoint, and how full its disk is.

:mod:`rmqclient.store.settings.document` reads and replaces the JSON files, and knows nothing of what they mean.
:class:`rmqclient.store.settings.topic_table.TopicTable` is the way to topics and queues while a store is open; the
other modules are for opening, the housekeeper, and commands that look at a closed store.
"""
