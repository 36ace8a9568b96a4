"""Net: connections to brokers and name servers, served by one thread of the process."""
