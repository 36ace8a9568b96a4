"""A RocketMQ cluster as a backend, with a scripted peer instead of brokers."""
