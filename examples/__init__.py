"""Programs that use rmqclient as an application would."""
