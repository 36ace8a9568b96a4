"""Administration: requests of RocketMQ's tools. [AdminBrokerProcessor of 4.9.7]

====================  ==================================================================================
``room``              all of it, as one room
``topic_commands``    topics: made, changed, deleted, listed, how many messages they have
``group_commands``    groups: their settings, what they subscribe to
``consumption``       progress of groups, and which groups consume a topic
``progress``          reads the progress of groups from the store
``connections``       connected consumers and producers, local ones too
``resets``            moving a group to a time, an offset, or where another group is
``relays``            requests to a consumer, forwarded over its connection
``rates``             messages per second, minute, hour and day
``broker_info``       statistics of the broker; cleaning up
``broker_settings``   the settings that the broker was started with
====================  ==================================================================================
"""
