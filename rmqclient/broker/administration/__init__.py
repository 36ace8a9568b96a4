"""Administration: what RocketMQ's tools ask a broker, and change in it. [AdminBrokerProcessor of 4.9.7]

====================  ==================================================================================
``room``              all of it, as one room
``topic_commands``    topics: made, changed, deleted, listed, how many messages they have
``group_commands``    groups: their settings, what they subscribe to
``consumption``       how far groups are, and which groups consume a topic
``progress``          the figures of that, out of the store
``connections``       who is connected: consumers and producers, local ones too
``resets``            moving a group to a time, an offset, or where another group is
``relays``            questions to a consumer, handed on over its connection
``rates``             messages per second, minute, hour and day
``broker_info``       what the broker does; cleaning up
``broker_settings``   how the broker was started
====================  ==================================================================================
"""
