"""Topics: topics as clients see them, and requests to a name server.

==================  ==========================================================================================
``topics``          the topics of the store as clients see them: settings, queues, making and deleting
``system_topics``   the topics that every broker has
``topic_names``     valid names of topics
``name_server``     requests to a name server: routes, clusters, lists of topics, permissions
``kv_settings``     the name server's table of keys and values, such as the order of topics
==================  ==========================================================================================
"""
