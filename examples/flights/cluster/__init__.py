"""The year of flights on a real RocketMQ cluster, which the demonstration starts itself: ``make demo-cluster``."""
