"""Administration: what RocketMQ's tools ask a broker, and change in it. [AdminBrokerProcessor of 4.9.7]

====================  ==================================================================================
``topic_commands``    topics: made, changed, deleted, listed, how many messages they have
``group_commands``    groups: their settings, what they subscribe to
``consumption``       how far groups are, and which groups consume a topic
``progress``          the figures of that, out of the store
``connections``       who is connected: consumers and producers, local ones too
``relays``            questions to a consumer, handed on over its connection
``resets``            moving a group in a topic to a time
``rates``             messages per second, minute, hour and day
``broker_info``       what the broker does; cleaning up
``broker_settings``   how the broker was started
====================  ==================================================================================
"""
