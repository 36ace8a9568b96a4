"""From a queue that is owned to the handler that is called."""
