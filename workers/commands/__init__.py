"""The commands of ``rmq``, a file for each noun."""
