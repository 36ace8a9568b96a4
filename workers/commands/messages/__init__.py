"""Commands for messages: finding one, sending some, printing them as they come."""
