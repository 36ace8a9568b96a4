"""A shop in Django: a web server takes orders, workers bill them and write receipts."""
