"""A year of New York's flights through two groups of handlers, one worker killed on the way, every flight counted once.

``demo`` runs everything: ``replay`` sends the flights, and the handlers of ``app`` count them. ``outcome`` checks and
draws what they counted. ``weather`` hands the same flights to Spark.
"""
