"""A shop in FastAPI and SQLAlchemy: a web server takes orders, workers bill them."""
