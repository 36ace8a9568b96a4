"""Topics: what they are to clients, and what a name server says of them.

==================  ==========================================================================================
``topics``          the topics of the store as clients see them: settings, queues, making and deleting
``system_topics``   the topics that a broker has without being asked
``topic_names``     which names clients may give
``name_server``     requests to a name server: routes, clusters, lists of topics, permissions
``kv_settings``     the name server's table of texts, such as the order of topics
==================  ==========================================================================================
"""
