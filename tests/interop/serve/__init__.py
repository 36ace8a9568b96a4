"""``rmq serve`` and the clients of other languages.

``make rocketmq`` fetches the Java ones by Maven; ``clients/go`` and ``clients/node`` name the versions of the others,
which Go's module proxy and the npm registry have.
"""
