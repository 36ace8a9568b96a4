"""RocketMQ's tool ``mqadmin`` on our server and on a real broker: what it prints is compared."""
