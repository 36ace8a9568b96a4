"""A year of New York's flights, counted by two groups of handlers: a worker is killed, and each flight counts once.

``demo`` runs everything: ``replay`` sends the flights, and the handlers of ``app`` count them. ``outcome`` checks and
draws what they counted. ``weather`` hands the same flights to Spark.
"""
