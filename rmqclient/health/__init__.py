"""Health: what is wrong with a store, in words that every view of it shares.

``words`` says states of queues, groups and workers. ``limits`` holds the numbers from which something is wrong.
``findings`` looks at a store and lists what it finds, the worst first; the command ``rmq check`` prints that list, and
``rmq top`` and the dashboard show it. ``report`` writes it for people, programs, Nagios and Prometheus.
``service_manager`` tells systemd how a process is.

Nothing here imports the store, its kernel or another package: a probe is a new process each time.
"""
