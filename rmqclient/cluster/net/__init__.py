"""Net: connections to brokers and name servers, all served by one thread of the process."""
