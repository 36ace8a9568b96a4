"""Replication: a store follows another one by RocketMQ's HA protocol."""
