"""Messages that their handler could not finish: retries and dead letters."""
